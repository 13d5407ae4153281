"""Gradients of constants: sums over all rows of a call, which only backward passes have."""

from typing import ClassVar

from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ...tensors import (
    DENSE_TENSOR,
    F32_TENSOR,
    f32_tensor,
    shape_of,
    shape_text,
    size_of,
)
from ..axis_maps import FixedAxes, PatternOp, RowMajor, result_type
from ..constants import SparseConstantOp


@irdl_op_definition
class SampledProductOp(PatternOp):
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

    traits = traits_def(Pure(), FixedAxes("mk, mn, kn -> c", fixed="knc", known="kn"), RowMajor())
    assembly_format: ClassVar = "$x `,` $y `,` $weight attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, y: SSAValue, weight: SSAValue) -> None:
        super().__init__(operands=[x, y, weight], result_types=[f32_tensor([connection_count(weight)])])

    def verify_(self) -> None:
        result_type(SampledProductOp, *self.operands)
        found, expected = shape_of(self.result), (connection_count(self.weight),)
        if found != expected:
            raise VerifyException(f"expected result {shape_text(expected)}, got {shape_text(found)}")


@irdl_op_definition
class SumRowsOp(PatternOp):
    """Sum over all rows: x [..., rows, N], result [..., N]; the gradient of what is added to every row.

    ```mlir
    %g = pebble.sum_rows %x : (tensor<?x4xf32>) -> tensor<4xf32>
    ```
    """

    name = "pebble.sum_rows"

    x = operand_def(DENSE_TENSOR)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), FixedAxes("...mn -> ...n", fixed="n", known="n"), RowMajor())
    assembly_format: ClassVar = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue) -> None:
        super().__init__(operands=[x], result_types=[result_type(SumRowsOp, x)])


def connection_count(weight: SSAValue) -> int:
    """Return the connections of a weight: those stored of a sparse constant, all places of anything else."""
    owner = weight.owner
    return len(owner.weight.rows) if isinstance(owner, SparseConstantOp) else size_of(shape_of(weight))
