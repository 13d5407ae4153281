"""The batch tile: a region of row-wise layers that run one after the other on a few rows, in a layout of their own."""

from collections.abc import Sequence
from typing import ClassVar

from redpebble.dialect.attributes import LayoutAttr
from redpebble.dialect.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.decisions import ScheduleAttr
from redpebble.dialect.tensors import DYNAMIC, f32_tensor, shape_of, shape_text
from xdsl.dialects.builtin import Float32Type, TensorType
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

F32_TENSOR = base(TensorType[Float32Type])


@irdl_op_definition
class YieldOp(IRDLOperation):
    """The results of a tile: `pebble.yield %y : tensor<?x10xf32>`."""

    name = "pebble.yield"

    values = var_operand_def(F32_TENSOR)

    traits = traits_def(IsTerminator(), Pure())
    assembly_format: ClassVar = "$values attr-dict `:` type($values)"

    def __init__(self, values: Sequence[SSAValue]) -> None:
        super().__init__(operands=[values])

    def verify_(self) -> None:
        if not isinstance(self.parent_op(), TileOp):
            raise VerifyException("expected inside a pebble.tile")


@irdl_op_definition
class TileOp(IRDLOperation):
    """A region that runs for a tile of rows after the other.

    All leading axes of operands and results together are the rows; inside, every value is `tensor<?xKxf32>`, some rows
    of K features. Only constants are used from outside.

    ```mlir
    %y = pebble.tile %x layout <feature_major> schedule <layer_by_layer, widths = [16, 64]>
        : (tensor<?x4xf32>) -> tensor<?x2xf32> {
    ^bb0(%tile : tensor<?x4xf32>):
      %h = pebble.linear %tile, %w : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
      pebble.yield %h : tensor<?x2xf32>
    }
    ```
    """

    name = "pebble.tile"

    inputs = var_operand_def(F32_TENSOR)
    layout = prop_def(LayoutAttr)
    schedule = prop_def(ScheduleAttr)
    outputs = var_result_def(F32_TENSOR)
    body = region_def("single_block")

    traits = traits_def(Pure())
    assembly_format: ClassVar = (
        "$inputs `layout` $layout `schedule` $schedule attr-dict `:` functional-type($inputs, $outputs) $body"
    )

    def __init__(
        self, inputs: Sequence[SSAValue], result_types: Sequence[Attribute], schedule: ScheduleAttr, body: Region
    ) -> None:
        super().__init__(
            operands=[inputs],
            result_types=[result_types],
            properties={"layout": LayoutAttr.of("feature_major"), "schedule": schedule},
            regions=[body],
        )

    @staticmethod
    def body_for(inputs: Sequence[SSAValue]) -> Region:
        """Return an empty body whose arguments fit `inputs`."""
        return Region(Block(arg_types=[tile_type(value) for value in inputs]))

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        """The values inside that become the results."""
        last = self.body.block.last_op
        return tuple(last.operands) if isinstance(last, YieldOp) else ()

    def verify_(self) -> None:
        if not isinstance(self.body.block.last_op, YieldOp):
            raise VerifyException("expected a pebble.yield at the end of the body")
        _verify_boundary("argument", self.inputs, self.body.block.args)
        _verify_boundary("result", self.outputs, self.yielded)
        for op in self.body.block.ops:
            for operand in op.operands:
                outside = operand.owner not in (self.body.block, *self.body.block.ops)
                if outside and not isinstance(operand.owner, ConstantOp | SparseConstantOp):
                    raise VerifyException(f"{op.name} in the body uses a value from outside that is no constant")


def tile_type(value: SSAValue) -> Attribute:
    """Return the type inside a tile of a value outside: some rows of its features (a scalar has one feature)."""
    return f32_tensor((DYNAMIC, (shape_of(value) or (1,))[-1]))


def _verify_boundary(word: str, outer: Sequence[SSAValue], inner: Sequence[SSAValue]) -> None:
    if len(outer) != len(inner):
        raise VerifyException(f"{len(inner)} {word}s inside, {len(outer)} outside")
    for index, (outside, inside) in enumerate(zip(outer, inner, strict=True)):
        if inside.type != tile_type(outside):
            raise VerifyException(
                f"{word} {index} is {shape_text(shape_of(inside))} inside and {shape_text(shape_of(outside))} outside"
            )
