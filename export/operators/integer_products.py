"""Products of integers: MatMulInteger or ConvInteger of codes and a weight, and what makes floats of their sums."""

import numpy as np
import onnx_ir as ir
from xdsl.ir import SSAValue

from ...dialect.attributes.codes import CodesAttr
from ...dialect.ops.constants import constant_array
from ...dialect.ops.quantized_layers import QuantizedLayer
from ..writing.node_builder import NodeBuilder
from .byte_weights import IntegerMatrix, Window


def scaled_sums(
    layer: QuantizedLayer, codes: ir.Value, steps_of: CodesAttr | None, window: Window | None, builder: NodeBuilder
) -> ir.Value:
    """Return the results of a layer before its activation, in steps of some codes where they are given.

    Sums that are rounded by one multiplication are steps of the next codes before they are rounded, so that bytes are
    those of onnxruntime's integer kernels: a product that is divided afterwards may be another float.
    """
    sums = _sums(layer, codes, zero_of(layer.codes, builder), window, builder)
    if np.any(constant_array(layer.bias)):
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
    if not np.any(constant_array(layer.bias)):
        return values
    return builder.node("Add", values, _by_output(layer.bias, window, builder))


def zero_of(codes: CodesAttr, builder: NodeBuilder) -> ir.Value:
    """Return the zero of codes that are given."""
    unsigned = codes.kind.data == "u8"
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
