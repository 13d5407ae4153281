"""Layers: the linear layer, normalisations and softmax over the last axis, products of what a call computes.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from typing_extensions import override
from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, StringAttr, f64, i64
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
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
from ..attributes.codes import CODE_TENSOR, CodesAttr, code_tensor
from ..attributes.io_bounds import IoBoundsAttr
from ..attributes.kernels import KernelAttr
from ..attributes.partition import PartitionAttr
from ..attributes.transfers import InstanceBoundAttr
from ..tensors import (
    DENSE_TENSOR,
    F32_TENSOR,
    shape_of,
    shape_text,
)
from .axis_maps import AxisMap, AxisPattern, FixedAxes, PatternOp, RowMajor, RowWise, result_type, with_quick_operands
from .pattern_traits import LayerPatterns
from .quantized_layers import FOUND_CODES, QuantizedLayer, ReadsCodes, verify_codes


@dataclass(frozen=True)
class _LinearAxes(AxisPattern):
    """Rows by themselves, unless the range of all of them has to be known."""

    @override
    def axis_map(self, op: Operation) -> AxisMap:
        known = super().axis_map(op)
        assert isinstance(op, LinearOp)
        return replace(known, whole=frozenset(known.operands[0][:-1])) if op.finds_codes else known


@with_quick_operands
@irdl_op_definition
class LinearOp(ReadsCodes, PatternOp):
    """activation(x weight + bias), row by row: x [..., K], weight [K, N], bias [N], result [..., N].

    A layer of `precision` "bf16" rounds x and weight to bfloat16, and sums products in f32; kernels without
    instructions for that may leave x and weight as they are. `cut` gives the outputs at which the pieces that threads
    do at the same time begin, and N.

    Where x are codes, weight and bias are integers, held in f32, and the layer is activation(float(sums) times) of the
    integers sums = (code - zero) weight + bias. A result of codes is rounded: without an activation, or with relu, what
    is rounded is float(sums) * (times / scale), as in onnxruntime's integer kernels. `precision` "u8" rounds x to codes
    that are found at each call: their scale multiplies `times`, and the bias are floats that are added to the products.

    ```mlir
    %h = pebble.linear %x, %w bias %b activation <relu>
        : (tensor<?x4xf32>, tensor<4x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
    %y = pebble.linear %q, %v times %m : tensor<3xf32>
        : (tensor<?x2x!pebble.codes<u8 scale 0.05 zero 128>>, tensor<2x3xf32>) -> tensor<?x3xf32>
    ```
    """

    name = "pebble.linear"

    x = operand_def(DENSE_TENSOR | CODE_TENSOR)
    weight = operand_def(F32_TENSOR)
    bias = opt_operand_def(DENSE_TENSOR)
    times = opt_operand_def(DENSE_TENSOR)
    activation = opt_prop_def(ActivationAttr)
    precision = opt_prop_def(StringAttr)
    kernel = opt_prop_def(KernelAttr)
    io_bounds = opt_prop_def(IoBoundsAttr)
    bound = opt_prop_def(InstanceBoundAttr)
    cut = opt_prop_def(DenseArrayBase.constr(i64))
    partition = opt_prop_def(PartitionAttr)
    result = result_def(DENSE_TENSOR | CODE_TENSOR)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure(), _LinearAxes("...k, kn, n, n -> ...n", known="kn"), RowWise(), LayerPatterns())
    assembly_format: ClassVar = (
        "$x `,` $weight (`bias` $bias^)? (`times` $times^ `:` type($times))? (`activation` $activation^)? "
        "(`precision` $precision^)? (`kernel` $kernel^)? (`io_bounds` $io_bounds^)? (`bound` $bound^)? (`cut` $cut^)? "
        "(`partition` $partition^)? attr-dict "
        "`:` `(` type($x) `,` type($weight) (`,` type($bias)^)? `)` `->` type($result)"
    )

    def __init__(
        self,
        x: SSAValue,
        weight: SSAValue,
        bias: SSAValue | None = None,
        activation: ActivationAttr | None = None,
        times: SSAValue | None = None,
        codes: CodesAttr | None = None,
    ) -> None:
        """Make a layer, whose result is rounded to `codes`, if they are given."""
        made = result_type(LinearOp, x, weight, bias, times)
        super().__init__(
            operands=[x, weight, bias, times],
            properties={"activation": activation},
            result_types=[made if codes is None else code_tensor(codes, made.get_shape())],
        )

    @staticmethod
    def of_codes(x: SSAValue, layer: QuantizedLayer, output: CodesAttr | None = None) -> "LinearOp":
        """Return a layer on codes, whose result is rounded to the codes `output`, if they are given."""
        made = LinearOp(x, layer.weight, layer.bias, layer.activation, layer.multiplier, output)
        made.precision = StringAttr(FOUND_CODES) if layer.codes.is_dynamic else None
        return made

    def verify_(self) -> None:
        super().verify_()
        borders, outputs = self.borders, shape_of(self.weight)[1]
        if borders and (borders[0] != 0 or borders[-1] != outputs or list(borders) != sorted(borders)):
            raise VerifyException(f"expected ascending outputs from 0 to {outputs} to cut at, got {list(borders)}")
        if self.partition is not None and len(self.partition.owners) != outputs:
            raise VerifyException(f"expected owners of {outputs} outputs, got {len(self.partition.owners)}")
        verify_codes(self)

    @property
    def borders(self) -> tuple[int, ...]:
        """The first output of each piece, and the number of outputs; nothing where the layer is one piece."""
        return tuple(int(border) for border in self.cut.get_values()) if self.cut is not None else ()


def float_layers(ops: Iterable[Operation]) -> Iterator[LinearOp]:
    """Yield the linear layers among operations, those on codes left out."""
    return (op for op in ops if isinstance(op, LinearOp) and op.times is None)


class NormalizedOp(PatternOp):
    """One operand, seen over its last axis; the result has its shape."""

    x = operand_def(DENSE_TENSOR)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), AxisPattern("...k -> ...k", whole="k", known="k"), RowWise())
    assembly_format: ClassVar = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue) -> None:
        super().__init__(operands=[x], result_types=[x.type])


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
class LayerNormOp(PatternOp):
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

    traits = traits_def(Pure(), AxisPattern("...k, k, k -> ...k", whole="k", known="k"), RowWise())
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


@irdl_op_definition
class RmsNormOp(PatternOp):
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

    traits = traits_def(Pure(), AxisPattern("...k, k -> ...k", whole="k", known="k"), RowWise())
    assembly_format: ClassVar = "$x `scale` $scale `epsilon` $epsilon attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, scale: SSAValue, epsilon: float) -> None:
        super().__init__(
            operands=[x, scale],
            properties={"epsilon": FloatAttr(epsilon, f64)},
            result_types=[x.type],
        )


@irdl_op_definition
class BatchNormOp(PatternOp):
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


@irdl_op_definition
class ReduceMeanOp(PatternOp):
    """The mean over the last axis, which stays with size 1.

    ```mlir
    %y = pebble.reduce_mean %x : (tensor<?x4xf32>) -> tensor<?x1xf32>
    ```
    """

    name = "pebble.reduce_mean"

    x = operand_def(DENSE_TENSOR)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), AxisPattern("...k -> ...m", known="k"), RowWise())
    assembly_format: ClassVar = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue) -> None:
        super().__init__(operands=[x], result_types=[result_type(ReduceMeanOp, x)])

    def verify_(self) -> None:
        super().verify_()
        if shape_of(self.x)[-1] == 0:
            raise VerifyException(f"expected x with values along the last axis, got {shape_text(shape_of(self.x))}")


@irdl_op_definition
class BatchMatmulTransposeBOp(PatternOp):
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

    traits = traits_def(Pure(), FixedAxes("...mk, ...nk -> ...mn", fixed="mnk", known="k"), RowMajor())
    assembly_format: ClassVar = "$x `,` $y attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, y: SSAValue) -> None:
        super().__init__(operands=[x, y], result_types=[result_type(BatchMatmulTransposeBOp, x, y)])
