"""Group row-wise ops into tiles, which run layer by layer on a few rows at a time.

```mlir
%h = pebble.linear %x, %w activation <relu> : (tensor<?x4xf32>, ...) -> tensor<?x3xf32>
%y = pebble.linear %h, %v : (tensor<?x3xf32>, ...) -> tensor<?x2xf32>
// ->
%y = pebble.tile %x rows_of [0] schedule <widths = [16, 64]>
    : (tensor<?x4xf32>) -> tensor<?x2xf32> {
^bb0(%tile : tensor<?x4xf32>):
  %h = pebble.linear %tile, %w activation <relu> : ...
  %y_tile = pebble.linear %h, %v : ...
  pebble.yield %y_tile : tensor<?x2xf32>
}
```

Row-wise are layers, activations, softmax, normalisations, means, concat and split of features, and arithmetic of values
with the same rows or with constants that have one entry a feature (inside a tile these are of rank 1). A reshape that
only merges or splits leading axes does nothing inside a tile. Layers that read each other's codes have tiles of bytes
of their own, with what rounds their input. A step of a scan is a tile of its own. Transposes, other reshapes, concat
and split, and arithmetic that broadcasts over rows stay outside. Which ops come together: see
`redpebble.passes.analysis.clusters`.

A width is left out where a column is predicted to take longer than in narrower tiles, its linear layers and its way in
and out, which happens when few connections are left and a wide tile is mostly the moving of its values. Tiles of 48 are
there only where they are faster than the widest ones. Dense kernels do as many rows as there are: further widths are
there where a number of rows takes less time by them. So are the widths of tiles of rows, in which layers without a
kernel for several rows are done row by row. Without a layer, rows that are not short have tiles of one row alone, which
no way in or out transposes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from ...dialect.attributes.codes import code_tensor, codes_in
from ...dialect.attributes.kernels import KernelAttr
from ...dialect.attributes.schedule import ScheduleAttr
from ...dialect.ops.axis_maps import RowMajor, RowWise, axis_map_of
from ...dialect.ops.constants import ConstantOp
from ...dialect.ops.elementwise import ConvertOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.movement import INFERRED, ReshapeOp, TargetShapeAttr
from ...dialect.ops.recurrences import ScanOp
from ...dialect.ops.regions import YieldOp
from ...dialect.ops.tile import TileOp, tile_type
from ...dialect.ops.tile_chain import code_chains
from ...dialect.provenance import copy_provenance, node_name
from ...dialect.shape_inference import result_shapes
from ...dialect.symbolic_sizes import Size
from ...dialect.tensors import DYNAMIC, f32_tensor, shape_of
from ...kernels.families import takes_any_rows
from ...kernels.tile_costs import boundary_us
from ...kernels.tile_widths import BYTE_WIDTHS, REPLACING, TILE_WIDTHS, WIDTHS, widths_in_use
from ..analysis.clusters import boundary_of, clusters_of
from ..analysis.dominance import moving_ops
from ..analysis.layer_times import kernel_us, rows_at
from ..analysis.per_feature_constants import entries_per_feature
from ..analysis.rowwise import Rows
from ..analysis.tile_features import boundary_features
from ..rewriting.erase_unused import erase_unused
from ..rewriting.outline import computing_ops, outline

# Build the tile that a cluster of row-wise ops becomes.


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
        shape, codes = (*shape_of(inputs[0])[:-1], shape_of(output)[-1]), codes_in(output.type)
        return 0, f32_tensor(shape) if codes is None else code_tensor(codes, shape)

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


WORTH_REPLACING: Final = 0.97
"""Share of the time of a column in the widest tiles below which narrower ones, more of them, take their place."""

LEAST_US: Final = 2.0
"""Time of the widest tile from which on further widths pay: each costs a call some 20 ns to tell apart."""

LEAST_OF_ROWS: Final = 256
"""Features that come in and go out from which on tiles without a layer are rows: these are not transposed."""

ABOUT_EQUAL: Final = 1.1
"""Ratio to the least time of a column up to which the widest tiles are preferred: they read weights least often. Tiles
of 8 columns that were predicted to take 2 % less than one of 64 have taken 1.4 times as long."""


@dataclass(frozen=True)
class FormTiles(ModulePass):
    """Move row-wise ops into tiles."""

    name = "pebble-form-tiles"

    widths: tuple[int, ...] = ()
    """Batch columns of a tile, ascending; by themselves those of `WIDTHS` that the linear layers make worth it."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        with moving_ops(self.name, op) as functions:
            ScheduleAttr(self.widths or WIDTHS)  # refuses widths even where there is no tile
            for func in functions:
                _refuse_unknown(func)
                rows = Rows.of(func)
                for scan in [found for found in func.walk() if isinstance(found, ScanOp)]:
                    _form_tiles(scan.body.block, _rows_of_step(scan, rows), self.widths)
                _form_tiles(func.body.block, rows, self.widths)
            erase_unused(op.body)


def worthwhile_widths(ops: Sequence[Operation]) -> tuple[int, ...]:
    """Return the widths at which a column takes less time than in narrower tiles, as far as times are known."""
    kernels = [op.kernel for op in ops if isinstance(op, LinearOp) and op.kernel is not None]
    boundary = boundary_features(ops)
    if boundary >= LEAST_OF_ROWS and not any(isinstance(op, LinearOp) for op in ops):
        return WIDTHS[:1]
    columns = {width: _column_us(kernels, boundary, width) for width in WIDTHS}
    kept: list[int] = []
    fastest = float("inf")
    for width, column in columns.items():
        if width == REPLACING and not 0 < column < WORTH_REPLACING * columns[WIDTHS[-1]]:
            continue
        if column < fastest or not kept:
            kept.append(width)
            fastest = column or fastest
    if WIDTHS[-1] not in kept and 0 < columns[WIDTHS[-1]] <= ABOUT_EQUAL * fastest:
        kept.append(WIDTHS[-1])
    further = [
        width
        for width in TILE_WIDTHS
        if width == REPLACING
        or rows_at(kernels, width)
        or all(takes_any_rows(kernel.family_at(width)) for kernel in kernels)
    ]
    return _with_further(kept, {width: _column_us(kernels, boundary, width) for width in (*kept, *further)})


def _with_further(kept: Sequence[int], columns: Mapping[int, float]) -> tuple[int, ...]:
    """Return widths, and of all those of `columns` the others by which a number of rows takes less time."""
    if not all(columns[width] for width in kept) or kept[-1] * columns[kept[-1]] < LEAST_US:
        return tuple(kept)
    least = min(column for column in columns.values() if column)
    widest = max(width for width, column in columns.items() if 0 < column <= ABOUT_EQUAL * least)
    widths = sorted(width for width in columns if width <= widest and columns[width])
    used = widths_in_use({width: width * columns[width] for width in widths})
    return tuple(width for width in widths if width in used)


def _column_us(kernels: Sequence[KernelAttr], boundary: int, width: int) -> float:
    """Return the time of a column in tiles of `width`; 0 where that of a layer is not known, or there is no layer."""
    of_rows = rows_at(kernels, width)
    known = [time for kernel in kernels if (time := kernel_us(kernel, width, of_rows=of_rows)) is not None]
    if not known or len(known) < len(kernels):
        return 0.0
    return (sum(known) + boundary_us(boundary, width, of_rows=of_rows)) / width


def _round_for_each(block: Block) -> None:
    """Let each layer have a rounding of its own, which runs in its tile."""
    for op in [op for op in block.ops if isinstance(op, ConvertOp) and op.rounds]:
        for use in list(op.result.uses)[1:]:
            made = op.clone()
            Rewriter.insert_op(made, InsertPoint.before(op))
            use.operation.operands[use.index] = made.result


def _refuse_unknown(func: FuncOp) -> None:
    for op in computing_ops(func.body.block):
        if op.get_trait(RowWise) is None and op.get_trait(RowMajor) is None and not isinstance(op, TileOp):
            raise VerifyException(f"{_described(op)} runs neither in a tile nor outside")


def _described(op: Operation) -> str:
    return f"node {node_name(op)!r}: {op.name}" if node_name(op) else op.name


def _rows_of_step(scan: ScanOp, outside: Rows) -> Rows:
    """Return the rows of the values in the body of a scan: there are as many everywhere."""
    shapes = dict(outside.shapes)
    for argument in scan.body.block.args:
        shapes[argument] = (Size.symbol("%rows of a step"), *(Size.known(size) for size in shape_of(argument)[1:]))
    for op in scan.body.block.ops:
        shapes.update(zip(op.results, result_shapes(op, shapes), strict=True))
    return Rows(shapes)


def _form_tiles(block: Block, rows: Rows, widths: tuple[int, ...]) -> None:
    _round_for_each(block)
    ops = computing_ops(block)
    counts = {op: count for op in ops if (count := rows.rowwise_count(op)) is not None}
    # no other op has the rows of a chain
    chains = {op: Size.symbol(f"%codes {index}") for index, one in enumerate(code_chains(ops)) for op in one.ops}
    counts = {op: chains.get(op, count) for op, count in counts.items()}
    for op in ops:
        only_in_tiles = op.get_trait(RowWise) is not None and op.get_trait(RowMajor) is None
        if isinstance(op, LinearOp) and op.finds_codes:
            continue
        if only_in_tiles and op not in counts:
            raise VerifyException(f"{_described(op)} needs a known last axis and constant parameters")
    builder = TileBuilder(rows)

    def tile(members: Sequence[Operation]) -> list[Operation]:
        found = BYTE_WIDTHS if members[0] in chains else widths or worthwhile_widths(members)
        return builder.build(members, ScheduleAttr(found))

    outline(block, clusters_of(ops, counts), tile)
