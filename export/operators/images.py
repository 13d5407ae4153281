"""Layers on images: Conv with its weight as the operator wants it, pooling, Resize."""

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from types import MappingProxyType
from typing import Final

import onnx_ir as ir
from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.attributes.resampling import OUTSIDE
from ...dialect.ops.images import Conv2dOp, Depthwise2dOp, Interleave2dOp, Pool2dOp, Resample2dOp, WindowOp, image_shape
from ...dialect.tensors import shape_of
from ..writing.node_builder import Emitter, NodeBuilder
from .elementwise import emit_activation


def emit_conv2d(op: Conv2dOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Conv of a weight [O, C, kh, kw], Add for a residual, the activation's nodes."""
    inputs, outputs = shape_of(op.weight)
    taps = spatial(op, op.window.kernel_size)
    shape = (outputs, inputs // len(op.window.taps), *taps)
    x = builder.operand(op.x)
    if op.is_rounded:
        x = emit_activation(ActivationAttr("bfloat16"), x, builder)
    value = _conv(builder, op, x, _weight(op.weight, shape, builder), 1)
    if op.residual is not None:
        value = builder.node("Add", value, builder.operand(op.residual))
    if op.activation is not None:
        value = emit_activation(op.activation, value, builder)
    return (value,)


def emit_depthwise2d(op: Depthwise2dOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Conv with a group for each channel, the activation's nodes."""
    channels = shape_of(op.weight)[1]
    shape = (channels, 1, *spatial(op, op.window.kernel_size))
    value = _conv(builder, op, builder.operand(op.x), _weight(op.weight, shape, builder), channels)
    return (value if op.activation is None else emit_activation(op.activation, value, builder),)


def pooled(op: Pool2dOp, x: ir.Value, builder: NodeBuilder) -> ir.Value:
    """Return the pooling of floats `x`."""
    attributes = {"kernel_shape": spatial(op, op.window.kernel_size), **window_attributes(op)}
    dilations = attributes.pop("dilations")
    if op.kind.data == "max":
        return builder.node("MaxPool", x, **attributes, dilations=dilations)
    included = int(op.kind.data == "average_with_pads")
    return builder.node("AveragePool", x, **attributes, count_include_pad=included)


def emit_resample2d(op: Resample2dOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Gather along rows and along columns, for each tap; Pad before it where there is anything else than pixels."""
    value, rank = builder.operand(op.x), len(shape_of(op.x))
    extents = image_shape(op.x)[2:]
    for axis, (resampling, extent) in enumerate(zip((op.rows, op.columns), extents, strict=True), start=rank - 2):
        if axis == 1:
            continue  # images of one row have no axis for it
        taps = resampling.taps
        if any(OUTSIDE in tap.indices for tap in taps):
            ends = [0] * (2 * rank)
            ends[rank + axis] = 1
            value = builder.node("Pad", value, builder.integers(ends), builder.scalar(op.fill.value.data))
        parts: list[ir.Value] = []
        for tap in taps:
            part = builder.node("Gather", value, builder.integers((tap.indices % (extent + 1)).tolist()), axis=axis)
            if len(taps) > 1:
                shares = builder.integers([-1] + [1] * (rank - 1 - axis))
                part = builder.node("Mul", part, builder.node("Reshape", builder.floats(tap.shares.tolist()), shares))
            parts.append(part)
        value = reduce(partial(builder.node, "Add"), parts)
    return (value,)


def emit_interleave2d(op: Interleave2dOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Reshape, Transpose and Reshape; Slice where something is cut off."""
    (rows, columns), rank, value = op.parts, len(shape_of(op.x)), builder.operand(op.x)
    (_, channels, *extents), (_, _, height, width) = image_shape(op.result), image_shape(op.x)
    order = (channels, rows, columns) if op.is_together else (rows, columns, channels)
    apart = builder.node("Reshape", value, builder.integers([0, *order, height, width]))
    first = 1 if op.is_together else 3
    row, column = (2, 3) if op.is_together else (1, 2)
    turned = builder.node("Transpose", apart, perm=(0, first, 4, row, 5, column))
    whole = [0, channels, rows * height, columns * width]
    result = builder.node("Reshape", turned, builder.integers(whole if rank == 4 else [*whole[:2], whole[3]]))
    if extents != whole[2:]:
        last, places = (extents, [2, 3]) if rank == 4 else (extents[1:], [2])
        cut = (builder.integers([0] * len(last)), builder.integers(last), builder.integers(places))
        result = builder.node("Slice", result, *cut)
    return (result,)


def _conv(builder: NodeBuilder, op: Conv2dOp | Depthwise2dOp, x: ir.Value, weight: ir.Value, groups: int) -> ir.Value:
    inputs = [x, weight]
    if op.bias is not None:
        inputs.append(builder.operand(op.bias))
    return builder.node("Conv", *inputs, group=groups, **window_attributes(op))


def window_attributes(op: WindowOp) -> dict[str, list[int]]:
    """Return strides, pads and dilations as attributes."""
    top, left, bottom, right = op.window.pad_sizes
    pads = [top, left, bottom, right] if len(shape_of(op.x)) == 4 else [left, right]
    return {"strides": spatial(op, op.window.stride), "pads": pads, "dilations": spatial(op, op.window.dilations)}


def spatial(op: WindowOp, numbers: Sequence[int]) -> list[int]:
    """Return the numbers of rows and columns: the latter alone where images have one row."""
    return list(numbers)[4 - len(shape_of(op.x)) :]


def _weight(value: SSAValue, shape: tuple[int, ...], builder: NodeBuilder) -> ir.Value:
    """Return a weight [inputs, outputs] in the shape [outputs, ...]."""
    matrix, transposed = builder.weight(value)
    if not transposed:
        matrix = builder.node("Transpose", matrix, perm=(1, 0))
    return builder.node("Reshape", matrix, builder.integers(shape))


IMAGES_EMITTERS: Final[Mapping[type[Operation], Emitter]] = MappingProxyType(
    {
        Depthwise2dOp: emit_depthwise2d,
        Interleave2dOp: emit_interleave2d,
        Resample2dOp: emit_resample2d,
    }
)
