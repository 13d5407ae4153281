"""Quantized layers in standard operators: QuantizeLinear, MatMulInteger, Add, Cast and Mul for each layer."""

from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.images import QuantizedConv2dOp
from redpebble.dialect.ops.quantized_layers import GREATEST_WEIGHT, QuantizedLayer, QuantizedLayersOp
from redpebble.dialect.semantics.quantized import rounds_sums
from redpebble.dialect.tensors import shape_of
from redpebble.export.operators.elementwise import emit_activation
from redpebble.export.operators.images import spatial, window_attributes
from redpebble.export.writing.node_builder import NodeBuilder
from redpebble.sparse.csr import CscMatrix


def emit_quantized_layers(op: QuantizedLayersOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Five nodes a layer and its activation's, two more where the result is rounded, and a division in between.

    Sums that are rounded by one multiplication are steps of the next codes before they are rounded, so that bytes are
    those of onnxruntime's integer kernels: a product that is divided afterwards may be another float.
    """
    value, step = builder.operand(op.x), None if op.reads_bytes else op.codes.data[0].scale
    for layer, following in zip(op.layers, [*op.codes.data[1:], None], strict=False):
        in_steps = following is not None and rounds_sums(layer)
        value = _layer(layer, value, step, following if in_steps else None, builder)
        if layer.activation is not None:
            value = emit_activation(layer.activation, value, builder)
        if following is not None:
            step = 1.0 if in_steps else following.scale
    if op.output is not None:
        zero = _zero(op.output, builder)
        assert step is not None
        value = builder.node("QuantizeLinear", value, builder.scalar(step), zero)
        if not op.yields_bytes:
            value = builder.node("DequantizeLinear", value, builder.scalar(op.output.scale), zero)
    return (value,)


def emit_quantized_conv2d(op: QuantizedConv2dOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """The same with ConvInteger, and numbers for each channel."""
    images = _Images(window_attributes(op), _weight_shape(op), len(shape_of(op.x)) - 2)
    layer, output, codes = op.layer, op.output, op.codes
    if not codes.is_dynamic:
        # a runtime may have ConvInteger for unsigned codes alone
        layer = layer._replace(codes=CodesAttr.of("u8", codes.scale, codes.unsigned_zero))
    in_steps = output is not None and rounds_sums(layer)
    value = _layer(layer, builder.operand(op.x), codes.scale, output if in_steps else None, builder, images)
    if op.activation is not None:
        value = emit_activation(op.activation, value, builder)
    if output is not None:
        zero = _zero(output, builder)
        rounded = builder.node("QuantizeLinear", value, builder.scalar(1.0 if in_steps else output.scale), zero)
        value = builder.node("DequantizeLinear", rounded, builder.scalar(output.scale), zero)
    return (value,)


class _Images(NamedTuple):
    """The attributes of a convolution, the shape of its weight, and the axes behind the channels."""

    attributes: dict[str, list[int]]
    weight_shape: tuple[int, ...]
    axes: int


def _weight_shape(op: QuantizedConv2dOp) -> tuple[int, ...]:
    inputs, outputs = shape_of(op.weight)
    return (outputs, inputs // len(op.window.taps), *spatial(op, op.window.kernel_size))


def _layer(
    layer: QuantizedLayer,
    value: ir.Value,
    step: float | None,
    steps_of: CodesAttr | None,
    builder: NodeBuilder,
    images: _Images | None = None,
) -> ir.Value:
    """Return the values of a layer, in steps of some codes where they are given.

    `step` is that of its inputs; None where these are codes.
    """
    if layer.codes.is_dynamic:
        return _dynamic_layer(layer, value, builder, images)
    zero = _zero(layer.codes, builder)
    codes = value if step is None else builder.node("QuantizeLinear", value, builder.scalar(step), zero)
    sums = _sums(layer, codes, zero, builder, images)
    bias = builder.node("Cast", _parameter(layer.bias, builder, images), to=int(ir.DataType.INT32))
    values = builder.node("Cast", builder.node("Add", sums, bias), to=int(ir.DataType.FLOAT))
    multiplier = _parameter(layer.multiplier, builder, images)
    if steps_of is not None:
        multiplier = builder.node("Div", multiplier, builder.scalar(steps_of.scale))
    return builder.node("Mul", values, multiplier)


def _parameter(value: SSAValue, builder: NodeBuilder, images: _Images | None) -> ir.Value:
    """Return a number for each output, spread over the pixels of its channel."""
    operand = builder.operand(value)
    return operand if images is None else builder.node("Reshape", operand, builder.integers([-1] + [1] * images.axes))


def _dynamic_layer(
    layer: QuantizedLayer, value: ir.Value, builder: NodeBuilder, images: _Images | None = None
) -> ir.Value:
    codes, scale, zero = builder.parts("DynamicQuantizeLinear", [value], 3)
    sums = builder.node("Cast", _sums(layer, codes, zero, builder, images), to=int(ir.DataType.FLOAT))
    values = builder.node("Mul", sums, builder.node("Mul", scale, _parameter(layer.multiplier, builder, images)))
    return builder.node("Add", values, _parameter(layer.bias, builder, images))


def _sums(
    layer: QuantizedLayer, codes: ir.Value, zero: ir.Value, builder: NodeBuilder, images: _Images | None = None
) -> ir.Value:
    """Return the products of codes less their zero, before the bias."""
    least, greatest = _extremes(layer.weight)
    weight = builder.operand(layer.weight)
    if images is not None:
        part = _Part(weight, int(least.min(initial=0)), int(greatest.max(initial=0)))
        return _convolution_sums(part, codes, zero, builder, images)
    if least.min(initial=0) >= -128 and greatest.max(initial=0) <= 127:
        return builder.node("MatMulInteger", codes, builder.node("Cast", weight, to=int(ir.DataType.INT8)), zero)
    # the weights of an output are bytes less a zero
    offset = builder.node("Sub", weight, builder.initializers.literal(least.astype(np.float32)))
    weight_zero = builder.initializers.literal((-least).astype(np.uint8))
    return builder.node(
        "MatMulInteger", codes, builder.node("Cast", offset, to=int(ir.DataType.UINT8)), zero, weight_zero
    )


class _Part(NamedTuple):
    """A weight [inputs, outputs], or part of one, and its least and greatest entry."""

    value: ir.Value
    least: int
    greatest: int


def _convolution_sums(
    weight: _Part, codes: ir.Value, zero: ir.Value, builder: NodeBuilder, images: _Images
) -> ir.Value:
    """Return the same for windows, whose weight has one zero for all outputs: those that are too far apart are cut."""
    if weight.greatest - weight.least > GREATEST_WEIGHT:
        half = builder.node("Floor", builder.node("Mul", weight.value, builder.scalar(0.5)))
        parts = [_Part(half, -128, 127), _Part(builder.node("Sub", weight.value, half), -127, 128)]
        return builder.node("Add", *(_convolution_sums(part, codes, zero, builder, images) for part in parts))
    offset = builder.node("Sub", weight.value, builder.scalar(float(weight.least)))
    turned = builder.node("Transpose", builder.node("Cast", offset, to=int(ir.DataType.UINT8)), perm=(1, 0))
    kernel = builder.node("Reshape", turned, builder.integers(images.weight_shape))
    weight_zero = builder.initializers.literal(np.array(-weight.least, np.uint8))
    return builder.node("ConvInteger", codes, kernel, zero, weight_zero, **images.attributes)


def _zero(codes: CodesAttr, builder: NodeBuilder) -> ir.Value:
    unsigned = codes.kind.data == "u8"
    return builder.initializers.literal(np.array(codes.zero, np.uint8) if unsigned else np.array(codes.zero, np.int8))


def _extremes(value: SSAValue) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the least and the greatest weight of each output, or 0."""
    owner = value.owner
    assert isinstance(owner, ConstantOp | SparseConstantOp)
    sparse = CscMatrix.from_dense(owner.array) if isinstance(owner, ConstantOp) else owner.weight
    least, greatest = (np.zeros(sparse.shape[1], np.int64) for _ in range(2))
    values = sparse.values.astype(np.int64)
    np.minimum.at(least, sparse.columns, values)
    np.maximum.at(greatest, sparse.columns, values)
    return least, greatest
