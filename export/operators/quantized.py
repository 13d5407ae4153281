"""Quantized layers in standard operators: products between DequantizeLinear and QuantizeLinear, or of integers.

```
q = QuantizeLinear(x, xs, xz)
y = Gemm(DequantizeLinear(q, xs, xz), DequantizeLinear(w, ws), DequantizeLinear(b, xs ws))
y = Mul(Cast(Add(MatMulInteger(q, w, xz), b)), xs ws)
```

Of the first y, with QuantizeLinear behind it, a runtime that knows quantized layers makes one operator of integers,
as onnxruntime makes QGemm, QLinearMatMul and QLinearConv. Layers are written as the second one where it would not.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from xdsl.ir import BlockArgument, Operation, SSAValue

from ...dialect.attributes.codes import CodesAttr, codes_in
from ...dialect.ops.constants import constant_array
from ...dialect.ops.elementwise import ConvertOp
from ...dialect.ops.foreign import ForeignOp
from ...dialect.ops.images import Conv2dOp, Pool2dOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.quantized_layers import QuantizedLayer
from ...dialect.ops.sparse_network import SparseNetworkOp
from ...dialect.tensors import shape_of
from ...foundation.rounded_inverses import factors_of
from ..writing.node_builder import Emitter, NodeBuilder
from .byte_weights import IntegerMatrix, Window
from .elementwise import emit_activation
from .images import emit_conv2d, pooled

AXES_SINCE: Final = 13
"""The opset from which DequantizeLinear has a scale an output."""


def emit_convert(op: ConvertOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """QuantizeLinear or DequantizeLinear."""
    value, codes = builder.operand(op.x), written_codes(op.result if op.rounds else op.x)
    assert codes is not None
    return (_codes(value, codes.scale, codes, builder) if op.rounds else _floats(value, codes, builder),)


def emit_linear_on_codes(op: LinearOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """A layer that takes codes, and yields them where it is rounded."""
    value, layer = builder.operand(op.x), op.on_codes
    if op.finds_codes:
        return (_activated(layer, dynamic_sums(layer, value, None, builder), builder),)
    return (_emitted(op, None, value, builder),)


def _emitted(op: LinearOp | Conv2dOp, window: Window | None, value: ir.Value, builder: NodeBuilder) -> ir.Value:
    """Return the results of a layer of codes that are given."""
    codes, following = written_codes(op.x), written_codes(op.result)
    assert codes is not None
    layer = op.on_codes._replace(codes=codes)
    return _Emission(layer, following, len(shape_of(op.x)), window, builder).emit(value)


def written_codes(value: SSAValue) -> CodesAttr | None:
    """Return the codes of a value in a file: unsigned, for which runtimes have kernels, unless others read them."""
    codes = codes_in(value.type)
    ends = isinstance(value, BlockArgument) or isinstance(value.owner, ForeignOp | SparseNetworkOp)
    ends = ends or any(not isinstance(use.operation, LinearOp | Conv2dOp | Pool2dOp | ConvertOp) for use in value.uses)
    return codes if codes is None or ends else _unsigned(codes)


def emit_convolution(op: Conv2dOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """A convolution of floats, or the same as a linear layer for one on codes, whose weight is [O, C, kh, kw]."""
    if op.codes is None:
        return emit_conv2d(op, builder)
    window, value = Window.of(op), builder.operand(op.x)
    if op.finds_codes:
        return (_activated(op.on_codes, dynamic_sums(op.on_codes, value, window, builder), builder),)
    return (_emitted(op, window, value, builder),)


def emit_pooling(op: Pool2dOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """A pooling of floats, or of those of codes: runtimes that know codes find the largest among bytes."""
    codes, x = written_codes(op.x), builder.operand(op.x)
    if codes is None:
        return (pooled(op, x, builder),)
    return (_codes(pooled(op, _floats(x, codes, builder), builder), codes.scale, codes, builder),)


class _Emission(NamedTuple):
    """A layer with given scales, the codes that its results are rounded to, and where its nodes go."""

    layer: QuantizedLayer
    following: CodesAttr | None
    rank: int
    """The rank of its inputs."""
    window: Window | None
    builder: NodeBuilder

    def emit(self, codes: ir.Value) -> ir.Value:
        """Add the nodes of the layer, and return its results, as codes where they are rounded."""
        scales, following = self._scales_of_weight(), self.following
        step = 1.0 if following is None else following.scale
        if scales is not None:
            value = self._product(codes, scales)
        else:
            in_steps = following if self.layer.rounds_sums else None
            value = scaled_sums(self.layer, codes, in_steps, self.window, self.builder)
            step = step if in_steps is None else 1.0
        value = _activated(self._saturated, value, self.builder)
        return value if following is None else _codes(value, step, following, self.builder)

    @property
    def _saturated(self) -> QuantizedLayer:
        """The layer without a relu that its codes make by their least one."""
        falls = self.following is not None and self.following.zero == self.following.least and self.layer.rounds_sums
        return self.layer._replace(activation=None) if falls else self.layer

    def _scales_of_weight(self) -> NDArray[np.float32] | None:
        """Return the scale of each output by which a product of floats is the layer; None where none would be fused.

        That is where codes are signed, relu stands before codes that begin below 0, a convolution is not rounded at
        once, or a bias is added to rows of rank 3.
        """
        activation = self._saturated.activation
        signed = any(one is not None and one.kind != "u8" for one in (self.layer.codes, self.following))
        if signed or (self.following is not None and activation is not None and self.layer.rounds_sums):
            return None
        if self.window is not None and (self.following is None or activation is not None):
            return None
        multiplier, bias = constant_array(self.layer.multiplier), self.layer.added
        if multiplier is None or (self.window is None and self.rank > 2 and np.any(bias)):
            return None
        scales = factors_of(multiplier, self.layer.codes.scale)
        one = scales is None or not np.any(scales != scales[:1])
        return scales if one or self.builder.opset >= AXES_SINCE else None

    def _product(self, codes: ir.Value, scales: NDArray[np.float32]) -> ir.Value:
        """Return the product of floats, with its bias if there is one."""
        builder, layer, attributes = self.builder, self.layer, {} if self.window is None else self.window.attributes
        x, bias = _floats(codes, layer.codes, builder), layer.added
        weight = IntegerMatrix.of(layer.weight, self.window, builder)
        values, zero = weight.codes(builder, self.window, signed=weight.is_signed)
        if not zero.ndim and not np.any(scales != scales[:1]):
            scales = scales.reshape(-1)[:1].reshape(())
        step = builder.initializers.add_part(layer.multiplier, "scale", scales)
        zeros = zero if zero.shape == scales.shape else zero.repeat(scales.size)
        weight_zero = builder.initializers.literal(zeros)
        axis = {"axis": 1 if self.window is None else 0} if scales.ndim else {}
        w = builder.node("DequantizeLinear", values, step, weight_zero, **axis)
        if layer.bias is None or not np.any(bias):
            return builder.node("MatMul" if self.window is None else "Conv", x, w, **attributes)
        integers = builder.node("Cast", builder.operand(layer.bias), to=int(ir.DataType.INT32))
        steps = builder.node("Mul", step, builder.scalar(layer.codes.scale))
        added = builder.node("DequantizeLinear", integers, steps, **({"axis": 0} if scales.ndim else {}))
        return builder.node("Gemm" if self.window is None else "Conv", x, w, added, **attributes)


def _unsigned(codes: CodesAttr) -> CodesAttr:
    return CodesAttr("u8", codes.scale, codes.unsigned_zero)


def _codes(value: ir.Value, step: float, codes: CodesAttr, builder: NodeBuilder) -> ir.Value:
    """Round values, which are multiples of a step, to codes."""
    return builder.node("QuantizeLinear", value, builder.scalar(step), zero_of(codes, builder))


def _floats(value: ir.Value, codes: CodesAttr, builder: NodeBuilder) -> ir.Value:
    return builder.node("DequantizeLinear", value, builder.scalar(codes.scale), zero_of(codes, builder))


def _activated(layer: QuantizedLayer, value: ir.Value, builder: NodeBuilder) -> ir.Value:
    return value if layer.activation is None else emit_activation(layer.activation, value, builder)


# Products of integers: MatMulInteger or ConvInteger of codes and a weight, and the dequantization of their sums.


def scaled_sums(
    layer: QuantizedLayer, codes: ir.Value, steps_of: CodesAttr | None, window: Window | None, builder: NodeBuilder
) -> ir.Value:
    """Return the results of a layer before its activation, in steps of some codes where they are given.

    Sums that are rounded by one multiplication are steps of the next codes before they are rounded, so that bytes are
    those of onnxruntime's integer kernels: a product that is divided afterwards may be another float.
    """
    sums = _sums(layer, codes, zero_of(layer.codes, builder), window, builder)
    if layer.bias is not None and np.any(layer.added):
        bias = builder.node("Cast", _by_output(layer.bias, window, builder), to=int(ir.DataType.INT32))
        sums = builder.node("Add", sums, bias)
    multiplier = _multiplier(layer, window, builder)
    if steps_of is not None:
        multiplier = builder.node("Div", multiplier, builder.scalar(steps_of.scale))
    return builder.node("Mul", builder.node("Cast", sums, to=int(ir.DataType.FLOAT)), multiplier)


def dynamic_sums(layer: QuantizedLayer, value: ir.Value, window: Window | None, builder: NodeBuilder) -> ir.Value:
    """Return the same of a layer whose codes are found at each call."""
    codes, scale, zero = builder.parts("DynamicQuantizeLinear", [value], 3)
    sums = builder.node("Cast", _sums(layer, codes, zero, window, builder), to=int(ir.DataType.FLOAT))
    values = builder.node("Mul", sums, builder.node("Mul", scale, _multiplier(layer, window, builder)))
    if layer.bias is None or not np.any(layer.added):
        return values
    return builder.node("Add", values, _by_output(layer.bias, window, builder))


def zero_of(codes: CodesAttr, builder: NodeBuilder) -> ir.Value:
    """Return the zero of codes that are given."""
    unsigned = codes.kind == "u8"
    return builder.initializers.literal(np.array(codes.zero, np.uint8) if unsigned else np.array(codes.zero, np.int8))


def _multiplier(layer: QuantizedLayer, window: Window | None, builder: NodeBuilder) -> ir.Value:
    """Return the multiplier of each output, or one where it is the same for all, as runtimes are faster with one."""
    array = constant_array(layer.multiplier)
    if array is None or np.any(array != array[:1]):
        return _by_output(layer.multiplier, window, builder)
    return builder.initializers.add_part(layer.multiplier, "scale", array.reshape(-1)[:1].reshape(()))


def _by_output(value: SSAValue, window: Window | None, builder: NodeBuilder) -> ir.Value:
    """Return a number for each output, spread over the pixels of its channel."""
    operand = builder.operand(value)
    return operand if window is None else builder.node("Reshape", operand, builder.integers([-1] + [1] * window.axes))


def _sums(
    layer: QuantizedLayer, codes: ir.Value, zero: ir.Value, window: Window | None, builder: NodeBuilder
) -> ir.Value:
    """Return the products of codes less their zero, before the bias."""
    weight = IntegerMatrix.of(layer.weight, window, builder)
    if window is not None:
        return _convolution_sums(weight, codes, zero, window, builder)
    values, weight_zero = weight.codes(builder, None, signed=weight.is_signed)
    if weight.is_signed:
        return builder.node("MatMulInteger", codes, values, zero)
    return builder.node("MatMulInteger", codes, values, zero, builder.initializers.literal(weight_zero))


def _convolution_sums(
    weight: IntegerMatrix, codes: ir.Value, zero: ir.Value, window: Window, builder: NodeBuilder
) -> ir.Value:
    """Return the same for windows, whose weight has one zero for all outputs: those that are too far apart are cut.

    A runtime may have ConvInteger for unsigned weights alone.
    """
    if not weight.has_one_zero:
        return builder.node(
            "Add", *(_convolution_sums(half, codes, zero, window, builder) for half in weight.halves(builder))
        )
    values, weight_zero = weight.codes(builder, window, signed=False)
    literal = builder.initializers.literal(weight_zero)
    return builder.node("ConvInteger", codes, values, zero, literal, **window.attributes)


QUANTIZED_EMITTERS: Final[Mapping[type[Operation], Emitter]] = MappingProxyType(
    {
        Conv2dOp: emit_convolution,
        Pool2dOp: emit_pooling,
        ConvertOp: emit_convert,
    }
)
