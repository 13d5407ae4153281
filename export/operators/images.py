"""Layers on images: Conv with its weight as the operator wants it, pooling, Resize."""

import onnx_ir as ir
from xdsl.ir import SSAValue

from redpebble.dialect.attributes.window import WindowAttr
from redpebble.dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp, Resize2dOp
from redpebble.dialect.tensors import shape_of
from redpebble.export.operators.elementwise import emit_activation
from redpebble.export.writing.node_builder import NodeBuilder


def emit_conv2d(op: Conv2dOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Conv of a weight [O, C, kh, kw], Add for a residual, the activation's nodes."""
    inputs, outputs = shape_of(op.weight)
    rows, columns = op.window.kernel_size
    shape = (outputs, inputs // (rows * columns), rows, columns)
    value = _conv(builder, op, _weight(op.weight, shape, builder), 1)
    if op.residual is not None:
        value = builder.node("Add", value, builder.operand(op.residual))
    if op.activation is not None:
        value = emit_activation(op.activation, value, builder)
    return (value,)


def emit_depthwise2d(op: Depthwise2dOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Conv with a group for each channel, the activation's nodes."""
    channels = shape_of(op.weight)[1]
    value = _conv(builder, op, _weight(op.weight, (channels, 1, *op.window.kernel_size), builder), channels)
    return (value if op.activation is None else emit_activation(op.activation, value, builder),)


def emit_pool2d(op: Pool2dOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """MaxPool or AveragePool."""
    strides, pads = list(op.window.stride), list(op.window.pad_sizes)
    x, kernel = builder.operand(op.x), list(op.window.kernel_size)
    if op.kind.data == "max":
        dilations = _dilations(op.window)
        return (builder.node("MaxPool", x, kernel_shape=kernel, strides=strides, pads=pads, dilations=dilations),)
    included = int(op.kind.data == "average_with_pads")
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    return (builder.node("AveragePool", x, **attributes, count_include_pad=included),)


def emit_resize2d(op: Resize2dOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Resize to the nearest pixel above and to the left."""
    down, across = op.factors
    scales = builder.floats([1.0, 1.0, float(down), float(across)])
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return (builder.node("Resize", builder.operand(op.x), None, scales, **attributes),)


def _conv(builder: NodeBuilder, op: Conv2dOp | Depthwise2dOp, weight: ir.Value, groups: int) -> ir.Value:
    inputs = [builder.operand(op.x), weight]
    if op.bias is not None:
        inputs.append(builder.operand(op.bias))
    window = op.window
    return builder.node(
        "Conv",
        *inputs,
        group=groups,
        strides=list(window.stride),
        pads=list(window.pad_sizes),
        dilations=_dilations(window),
    )


def _dilations(window: WindowAttr) -> list[int]:
    return [dilation.data for dilation in window.dilations]


def _weight(value: SSAValue, shape: tuple[int, ...], builder: NodeBuilder) -> ir.Value:
    """Return a weight [inputs, outputs] in the shape [outputs, ...]."""
    matrix, transposed = builder.weight(value)
    if not transposed:
        matrix = builder.node("Transpose", matrix, perm=(1, 0))
    return builder.node("Reshape", matrix, builder.integers(shape))
