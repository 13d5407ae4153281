"""Nodes on images: convolutions and pooling.

Convolutions by patches as linear layers: the first one of vision transformers, whose windows share no pixel.

```
y = Conv<strides = kernel>(x)     [N, C, H, W] -> [N, O, H / kh, W / kw]
pixels of a patch are a row:      [N, C, H, W] -> [N, H / kh, W / kw, C kh kw], times the weight
```
"""

from collections.abc import Sequence
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ....dialect.attributes.window import WindowAttr
from ....dialect.ops.images import (
    MOST_OPEN_TAPS,
    Conv2dOp,
    Depthwise2dOp,
    Pool2dOp,
    Pooling,
    image_shape,
    is_image_rank,
    is_open,
)
from ....dialect.ops.layers import LinearOp
from ....dialect.symbolic_sizes import Size, has_windows
from ....dialect.tensors import DYNAMIC, shape_of, shape_text
from ...limits import allowance
from ..conversion import Conversion, Converter, NotCovered, UnknownImage
from ..movement import refuse_further_outputs


def is_cut_into_patches(conversion: Conversion, kernel: Sequence[int]) -> bool:
    """Return whether the windows of a convolution cut its images into several parts, and leave nothing."""
    size = shape_of(conversion.tensor(0))[2:]
    zeros, ones = (0,) * (2 * len(kernel)), (1,) * len(kernel)
    return (
        conversion.integer_list("strides") == tuple(kernel)
        and conversion.integer_list("pads") in (None, zeros)
        and conversion.integer_list("dilations") in (None, ones)
        and conversion.text("auto_pad", "NOTSET") in ("NOTSET", "VALID")
        and tuple(kernel) != size
        and all(taps and extent % taps == 0 for extent, taps in zip(size, kernel, strict=True))
    )


def layer_of_patches(
    conversion: Conversion, x: SSAValue, matrix: SSAValue, bias: SSAValue | None, kernel: Sequence[int]
) -> SSAValue:
    """Return the convolution of images `x` [N, C, ...] by a weight [C taps, O] as a layer whose rows are patches."""
    batch, channels, *extents = conversion.sizes(x)
    counts = [extent / Size.known(taps) for extent, taps in zip(extents, kernel, strict=True)]
    apart = [size for count, taps in zip(counts, kernel, strict=True) for size in (count, Size.known(taps))]
    rank = len(kernel)
    cut = conversion.reshape(x, (batch, channels, *apart))
    patches = conversion.transpose(cut, (0, *range(2, 2 + 2 * rank, 2), 1, *range(3, 3 + 2 * rank, 2)))
    rows = conversion.reshape(patches, (batch, *counts, channels * Size.known(prod(kernel))))
    result = conversion.emit(LinearOp(rows, matrix, bias)).result
    return conversion.transpose(result, (0, rank + 1, *range(1, rank + 1)))


MOST_TAPS: Final = 128
"""Taps of a window for which there is code: one piece of it for each."""

MOST_COPIED: Final = 4096
"""Taps of a window for which there is code where they are copied next to each other, as those of convolutions are."""

MOST_REACHED: Final = 24 * 1024
"""Pixels of a channel that such a window and those beside it reach, up to which there is room for them."""

MOST_ALONG_AN_AXIS: Final = 512
"""Taps of a window of one row or one column, as the first ones over sound are."""

TAPS_AT_ONCE: Final = 16
"""Taps of a window up to which its largest value is found at once, not that of rows and then that of columns."""

KNOWN_IMAGES: Final = "rank 3 or 4 with known channels, height and width"
"""The images that a layer on images takes."""

MOST_PIXELS: Final = 1 << 26
"""Pixels of an image with its pads: a file of a hundred bytes must not ask for more memory than there is."""


def convert_conv(conversion: Conversion) -> Sequence[SSAValue]:
    """Return the convolution of floats.

    Raises:
        NotCovered: it is of a form that is not accepted.
    """
    weight, name = conversion.constant(1), (conversion.input(1), conversion.input(2))
    x = _row_or_image(conversion, () if weight is None else weight.shape[2:])
    if weight is None or name[0] is None:
        raise NotCovered("expected a constant weight, got another value")
    if weight.ndim != len(shape_of(x)):
        raise NotCovered(f"expected a weight of rank {len(shape_of(x))}, that of the images, got {weight.ndim}")
    bias = None
    if conversion.has_input(2):
        values = conversion.constant(2)
        if values is None:
            raise NotCovered("expected a constant bias, got another value")
        bias = conversion.emit_constant(values, name[1].name or "" if name[1] is not None else "")
    groups, channels = conversion.integer("group", 1), shape_of(x)[1]
    if groups < 1 or groups * weight.shape[1] != channels or weight.shape[0] % groups:
        raise NotCovered(f"expected the channels of weight {weight.shape}, got {channels} in {groups} groups")
    key, made, kernel = name[0].name or "", conversion.emit_constant, weight.shape[2:]
    by_patches = conversion.scope.all_native and groups == 1 and prod(kernel) > MOST_TAPS
    if by_patches and is_cut_into_patches(conversion, kernel):
        return [layer_of_patches(conversion, x, made(matrix_of(weight, 1), key, "conv1"), bias, kernel)]
    is_depthwise = groups == channels == weight.shape[0] and groups > 1
    window = window_of(conversion, x, kernel, most_taps=MOST_TAPS if is_depthwise else MOST_COPIED)
    if np.isfinite(weight).all() and not is_open(x):
        window, inside = without_idle_taps(window, image_shape(x)[2:])
        inside = inside[-len(kernel) :]
        key += "".join(f" {taps.start}:{taps.stop}" for taps in inside)
        weight = weight[(slice(None), slice(None), *inside)]
    if is_depthwise:
        matrix = np.ascontiguousarray(weight.reshape(channels, -1).T)
        return [conversion.emit(Depthwise2dOp(x, made(matrix, key, "depthwise"), bias, window)).result]
    value = made(matrix_of(weight, groups), key, f"conv{groups}")
    return [conversion.emit(Conv2dOp(x, value, bias, window)).result]


def matrix_of(weight: NDArray[np.float32], groups: int) -> NDArray[np.float32]:
    """Return a weight [O, C / groups, kh, kw] as a matrix [C kh kw, O], zeros between groups.

    Raises:
        NotCovered: there would be far more of these than weights.
    """
    outputs, channels, *window = weight.shape
    taps = int(np.prod(window))
    if groups == 1:
        return np.ascontiguousarray(weight.reshape(outputs, channels * taps).T)
    size = groups * taps * channels * outputs * weight.itemsize
    if size > allowance(weight.nbytes):
        raise NotCovered(
            f"expected at most {allowance(weight.nbytes)} bytes as a matrix, got {size} for {groups} groups"
        )
    matrix = np.zeros((groups, channels * taps, groups, outputs // groups), dtype=np.float32)
    parts = weight.reshape(groups, outputs // groups, channels * taps)
    for group in range(groups):
        matrix[group, :, group] = parts[group].T
    return matrix.reshape(groups * channels * taps, outputs)


def image_of(conversion: Conversion) -> SSAValue:
    """Return the first input, an image of known channels, height and width.

    Raises:
        NotCovered: it is something else.
    """
    return checked_image(conversion.tensor(0))


def _row_or_image(conversion: Conversion, taps: Sequence[int]) -> SSAValue:
    """Return the first input, an image; of one row, it may have any length where no size depends on it but that.

    Raises:
        UnknownImage: it is something else.
    """
    x, automatic = conversion.tensor(0), conversion.text("auto_pad", "NOTSET")
    strides = conversion.integer_list("strides") or (1,)
    is_same = automatic in ("NOTSET", "VALID") or strides[-1] == 1
    *rows, columns = taps or (0,)
    # of images of one row a window has one, without pads above and below
    pads = (conversion.integer_list("pads") or ())[::2] if rows else ()
    has_one_row = {*rows, *strides[:-1]} <= {1} and not any(pads)
    can_be_open = is_same and has_one_row and 0 < columns <= MOST_OPEN_TAPS and not conversion.integer("ceil_mode", 0)
    return x if is_open(x) and can_be_open and has_windows(conversion.sizes(x)[-1]) else checked_image(x)


def checked_image(x: SSAValue) -> SSAValue:
    """Return a value that is an image of known channels, height and width.

    Raises:
        UnknownImage: it is something else.
    """
    shape = shape_of(x)
    if not is_image_rank(len(shape)) or DYNAMIC in shape[1:]:
        raise UnknownImage(f"expected {KNOWN_IMAGES}, got an input {shape_text(shape)}")
    check_pixels(shape[2:])
    return x


def check_pixels(sizes: Sequence[int]) -> None:
    """Check the sizes of an image, with pads.

    Raises:
        NotCovered: it has too many pixels.
    """
    if prod(sizes) > MOST_PIXELS:
        raise NotCovered(f"expected an image of up to {MOST_PIXELS} pixels, got {' x '.join(map(str, sizes))}")


def window_of(
    conversion: Conversion,
    x: SSAValue,
    kernel: Sequence[int],
    *,
    by_axes: bool = False,
    most_taps: int = MOST_TAPS,
) -> WindowAttr:
    """Return the window that the attributes of a node describe; `by_axes` where one axis comes after the other.

    Raises:
        NotCovered: a window has no result, or more taps than there is code for.
    """
    size = image_shape(x)[4 - len(shape_of(x)[2:]) :]
    ones, zeros = (1,) * len(size), (0,) * (2 * len(size))
    strides = conversion.integer_list("strides") or ones
    dilations = conversion.integer_list("dilations") or ones
    pads = conversion.integer_list("pads") or zeros
    automatic = conversion.text("auto_pad", "NOTSET")
    if automatic == "VALID":
        pads = zeros
    elif automatic.startswith("SAME"):
        totals = [
            max(0, (-(-extent // stride) - 1) * stride + (taps - 1) * dilation + 1 - extent)
            for extent, stride, taps, dilation in zip(size, strides, kernel, dilations, strict=True)
        ]
        less, more = [total // 2 for total in totals], [total - total // 2 for total in totals]
        pads = (*less, *more) if automatic == "SAME_UPPER" else (*more, *less)
    if not len(kernel) == len(strides) == len(dilations) == len(pads) // 2 == len(size):
        raise NotCovered(f"expected a window with a number for each axis of the image, got other axes than {len(size)}")
    if min(*kernel, *strides, *dilations) < 1:
        raise NotCovered("expected attributes of the window from 1 on, got less")
    if min(pads) < 0:
        raise NotCovered(f"expected pads from 0 on, got {list(pads)}")
    check_pixels([extent + sum(pads[axis :: len(size)]) for axis, extent in enumerate(size)])
    if len(size) == 1:  # images of one row
        kernel, strides, dilations, pads = (1, *kernel), (1, *strides), (1, *dilations), (0, pads[0], 0, pads[1])
    window = WindowAttr(kernel, strides, dilations, pads)
    if 0 in window.result_size(*image_shape(x)[2:]):
        raise NotCovered("expected an image with a result, got one smaller than the window")
    taps = max(window.kernel_size) if by_axes else prod(window.kernel_size)
    is_thin = taps == max(window.kernel_size) and taps <= MOST_ALONG_AN_AXIS
    is_near = is_thin or (taps <= most_taps and _reached(window, image_shape(x)[3]) <= MOST_REACHED)
    has_code = taps <= MOST_TAPS or (is_near and not is_cut_into_patches(conversion, kernel[-len(size) :]))
    if not has_code and not _is_whole(window, x):
        raise NotCovered(
            f"expected a window of {most_taps} taps or fewer, {MOST_ALONG_AN_AXIS} in one row or column, of the whole "
            f"image, or one that cuts it into patches, got {taps} taps"
        )
    return window


def _reached(window: WindowAttr, width: int) -> int:
    """Return the pixels that windows side by side reach, in all phases of their strides."""
    (rows, _), (down, across), (far, _) = window.kernel_size, window.stride, window.dilations
    _, left, _, right = window.pad_sizes
    phases = min(down, rows) * min(across, window.kernel_size[1])
    return phases * ((rows - 1) * far // down + 2) * (-(-(left + width + right) // across) + 1)


def without_idle_taps(window: WindowAttr, size: Sequence[int]) -> tuple[WindowAttr, list[slice]]:
    """Return a window without the outer rows and columns of taps that read pads alone, and those that are left."""
    (down, across), results, pads = window.kernel_size, window.result_size(*size), list(window.pad_sizes)
    kept = [slice(0, down), slice(0, across)]
    for axis, extent in enumerate(size):
        taps, stride = window.kernel_size[axis], window.stride[axis]
        dilation, before, count = window.dilations[axis], pads[axis], results[axis]
        places = np.arange(count) * stride - before + dilation * np.arange(taps)[:, None]
        read = np.flatnonzero(((places >= 0) & (places < extent)).any(axis=1)).tolist()
        if not read or read[0] * dilation > before:
            continue
        reach = (count - 1) * stride + (read[-1] - read[0]) * dilation + 1
        pads[axis] = before - read[0] * dilation
        pads[axis + 2] = max(0, reach - pads[axis] - extent)
        kept[axis] = slice(read[0], read[-1] + 1)
    kernel = [taps.stop - taps.start for taps in kept]
    smaller = WindowAttr(kernel, window.stride, window.dilations, pads)
    return (smaller, kept) if smaller.result_size(*size) == results else (window, [slice(0, down), slice(0, across)])


def _is_whole(window: WindowAttr, x: SSAValue) -> bool:
    return window.kernel_size == image_shape(x)[2:] and not any(window.pad_sizes)


def _convert_max_pool(conversion: Conversion) -> Sequence[SSAValue]:
    """The largest of a large window is the largest of its rows' largest."""
    refuse_further_outputs(conversion)
    x, window = _pooled(conversion), _pool_window(conversion, by_axes=True)
    if min(window.kernel_size) > 1 and len(window.taps) > TAPS_AT_ONCE and not _is_whole(window, x):
        top, left, bottom, right = window.pad_sizes
        (rows, columns), (down, across), (far_down, far_across) = window.kernel_size, window.stride, window.dilations
        by_rows = WindowAttr((rows, 1), (down, 1), (far_down, 1), (top, 0, bottom, 0))
        x = conversion.emit(Pool2dOp(x, "max", by_rows)).result
        window = WindowAttr((1, columns), (1, across), (1, far_across), (0, left, 0, right))
    return [conversion.emit(Pool2dOp(x, "max", window)).result]


def _convert_average_pool(conversion: Conversion) -> Sequence[SSAValue]:
    kind = "average_with_pads" if conversion.integer("count_include_pad", 0) else "average"
    return [conversion.emit(Pool2dOp(_pooled(conversion), kind, _pool_window(conversion))).result]


def _pooled(conversion: Conversion) -> SSAValue:
    return _row_or_image(conversion, conversion.integer_list("kernel_shape") or ())


def _pool_window(conversion: Conversion, *, by_axes: bool = False) -> WindowAttr:
    """Return the window of a pooling; the last ones of `ceil_mode` reach over the end, which is more pads there.

    Raises:
        NotCovered: there is no code for it.
    """
    automatic, dilations = conversion.text("auto_pad", "NOTSET"), conversion.integer_list("dilations") or (1,)
    if automatic.startswith("SAME") and max(dilations) > 1:
        # onnxruntime pads for taps side by side
        raise NotCovered(f"expected auto_pad=NOTSET or VALID beside dilations, got {automatic}")
    window = _reaching_window(conversion, by_axes=by_axes)
    pads, taps = window.pad_sizes, window.kernel_size * 2
    if any(pad >= count for pad, count in zip(pads, taps, strict=True)):
        raise NotCovered(f"expected fewer pads than taps, got pads {list(pads)} and {list(window.kernel_size)} taps")
    return window


def _reaching_window(conversion: Conversion, *, by_axes: bool) -> WindowAttr:
    x, kernel = _pooled(conversion), conversion.integer_list("kernel_shape") or ()
    is_rounded_up = bool(conversion.integer("ceil_mode", 0))
    if is_rounded_up and _is_cut_to_image(conversion, kernel, shape_of(x)[2:]):
        return WindowAttr(image_shape(x)[2:])
    window = window_of(conversion, x, kernel, by_axes=by_axes)
    if not is_rounded_up:
        return window
    pads = list(window.pad_sizes)
    for axis, (extent, taps, stride) in enumerate(
        zip(image_shape(x)[2:], window.kernel_size, window.stride, strict=True)
    ):
        before = pads[axis]
        reach = (taps - 1) * window.dilations[axis] + 1
        starts = -(-(extent + before + pads[axis + 2] - reach) // stride) + 1
        starts -= (starts - 1) * stride >= extent + before  # none that begins behind the image
        pads[axis + 2] = max(pads[axis + 2], (starts - 1) * stride + reach - extent - before)
    if pads != list(window.pad_sizes) and conversion.integer("count_include_pad", 0):
        raise NotCovered("expected ceil_mode=0 or count_include_pad=0, got both 1 and a window that is cut off")
    numbers = (window.kernel_size, window.stride, window.dilations)
    return WindowAttr(*numbers, pads)


def _is_cut_to_image(conversion: Conversion, kernel: Sequence[int], size: Sequence[int]) -> bool:
    """Return whether the one window of a pooling without pads reaches over the end of all axes, and holds the image."""
    strides = conversion.integer_list("strides") or (1,) * len(size)
    pads, dilations = (conversion.integer_list(name) or () for name in ("pads", "dilations"))
    others = [*pads, *(dilation - 1 for dilation in dilations)]
    if any(others) or conversion.text("auto_pad", "NOTSET") != "NOTSET" or not len(kernel) == len(strides) == len(size):
        return False
    return all(0 <= taps - extent < step for taps, extent, step in zip(kernel, size, strides, strict=True))


def _convert_global_pool(kind: Pooling, conversion: Conversion) -> Sequence[SSAValue]:
    x = image_of(conversion)
    return [conversion.emit(Pool2dOp(x, kind, WindowAttr(image_shape(x)[2:]))).result]


IMAGE_CONVERTERS: Final = MappingProxyType[tuple[str, str], Converter](
    {
        ("", "AveragePool"): _convert_average_pool,
        ("", "Conv"): convert_conv,
        ("", "GlobalAveragePool"): partial(_convert_global_pool, "average"),
        ("", "GlobalMaxPool"): partial(_convert_global_pool, "max"),
        ("", "MaxPool"): _convert_max_pool,
    }
)
"""(domain, operator) -> converter."""
