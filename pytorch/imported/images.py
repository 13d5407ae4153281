"""Convolutions of computed weights, pooling, resizing, and norms."""

from collections.abc import Callable
from math import floor
from typing import Final

import torch
from torch.nn import functional

from .nodes import Node, Tensor, operator

CONVOLUTIONS: Final = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
TURNED: Final = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
LARGEST: Final = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
MEANS: Final = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


def strides_of(node: Node, axes: int) -> list[int]:
    """Return the steps of a window along each axis."""
    return node.ints("strides") or [1] * axes


def dilations_of(node: Node, axes: int) -> list[int]:
    """Return the distances of a window's taps along each axis."""
    return node.ints("dilations") or [1] * axes


def padding_of(node: Node, sizes: list[int], kernel: list[int]) -> list[tuple[int, int]]:
    """Return what a window adds before and behind each axis of an image."""
    axes, mode = len(kernel), str(node.get("auto_pad", "NOTSET"))
    strides, dilations = strides_of(node, axes), dilations_of(node, axes)
    if mode in ("NOTSET", ""):
        pads = node.ints("pads") or [0] * (2 * axes)
        return list(zip(pads[:axes], pads[axes:], strict=True))
    if mode == "VALID":
        return [(0, 0)] * axes
    found = list[tuple[int, int]]()
    for size, width, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        whole = max(0, (-(-size // stride) - 1) * stride + (width - 1) * dilation + 1 - size)
        less = whole // 2
        found.append((less, whole - less) if mode == "SAME_UPPER" else (whole - less, less))
    return found


def padded(x: Tensor, pads: list[tuple[int, int]], value: float = 0.0) -> Tensor:
    """Return an image with so many values before and behind each axis."""
    flat = [one for pair in reversed(pads) for one in pair]
    return functional.pad(x, flat, value=value) if any(flat) else x


@operator("Conv")
def convolved(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the convolution of images with a weight [outputs, inputs, taps...]."""
    kernel = list(weight.shape[2:])
    axes = len(kernel)
    x = padded(x, padding_of(node, list(x.shape[2:]), kernel))
    strides, dilations = strides_of(node, axes), dilations_of(node, axes)
    return CONVOLUTIONS[axes](x, weight, bias, strides, 0, dilations, node.get("group", 1))


@operator("ConvTranspose")
def _turned(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    kernel = list(weight.shape[2:])
    axes, strides = len(kernel), strides_of(node, len(kernel))
    whole = TURNED[axes](x, weight, None, strides, 0, 0, node.get("group", 1), dilations_of(node, axes))
    more = node.ints("output_padding") or [0] * axes
    whole = padded(whole, [(0, one) for one in more])
    for axis, (before, after) in enumerate(_cut_of(node, x, whole, axes), 2):
        whole = whole.narrow(axis, before, whole.shape[axis] - before - after)
    return whole if bias is None else whole + bias.reshape(-1, *[1] * axes)


def _cut_of(node: Node, x: Tensor, whole: Tensor, axes: int) -> list[tuple[int, int]]:
    """Return what is cut off before and behind each axis of a whole output."""
    mode, wanted = str(node.get("auto_pad", "NOTSET")), node.ints("output_shape")
    if wanted is None and mode in ("NOTSET", ""):
        pads = node.ints("pads") or [0] * (2 * axes)
        return list(zip(pads[:axes], pads[axes:], strict=True))
    if wanted is None:
        # as many times the size of the image as the stride says
        wanted = [size * stride for size, stride in zip(x.shape[2:], strides_of(node, axes), strict=True)]
        wanted = list(whole.shape[2:]) if mode == "VALID" else wanted
    over = [size - one for size, one in zip(whole.shape[2:], wanted[-axes:], strict=True)]
    lower = mode != "SAME_UPPER"
    return [(one - one // 2, one // 2) if lower else (one // 2, one - one // 2) for one in over]


def _behind(node: Node, x: Tensor, kernel: list[int]) -> list[int]:
    """Return what is added behind each axis for a last window that is not whole."""
    if not node.get("ceil_mode", 0):
        return [0] * len(kernel)
    strides, dilations = strides_of(node, len(kernel)), dilations_of(node, len(kernel))
    sizes = [
        size - (width - 1) * dilation - 1 for size, width, dilation in zip(x.shape[2:], kernel, dilations, strict=True)
    ]
    return [-size % stride for size, stride in zip(sizes, strides, strict=True)]


@operator("MaxPool")
def _maximum(node: Node, x: Tensor) -> Tensor:
    if node.output_count > 1:
        raise ValueError("expected one output, got places as well")
    kernel = [int(one) for one in node.attributes["kernel_shape"]]
    axes = len(kernel)
    least = float("-inf") if x.is_floating_point() else torch.iinfo(x.dtype).min
    x = padded(x, padding_of(node, list(x.shape[2:]), kernel), least)
    x = padded(x, [(0, one) for one in _behind(node, x, kernel)], least)
    return LARGEST[axes](x, kernel, strides_of(node, axes), 0, dilations_of(node, axes))


@operator("AveragePool")
def _mean(node: Node, x: Tensor) -> Tensor:
    kernel = [int(one) for one in node.attributes["kernel_shape"]]
    axes = len(kernel)
    if any(one != 1 for one in dilations_of(node, axes)):
        raise ValueError(f"dilations: expected 1, got {dilations_of(node, axes)}")
    inside, pads = torch.ones_like(x[:1, :1]), padding_of(node, list(x.shape[2:]), kernel)
    outer = 1.0 if node.get("count_include_pad", 0) else 0.0
    x, inside = padded(x, pads), padded(inside, pads, outer)
    behind = [(0, one) for one in _behind(node, x, kernel)]
    x, inside = padded(x, behind), padded(inside, behind)
    total, count = (MEANS[axes](one, kernel, strides_of(node, axes)) for one in (x, inside))
    return total / count


@operator("GlobalAveragePool")
def _whole_mean(node: Node, x: Tensor) -> Tensor:
    return x.mean(list(range(2, x.dim())), keepdim=True)


@operator("GlobalMaxPool")
def _whole_maximum(node: Node, x: Tensor) -> Tensor:
    return x.amax(list(range(2, x.dim())), keepdim=True)


@operator("Resize", "Upsample")
def _resized(
    node: Node, x: Tensor, roi: Tensor | None = None, scales: Tensor | None = None, sizes: Tensor | None = None
) -> Tensor:
    if node.operator == "Upsample" or (scales is None and sizes is None and node.opset < 11):
        scales, roi = roi, None
    along = node.ints("axes") or list(range(x.dim()))
    if scales is not None and scales.numel():
        factors = [float(one) for one in scales.tolist()]
        wanted = [floor(x.shape[axis] * factor) for axis, factor in zip(along, factors, strict=True)]
    else:
        wanted = node.ints("sizes", sizes) or []
        factors = [one / x.shape[axis] for axis, one in zip(along, wanted, strict=True)]
        if str(node.get("keep_aspect_ratio_policy", "stretch")) != "stretch":
            raise ValueError("keep_aspect_ratio_policy: expected stretch")
    for axis, size, factor in zip(along, wanted, factors, strict=True):
        if size != x.shape[axis] or factor != 1:
            x = _along(node, x, axis, size, factor)
    return x


def _along(node: Node, x: Tensor, axis: int, size: int, factor: float) -> Tensor:
    """Return an image with another size along one axis."""
    old, mode = x.shape[axis], str(node.get("mode", "nearest"))
    places = _source_places(node, size, old, factor)
    if mode == "nearest":
        way = str(node.get("nearest_mode", "round_prefer_floor" if node.opset >= 11 else "floor"))
        return x.index_select(axis, _nearest(places, way).clamp(0, old - 1).to(x.device))
    if mode not in ("linear", "bilinear", "trilinear", "cubic") or node.get("antialias", 0):
        raise ValueError(f"mode: expected nearest, linear or cubic without antialias, got {mode}")
    base = places.floor()
    shape = [-1 if one == axis else 1 for one in range(x.dim())]
    total = x.new_zeros(())
    taps = _cubic(places - base, float(node.get("cubic_coeff_a", -0.75))) if mode == "cubic" else _linear(places - base)
    for offset, weight in taps:
        inside = ((base + offset >= 0) & (base + offset <= old - 1)).to(weight)
        weight = weight * inside if node.get("exclude_outside", 0) else weight
        values = x.index_select(axis, (base + offset).clamp(0, old - 1).to(torch.int64).to(x.device))
        total = total + values * weight.to(x).reshape(shape)
    return total


def _source_places(node: Node, size: int, old: int, factor: float) -> Tensor:
    new, way = torch.arange(size, dtype=torch.float64), str(node.get("coordinate_transformation_mode", ""))
    match way or ("half_pixel" if node.opset >= 11 else "asymmetric"):
        case "half_pixel":
            return (new + 0.5) / factor - 0.5
        case "pytorch_half_pixel":
            return (new + 0.5) / factor - 0.5 if size > 1 else torch.zeros_like(new)
        case "half_pixel_symmetric":
            # the length that was asked for, over the one that there is
            centre, exact = old / 2, size / (old * factor)
            return centre * (1 - exact) + (new + 0.5) / factor - 0.5
        case "align_corners":
            return new * (old - 1) / max(1, size - 1)
        case "asymmetric":
            return new / factor
        case other:
            raise ValueError(f"coordinate_transformation_mode: expected one of torch's, got {other}")


def _nearest(places: Tensor, way: str) -> Tensor:
    round_by: dict[str, Callable[[Tensor], Tensor]] = {
        "round_prefer_floor": lambda one: (one - 0.5).ceil(),
        "round_prefer_ceil": lambda one: (one + 0.5).floor(),
        "floor": torch.floor,
        "ceil": torch.ceil,
    }
    return round_by[way](places).to(torch.int64)


def _linear(part: Tensor) -> list[tuple[int, Tensor]]:
    return [(0, 1 - part), (1, part)]


def _cubic(part: Tensor, a: float) -> list[tuple[int, Tensor]]:
    def near(t: Tensor) -> Tensor:
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t: Tensor) -> Tensor:
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return [(-1, far(part + 1)), (0, near(part)), (1, near(1 - part)), (2, far(2 - part))]


@operator("BatchNormalization")
def _batch_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    if node.get("training_mode", 0):
        raise ValueError("training_mode: expected 0")
    # means stay those of the file
    return functional.batch_norm(x, mean, variance, scale, bias, False, 0.0, node.get("epsilon", 1e-5))


@operator("InstanceNormalization")
def _instance_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    axes, shape = list(range(2, x.dim())), (-1, *[1] * (x.dim() - 2))
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + node.get("epsilon", 1e-5)) * scale.view(shape) + bias.view(shape)


@operator("GroupNormalization")
def _group_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    groups, channels = int(node.attributes["num_groups"]), x.shape[1]
    if len(scale) != channels:
        # before opset 21 there is one for each group
        scale, bias = (one.repeat_interleave(channels // groups) for one in (scale, bias))
    return functional.group_norm(x, groups, scale, bias, node.get("epsilon", 1e-5))


@operator("LpNormalization")
def _lp_norm(node: Node, x: Tensor) -> Tensor:
    norm = x.norm(p=node.get("p", 2), dim=node.get("axis", -1), keepdim=True)
    return x / norm.clamp(min=1e-30)


@operator("LRN")
def _local_norm(node: Node, x: Tensor) -> Tensor:
    return functional.local_response_norm(
        x, int(node.attributes["size"]), node.get("alpha", 1e-4), node.get("beta", 0.75), node.get("bias", 1.0)
    )
