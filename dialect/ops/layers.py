"""Layers: the linear layer, normalisations and softmax over the last axis, products of what a call computes."""

from typing import ClassVar, Final

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, StringAttr, f64, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..attributes.activations import ActivationAttr
from ..attributes.io_bounds import IoBoundsAttr
from ..attributes.kernels import KernelAttr
from ..attributes.partition import PartitionAttr
from ..attributes.transfers import InstanceBoundAttr
from ..tensors import (
    DENSE_TENSOR,
    DYNAMIC,
    F32_TENSOR,
    Shape,
    compatible,
    f32_tensor,
    shape_of,
    shape_text,
    verify_bias,
)
from .axis_maps import AxisPattern, FixedAxes, RowMajor, RowWise
from .pattern_traits import LayerPatterns

BFLOAT: Final = "bf16"
"""The precision of a layer whose inputs and weights are rounded."""


@irdl_op_definition
class LinearOp(IRDLOperation):
    """activation(x weight + bias), row by row: x [..., K], weight [K, N], bias [N], result [..., N].

    A layer of `precision` "bf16" rounds x and weight to bfloat16, and sums products in f32; kernels without
    instructions for that may leave x and weight as they are. `cut` gives the outputs at which the pieces that threads
    do at the same time begin, and N.

    ```mlir
    %h = pebble.linear %x, %w bias %b activation <relu>
        : (tensor<?x4xf32>, tensor<4x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
    ```
    """

    name = "pebble.linear"

    x = operand_def(DENSE_TENSOR)
    weight = operand_def(F32_TENSOR)
    bias = opt_operand_def(DENSE_TENSOR)
    activation = opt_prop_def(ActivationAttr)
    precision = opt_prop_def(StringAttr)
    kernel = opt_prop_def(KernelAttr)
    io_bounds = opt_prop_def(IoBoundsAttr)
    bound = opt_prop_def(InstanceBoundAttr)
    cut = opt_prop_def(DenseArrayBase.constr(i64))
    partition = opt_prop_def(PartitionAttr)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), AxisPattern("...k, kn, n -> ...n"), RowWise(), LayerPatterns())
    assembly_format: ClassVar = (
        "$x `,` $weight (`bias` $bias^)? (`activation` $activation^)? (`precision` $precision^)? "
        "(`kernel` $kernel^)? (`io_bounds` $io_bounds^)? (`bound` $bound^)? (`cut` $cut^)? "
        "(`partition` $partition^)? attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self,
        x: SSAValue,
        weight: SSAValue,
        bias: SSAValue | None = None,
        activation: ActivationAttr | None = None,
    ) -> None:
        shape = (*shape_of(x)[:-1], shape_of(weight)[1])
        super().__init__(
            operands=[x, weight, bias],
            properties={"activation": activation},
            result_types=[f32_tensor(shape)],
        )

    def verify_(self) -> None:
        shape, weight = shape_of(self.x), shape_of(self.weight)
        if len(weight) != 2:
            raise VerifyException(f"weight of rank {len(weight)}, expected 2")
        if DYNAMIC in weight:
            raise VerifyException(f"weight {shape_text(weight)}, expected known sizes")
        if not shape or shape[-1] != weight[0]:
            raise VerifyException(f"input {shape_text(shape)} does not fit weight {shape_text(weight)}")
        verify_bias(self.bias, weight[1])
        if self.precision is not None and self.precision.data != BFLOAT:
            raise VerifyException(f"precision {self.precision.data!r}, accepted is {BFLOAT}")
        expected = (*shape[:-1], weight[1])
        if shape_of(self.result) != expected:
            raise VerifyException(f"result {shape_text(shape_of(self.result))}, expected {shape_text(expected)}")
        borders = self.borders
        if borders and (borders[0] != 0 or borders[-1] != weight[1] or list(borders) != sorted(borders)):
            raise VerifyException(f"cut at {list(borders)}, expected ascending outputs from 0 to {weight[1]}")
        if self.partition is not None and len(self.partition.owners) != weight[1]:
            raise VerifyException(f"owners of {len(self.partition.owners)} outputs, expected {weight[1]}")

    @property
    def is_rounded(self) -> bool:
        """Whether inputs and weights are rounded to bfloat16."""
        return self.precision is not None

    @property
    def borders(self) -> tuple[int, ...]:
        """The first output of each piece, and the number of outputs; nothing where the layer is one piece."""
        return tuple(int(border) for border in self.cut.get_values()) if self.cut is not None else ()


def _verify_rowwise(op: IRDLOperation, *parameters: SSAValue | None) -> None:
    """Check that the first operand has the result's shape, with a known last axis that the parameters match."""
    shape, result = shape_of(op.operands[0]), shape_of(op.results[0])
    if shape != result:
        raise VerifyException(f"result {shape_text(result)}, expected {shape_text(shape)}")
    if not shape or shape[-1] == DYNAMIC:
        raise VerifyException(f"input {shape_text(shape)}, expected a known size of the last axis")
    for parameter in parameters:
        if parameter is not None and not compatible(shape_of(parameter), shape[-1:]):
            raise VerifyException(f"parameter {shape_text(shape_of(parameter))}, expected {shape[-1]}")


class NormalizedOp(IRDLOperation):
    """One operand, seen over its last axis; the result has its shape."""

    x = operand_def(DENSE_TENSOR)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), AxisPattern("...k -> ...k", whole="k"), RowWise())
    assembly_format: ClassVar = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue) -> None:
        super().__init__(operands=[x], result_types=[x.type])

    def verify_(self) -> None:
        _verify_rowwise(self)


@irdl_op_definition
class SoftmaxOp(NormalizedOp):
    """exp(x - max) / sum(exp(x - max)) over the last axis.

    ```mlir
    %y = pebble.softmax %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
    ```
    """

    name = "pebble.softmax"


@irdl_op_definition
class LogSoftmaxOp(NormalizedOp):
    """x - max - log(sum(exp(x - max))) over the last axis.

    ```mlir
    %y = pebble.log_softmax %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
    ```
    """

    name = "pebble.log_softmax"


@irdl_op_definition
class LayerNormOp(IRDLOperation):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the last axis.

    ```mlir
    %y = pebble.layer_norm %x scale %s bias %b epsilon 1.0e-05
        : (tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
    ```
    """

    name = "pebble.layer_norm"

    x = operand_def(DENSE_TENSOR)
    scale = operand_def(DENSE_TENSOR)
    bias = opt_operand_def(DENSE_TENSOR)
    epsilon = prop_def(FloatAttr.constr(f64))
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), AxisPattern("...k, k, k -> ...k", whole="k"), RowWise())
    assembly_format: ClassVar = (
        "$x `scale` $scale (`bias` $bias^)? `epsilon` $epsilon attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self,
        x: SSAValue,
        scale: SSAValue,
        bias: SSAValue | None,
        epsilon: float,
    ) -> None:
        super().__init__(
            operands=[x, scale, bias],
            properties={"epsilon": FloatAttr(epsilon, f64)},
            result_types=[x.type],
        )

    def verify_(self) -> None:
        _verify_rowwise(self, self.scale, self.bias)


@irdl_op_definition
class RmsNormOp(IRDLOperation):
    """x / sqrt(mean(x * x) + epsilon) * scale over the last axis.

    ```mlir
    %y = pebble.rms_norm %x scale %s epsilon 1.0e-05 : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
    ```
    """

    name = "pebble.rms_norm"

    x = operand_def(DENSE_TENSOR)
    scale = operand_def(DENSE_TENSOR)
    epsilon = prop_def(FloatAttr.constr(f64))
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), AxisPattern("...k, k -> ...k", whole="k"), RowWise())
    assembly_format: ClassVar = "$x `scale` $scale `epsilon` $epsilon attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, scale: SSAValue, epsilon: float) -> None:
        super().__init__(
            operands=[x, scale],
            properties={"epsilon": FloatAttr(epsilon, f64)},
            result_types=[x.type],
        )

    def verify_(self) -> None:
        _verify_rowwise(self, self.scale)


@irdl_op_definition
class BatchNormOp(IRDLOperation):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias; each parameter has one entry for every index of axis 1.

    ```mlir
    %y = pebble.batch_norm %x scale %s bias %b mean %m variance %v epsilon 1.0e-05
        : (tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
    ```
    """

    name = "pebble.batch_norm"

    x = operand_def(DENSE_TENSOR)
    scale = operand_def(DENSE_TENSOR)
    bias = operand_def(DENSE_TENSOR)
    mean = operand_def(DENSE_TENSOR)
    variance = operand_def(DENSE_TENSOR)
    epsilon = prop_def(FloatAttr.constr(f64))
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), AxisPattern("bc..., c, c, c, c -> bc..."))
    assembly_format: ClassVar = (
        "$x `scale` $scale `bias` $bias `mean` $mean `variance` $variance `epsilon` $epsilon attr-dict `:` "
        "functional-type(operands, results)"
    )

    def __init__(self, x: SSAValue, parameters: tuple[SSAValue, SSAValue, SSAValue, SSAValue], epsilon: float) -> None:
        super().__init__(
            operands=[x, *parameters],
            properties={"epsilon": FloatAttr(epsilon, f64)},
            result_types=[x.type],
        )

    def verify_(self) -> None:
        shape, result = shape_of(self.x), shape_of(self.result)
        if shape != result:
            raise VerifyException(f"result {shape_text(result)}, expected {shape_text(shape)}")
        if len(shape) < 2:
            raise VerifyException(f"input {shape_text(shape)}, expected rank 2 or more")
        for parameter in self.operands[1:]:
            if not compatible(shape_of(parameter), shape[1:2]):
                raise VerifyException(f"parameter {shape_text(shape_of(parameter))}, expected {shape_text(shape[1:2])}")


@irdl_op_definition
class ReduceMeanOp(IRDLOperation):
    """The mean over the last axis, which stays with size 1.

    ```mlir
    %y = pebble.reduce_mean %x : (tensor<?x4xf32>) -> tensor<?x1xf32>
    ```
    """

    name = "pebble.reduce_mean"

    x = operand_def(DENSE_TENSOR)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), AxisPattern("...k -> ...m"), RowWise())
    assembly_format: ClassVar = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue) -> None:
        super().__init__(operands=[x], result_types=[f32_tensor((*shape_of(x)[:-1], 1))])

    def verify_(self) -> None:
        shape = shape_of(self.x)
        if not shape or shape[-1] in (DYNAMIC, 0):
            raise VerifyException(f"input {shape_text(shape)}, expected a known size of the last axis")
        if shape_of(self.result) != (*shape[:-1], 1):
            raise VerifyException(f"result {shape_text(shape_of(self.result))}, expected the last axis to be 1")


@irdl_op_definition
class BatchMatmulTransposeBOp(IRDLOperation):
    """x y^T for each index of the leading axes: x [..., M, K], y [..., N, K], result [..., M, N]; K is known.

    The leading axes are the same. MLIR's `linalg.batch_matmul_transpose_b` has one of them.

    ```mlir
    %z = pebble.batch_matmul_transpose_b %x, %y : (tensor<?x27x64xf32>, tensor<?x5x64xf32>) -> tensor<?x27x5xf32>
    ```
    """

    name = "pebble.batch_matmul_transpose_b"

    x = operand_def(DENSE_TENSOR)
    y = operand_def(DENSE_TENSOR)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), FixedAxes("...mk, ...nk -> ...mn", fixed="mnk"), RowMajor())
    assembly_format: ClassVar = "$x `,` $y attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, y: SSAValue) -> None:
        super().__init__(operands=[x, y], result_types=[f32_tensor(_product_shape(shape_of(x), shape_of(y)))])

    def verify_(self) -> None:
        expected = _product_shape(shape_of(self.x), shape_of(self.y))
        if not compatible(shape_of(self.result), expected):
            raise VerifyException(f"result {shape_text(shape_of(self.result))}, expected {shape_text(expected)}")


def _product_shape(x: Shape, y: Shape) -> Shape:
    shapes = f"{shape_text(x)} and {shape_text(y)}"
    if not len(x) == len(y) >= 2:
        raise VerifyException(f"operands {shapes}, expected one rank, 2 or more")
    if x[-1] == DYNAMIC or x[-1] != y[-1]:
        raise VerifyException(f"operands {shapes}, expected last axes of one known size")
    if not compatible(x[:-2], y[:-2]):
        raise VerifyException(f"operands {shapes}, expected the same leading axes")
    leading = (one if one != DYNAMIC else other for one, other in zip(x[:-2], y[:-2], strict=True))
    return (*leading, x[-2], y[-2])
