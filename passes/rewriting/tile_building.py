"""Build the tile that a cluster of row-wise ops becomes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from ...dialect.attributes.schedule import ScheduleAttr
from ...dialect.ops.axis_maps import axis_map_of
from ...dialect.ops.constants import ConstantOp
from ...dialect.ops.movement import INFERRED, ReshapeOp, TargetShapeAttr
from ...dialect.ops.regions import YieldOp
from ...dialect.ops.tile import TileOp, tile_type
from ...dialect.provenance import copy_provenance
from ...dialect.tensors import DYNAMIC, f32_tensor, shape_of
from ..analysis.clusters import boundary_of
from ..analysis.per_feature_constants import entries_per_feature
from ..analysis.rowwise import Rows


@dataclass(frozen=True)
class TileBuilder:
    """Makes tiles out of ops with the same rows."""

    rows: Rows
    flat_constants: dict[SSAValue, ConstantOp] = field(default_factory=dict[SSAValue, ConstantOp])
    """Constants of rank 1 for those with other leading axes of size 1."""

    def build(self, ops: Sequence[Operation], schedule: ScheduleAttr) -> list[Operation]:
        """Return new constants, a tile that computes `ops` by a schedule, and reshapes behind it.

        Users of the results of `ops` now read theirs.
        """
        inputs, outputs = boundary_of(ops)
        known = len(self.flat_constants)
        body = TileOp.body_for(inputs)
        inner: dict[SSAValue, SSAValue] = dict(zip(inputs, body.block.args, strict=True))
        for op in ops:
            body.block.add_ops(self._inside(op, inner))
        body.block.add_op(YieldOp([inner[output] for output in outputs]))
        tile = TileOp(inputs, [self._result(output, inputs) for output in outputs], schedule, body)
        return [*list(self.flat_constants.values())[known:], tile, *self._replace(outputs, tile)]

    def _inside(self, op: Operation, inner: dict[SSAValue, SSAValue]) -> list[Operation]:
        """Return the op that does inside what `op` does outside; a reshape of the rows is nothing there."""
        if isinstance(op, ReshapeOp):
            inner[op.result] = inner[op.x]
            return []
        properties: dict[str, Attribute] = dict(op.properties)
        axis_map = axis_map_of(op)
        if axis_map is not None and axis_map.join is not None:
            properties["axis"] = IntegerAttr(1, i64)
        copy = op.create(
            operands=[inner[operand] if operand in inner else self._constant(operand, op) for operand in op.operands],
            result_types=[tile_type(result) for result in op.results],
            properties=properties,
            attributes=dict(op.attributes),
        )
        for outside, inside in zip(op.results, copy.results, strict=True):
            inside.name_hint = outside.name_hint
            inner[outside] = inside
        return [copy]

    def _constant(self, value: SSAValue, user: Operation) -> SSAValue:
        """Return the constant that takes the place of `value` inside: per feature, so of rank 1 in elementwise ops."""
        axis_map = axis_map_of(user)
        entries = entries_per_feature(value) if axis_map is not None and axis_map.is_elementwise else None
        if entries is None or not isinstance(value.owner, ConstantOp) or len(shape_of(value)) == 1:
            return value
        if value not in self.flat_constants:
            flat = ConstantOp(np.ascontiguousarray(entries))
            copy_provenance(value.owner, flat)
            self.flat_constants[value] = flat
        return self.flat_constants[value].result

    def _result(self, output: SSAValue, inputs: Sequence[SSAValue]) -> tuple[int, Attribute]:
        """Return the operand whose leading axes a result has, and its type: that of `output` where operands allow."""
        for index, value in enumerate(inputs):
            same = self.rows.leading(value) == self.rows.leading(output)
            if same and shape_of(value)[:-1] == shape_of(output)[:-1]:
                return index, output.type
        return 0, f32_tensor((*shape_of(inputs[0])[:-1], shape_of(output)[-1]))

    def _replace(self, outputs: Sequence[SSAValue], tile: TileOp) -> list[Operation]:
        """Let users of `outputs` read the results of `tile`; return the reshapes that some need."""
        reshapes: list[Operation] = []
        for output, result in zip(outputs, tile.outputs, strict=True):
            replacement: SSAValue = result
            result.name_hint = output.name_hint
            self.rows.shapes[result] = (*self.rows.leading(tile.inputs[0]), *self.rows.shapes[output][-1:])
            if result.type != output.type:
                target = [INFERRED if size == DYNAMIC else size for size in shape_of(output)]
                reshape = ReshapeOp(result, TargetShapeAttr(target))
                replacement = Rewriter.replace_value_with_new_type(reshape.result, output.type)
                reshapes.append(reshape)
            self.rows.shapes[replacement] = self.rows.shapes[output]
            output.replace_all_uses_with(replacement)
        return reshapes
