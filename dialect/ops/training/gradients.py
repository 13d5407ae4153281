"""Gradients of constants: sums over all rows of a call, which only backward passes have."""

from typing import ClassVar

from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ...tensors import (
    DENSE_TENSOR,
    DYNAMIC,
    F32_TENSOR,
    compatible,
    f32_tensor,
    shape_of,
    shape_text,
    size_of,
)
from ..axis_maps import FixedAxes, RowMajor
from ..constants import SparseConstantOp


@irdl_op_definition
class SampledProductOp(IRDLOperation):
    """x^T y where a weight has a connection: x [rows, K], y [rows, N], weight [K, N], result [connections].

    With y the gradient of a linear layer's sums it is the gradient of its weight, output by output as a sparse constant
    stores it; a dense weight has all connections. Elsewhere known as SDDMM.

    ```mlir
    %g = pebble.sampled_product %x, %y, %w
        : (tensor<?x4xf32>, tensor<?x2xf32>, tensor<4x2xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<3xf32>
    ```
    """

    name = "pebble.sampled_product"

    x = operand_def(DENSE_TENSOR)
    y = operand_def(DENSE_TENSOR)
    weight = operand_def(F32_TENSOR)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), FixedAxes("mk, mn, kn -> c", fixed="knc"), RowMajor())
    assembly_format: ClassVar = "$x `,` $y `,` $weight attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, y: SSAValue, weight: SSAValue) -> None:
        super().__init__(operands=[x, y, weight], result_types=[f32_tensor([connection_count(weight)])])

    def verify_(self) -> None:
        x, y, weight = map(shape_of, (self.x, self.y, self.weight))
        if len(weight) != 2 or DYNAMIC in weight:
            raise VerifyException(f"weight {shape_text(weight)}, expected rank 2 and known sizes")
        for name, shape, size in (("x", x, weight[0]), ("y", y, weight[1])):
            if len(shape) != 2 or shape[1] != size:
                raise VerifyException(f"{name} {shape_text(shape)}, expected ?x{size}")
        if x[0] != y[0]:
            raise VerifyException(f"x {shape_text(x)} and y {shape_text(y)} have different rows")
        if shape_of(self.result) != (connection_count(self.weight),):
            expected = connection_count(self.weight)
            raise VerifyException(f"result {shape_text(shape_of(self.result))}, expected {expected}")


@irdl_op_definition
class SumRowsOp(IRDLOperation):
    """Sum over all rows: x [..., rows, N], result [..., N]; the gradient of what is added to every row.

    ```mlir
    %g = pebble.sum_rows %x : (tensor<?x4xf32>) -> tensor<4xf32>
    ```
    """

    name = "pebble.sum_rows"

    x = operand_def(DENSE_TENSOR)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), FixedAxes("...mn -> ...n", fixed="n"), RowMajor())
    assembly_format: ClassVar = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue) -> None:
        super().__init__(operands=[x], result_types=[f32_tensor((*shape_of(x)[:-2], *shape_of(x)[-1:]))])

    def verify_(self) -> None:
        shape = shape_of(self.x)
        if len(shape) < 2 or shape[-1] == DYNAMIC:
            raise VerifyException(f"x {shape_text(shape)}, expected rank 2 or more and a known last axis")
        expected = (*shape[:-2], shape[-1])
        if not compatible(shape_of(self.result), expected):
            raise VerifyException(f"result {shape_text(shape_of(self.result))}, expected {shape_text(expected)}")


def connection_count(weight: SSAValue) -> int:
    """Return the connections of a weight: those stored of a sparse constant, all places of anything else."""
    owner = weight.owner
    return len(owner.weight.rows) if isinstance(owner, SparseConstantOp) else size_of(shape_of(weight))
