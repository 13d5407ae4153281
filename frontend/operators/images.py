"""Nodes on images: convolutions, pooling, resizing by whole factors."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from redpebble.dialect.attributes.window import WindowAttr
from redpebble.dialect.ops.images import (
    IMAGE_RANK,
    Conv2dOp,
    Depthwise2dOp,
    ImageLayerOp,
    Pool2dOp,
    Resize2dOp,
)
from redpebble.dialect.tensors import DYNAMIC, shape_of, shape_text
from redpebble.frontend.operators.conversion import Conversion, Converter, NotCovered
from redpebble.frontend.operators.movement import refuse_further_outputs

NEAREST: Final = frozenset(
    {("asymmetric", "floor")}
    | {
        (transform, rounding)
        for transform in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
        for rounding in ("round_prefer_floor", "round_prefer_ceil")
    }
)
"""Ways to find the nearest pixel that, for whole factors, give each pixel as often as all others."""


def _convert_conv(conversion: Conversion) -> Sequence[SSAValue]:
    x, weight, name = _image(conversion), conversion.constant(1), (conversion.input(1), conversion.input(2))
    if weight is None or name[0] is None:
        raise NotCovered("the weight is no constant, accepted is a constant one")
    if weight.ndim != IMAGE_RANK:
        raise NotCovered(f"a weight of rank {weight.ndim}, accepted is 4: images")
    bias = None
    if conversion.has_input(2):
        values = conversion.constant(2)
        if values is None:
            raise NotCovered("the bias is no constant, accepted is a constant one")
        bias = conversion.emit_constant(values, name[1].name or "" if name[1] is not None else "")
    groups, channels = conversion.integer("group", 1), shape_of(x)[1]
    if groups * weight.shape[1] != channels or weight.shape[0] % groups:
        raise NotCovered(f"{channels} channels in {groups} groups, accepted is what weight {weight.shape} has")
    window = _window(conversion, weight.shape[2:], shape_of(x)[2:])
    key, made = name[0].name or "", conversion.emit_constant
    if groups == channels == weight.shape[0] and groups > 1:
        matrix = np.ascontiguousarray(weight.reshape(channels, -1).T)
        return [conversion.emit(Depthwise2dOp(x, made(matrix, key, "depthwise"), bias, window)).result]
    value = made(_matrix(weight, groups), key, f"conv{groups}")
    return [conversion.emit(Conv2dOp(x, value, bias, window)).result]


def _matrix(weight: NDArray[np.float32], groups: int) -> NDArray[np.float32]:
    """Return a weight [O, C / groups, kh, kw] as a matrix [C kh kw, O], zeros between groups."""
    outputs, channels, *window = weight.shape
    taps = int(np.prod(window))
    if groups == 1:
        return np.ascontiguousarray(weight.reshape(outputs, channels * taps).T)
    matrix = np.zeros((groups, channels * taps, groups, outputs // groups), dtype=np.float32)
    parts = weight.reshape(groups, outputs // groups, channels * taps)
    for group in range(groups):
        matrix[group, :, group] = parts[group].T
    return matrix.reshape(groups * channels * taps, outputs)


def _image(conversion: Conversion) -> SSAValue:
    """Return the first input, an image of known channels, height and width.

    Raises:
        NotCovered: it is something else.
    """
    x = conversion.tensor(0)
    shape = shape_of(x)
    if len(shape) != IMAGE_RANK or DYNAMIC in shape[1:]:
        raise NotCovered(f"an input {shape_text(shape)}, accepted is rank 4 with known channels, height and width")
    return x


def _window(conversion: Conversion, kernel: Sequence[int], size: Sequence[int]) -> WindowAttr:
    """Return the window that the attributes of a node describe.

    Raises:
        NotCovered: a window has no result.
    """
    strides = conversion.integer_list("strides") or (1, 1)
    dilations = conversion.integer_list("dilations") or (1, 1)
    pads = conversion.integer_list("pads") or (0, 0, 0, 0)
    automatic = conversion.text("auto_pad", "NOTSET")
    if automatic == "VALID":
        pads = (0, 0, 0, 0)
    elif automatic.startswith("SAME"):
        totals = [
            max(0, (-(-extent // stride) - 1) * stride + (taps - 1) * dilation + 1 - extent)
            for extent, stride, taps, dilation in zip(size, strides, kernel, dilations, strict=True)
        ]
        less, more = [total // 2 for total in totals], [total - total // 2 for total in totals]
        pads = (*less, *more) if automatic == "SAME_UPPER" else (*more, *less)
    if min(pads) < 0:
        raise NotCovered(f"attribute pads={list(pads)}, accepted are none below 0")
    window = WindowAttr.of(kernel, strides, dilations, pads)
    if 0 in window.result_size(size[0], size[1]):
        raise NotCovered("an image smaller than the window, accepted is one that has a result")
    return window


def _convert_max_pool(conversion: Conversion) -> Sequence[SSAValue]:
    refuse_further_outputs(conversion)
    return [conversion.emit(Pool2dOp(_image(conversion), "max", _pool_window(conversion))).result]


def _convert_average_pool(conversion: Conversion) -> Sequence[SSAValue]:
    kind = "average_with_pads" if conversion.integer("count_include_pad", 0) else "average"
    return [conversion.emit(Pool2dOp(_image(conversion), kind, _pool_window(conversion))).result]


def _pool_window(conversion: Conversion) -> WindowAttr:
    size = shape_of(_image(conversion))[2:]
    window = _window(conversion, conversion.integer_list("kernel_shape") or (), size)
    if conversion.integer("ceil_mode", 0):
        floor, padded = window.result_size(size[0], size[1]), list(window.pad_sizes)
        padded[2] += window.stride[0] - 1
        padded[3] += window.stride[1] - 1
        if window.of(window.kernel_size, window.stride, (1, 1), padded).result_size(size[0], size[1]) != floor:
            raise NotCovered("attribute ceil_mode=1 with a window that is cut off, accepted are whole windows")
    return window


def _convert_global_average_pool(conversion: Conversion) -> Sequence[SSAValue]:
    x = _image(conversion)
    return [conversion.emit(Pool2dOp(x, "average", WindowAttr.of(shape_of(x)[2:]))).result]


def _convert_resize(conversion: Conversion) -> Sequence[SSAValue]:
    x = _image(conversion)
    mode = conversion.text("mode", "nearest")
    ways = (
        conversion.text("coordinate_transformation_mode", "half_pixel"),
        conversion.text("nearest_mode", "round_prefer_floor"),
    )
    scales, sizes = conversion.constant(2), conversion.integers(3)
    if conversion.integer_list("axes") is not None:
        raise NotCovered("attribute axes, accepted are factors of all axes")
    shape = shape_of(x)[1:]
    if scales is not None and len(scales) == IMAGE_RANK:
        factors = [float(factor) for factor in scales[1:]]
    elif sizes is not None and len(sizes) == IMAGE_RANK and 0 not in shape:
        factors = [size / extent for size, extent in zip(sizes[1:], shape, strict=True)]
    else:
        raise NotCovered("sizes that are not known, accepted are constant scales or sizes")
    doubles = factors == [1.0, 2.0, 2.0] and ways == ("asymmetric", "round_prefer_floor")
    if mode != "nearest" or (ways not in NEAREST and not doubles):
        raise NotCovered(f"attributes mode={mode}, {', '.join(ways)}, accepted is nearest by whole pixels")
    if factors[0] != 1 or any(factor < 1 or factor != int(factor) for factor in factors):
        raise NotCovered(f"factors {factors}, accepted are whole ones for height and width")
    return [conversion.emit(Resize2dOp(x, (int(factors[1]), int(factors[2])))).result]


def is_image_layer(op: Operation) -> bool:
    """Return whether an op is one that only images have."""
    return isinstance(op, ImageLayerOp)


IMAGE_CONVERTERS: Final = MappingProxyType[tuple[str, str], Converter](
    {
        ("", "AveragePool"): _convert_average_pool,
        ("", "Conv"): _convert_conv,
        ("", "GlobalAveragePool"): _convert_global_average_pool,
        ("", "MaxPool"): _convert_max_pool,
        ("", "Resize"): _convert_resize,
    }
)
"""(domain, operator) -> converter."""
