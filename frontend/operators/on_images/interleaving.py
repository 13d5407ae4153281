"""Nodes that make images larger by channels that become pixels: ConvTranspose and DepthToSpace.

A transposed convolution of stride s is s x s convolutions of stride 1, one for each place of a result in a square of
s x s: each has the taps that meet a pixel there. They are one convolution with s x s times as many channels.

```
y = ConvTranspose<strides = 2>(x, w)         [N, C, H, W] -> [N, O, 2 H, 2 W],     w [C, O, kh, kw]
y = interleaved(Conv(x, w1))                 [N, C, H, W] -> [N, 4 O, H, W] -> y,  of each O those taps of w
```
"""

from collections.abc import Sequence
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ....dialect.attributes.window import WindowAttr
from ....dialect.ops.images import Conv2dOp, Interleave2dOp, image_shape
from ....dialect.tensors import shape_of
from ...limits import allowance
from ..conversion import Conversion, Converter, NotCovered
from .windows import MOST_TAPS, check_pixels, image_of


class _Along(NamedTuple):
    """A transposed convolution along an axis, as windows of the image: their taps, pads, and results of each place."""

    stride: int
    size: int
    """Pixels of the result."""
    taps: int
    before: int
    after: int
    places: tuple[tuple[int, int, int], ...]
    """The place in a stride, the tap of the weight, and the tap of the window that it is there."""

    @staticmethod
    def of(extent: int, numbers: tuple[int, int, int], size: int, cut: int) -> "_Along":
        """Return that of taps, stride and dilation, of which `cut` pixels are cut off before the first result."""
        kernel, stride, dilation = numbers
        found = [(place, tap, place + cut - tap * dilation) for place, tap in product(range(stride), range(kernel))]
        reached = [(place, tap, distance // stride) for place, tap, distance in found if distance % stride == 0]
        before = max(0, -min(distance for *_, distance in reached))
        taps = 1 + before + max(0, *(distance for *_, distance in reached))
        after = max(0, -(-size // stride) + taps - 1 - extent - before)
        return _Along(stride, size, taps, before, after, tuple((p, tap, before + far) for p, tap, far in reached))


def convert_conv_transpose(conversion: Conversion) -> Sequence[SSAValue]:
    """Return a transposed convolution as one whose channels become pixels.

    Raises:
        NotCovered: it is of a form that is not accepted.
    """
    x, weight = image_of(conversion), conversion.constant(1)
    if weight is None:
        raise NotCovered("expected a constant weight, got another value")
    channels, groups = shape_of(x)[1], conversion.integer("group", 1)
    if weight.ndim != len(shape_of(x)) or weight.shape[0] != channels or groups < 1 or channels % groups:
        raise NotCovered(f"expected a weight of {channels} channels in {groups} groups, got shape {weight.shape}")
    rows, columns = _axes(conversion, x, weight.shape[2:])
    parts, outputs = rows.stride * columns.stride, groups * weight.shape[1]
    if rows.taps * columns.taps > MOST_TAPS:
        raise NotCovered(f"expected {MOST_TAPS} taps or fewer, got {rows.taps * columns.taps}")
    byte_count = channels * rows.taps * columns.taps * parts * outputs * weight.itemsize
    if byte_count > allowance(weight.nbytes):
        raise NotCovered(f"expected at most {allowance(weight.nbytes)} bytes as a matrix, got {byte_count}")
    bias = None
    if conversion.has_input(2):
        values = conversion.constant(2)
        if values is None or values.shape != (outputs,):
            raise NotCovered(f"expected a constant bias of {outputs} values, got another value")
        bias = conversion.emit_constant(np.tile(values, parts), "")
    matrix = conversion.emit_constant(_matrix(weight, groups, rows, columns), "")
    pads = (rows.before, columns.before, rows.after, columns.after)
    window = WindowAttr((rows.taps, columns.taps), (1, 1), (1, 1), pads)
    result = conversion.emit(Conv2dOp(x, matrix, bias, window)).result
    size = (rows.size, columns.size)
    if parts == 1 and image_shape(result)[2:] == size:
        return [result]
    return [conversion.emit(Interleave2dOp(result, (rows.stride, columns.stride), size)).result]


def _matrix(weight: NDArray[np.float32], groups: int, rows: _Along, columns: _Along) -> NDArray[np.float32]:
    """Return a weight [C, O / groups, kh, kw] as that of windows [C taps, places O], zeros where no tap is."""
    channels, outputs, *kernel = weight.shape
    taps = weight.reshape(groups, channels // groups, outputs, *(kernel if len(kernel) == 2 else (1, *kernel)))
    sizes = (rows.taps, columns.taps, rows.stride, columns.stride, groups, outputs)
    found = np.zeros((groups, channels // groups, *sizes), np.float32)
    for (row, down, i), (column, across, j) in product(rows.places, columns.places):
        for group in range(groups):
            found[group, :, i, j, row, column, group] = taps[group, :, :, down, across]
    return found.reshape(channels * rows.taps * columns.taps, -1)


def _axes(conversion: Conversion, x: SSAValue, kernel: Sequence[int]) -> tuple[_Along, _Along]:
    """Return the rows and the columns of a transposed convolution.

    Raises:
        NotCovered: its attributes do not fit, or say how much is cut off in another way.
    """
    extents = shape_of(x)[2:]
    rank = len(extents)
    ones, zeros = (1,) * rank, (0,) * rank
    strides, dilations = (conversion.integer_list(name) or ones for name in ("strides", "dilations"))
    added, pads = conversion.integer_list("output_padding") or zeros, conversion.integer_list("pads") or zeros * 2
    sizes, automatic = conversion.integer_list("output_shape"), conversion.text("auto_pad", "NOTSET")
    if automatic.startswith("SAME") and sizes is None:
        sizes = tuple(extent * stride for extent, stride in zip(extents, strides, strict=True))
    if not len(strides) == len(dilations) == len(added) == len(pads) // 2 == rank or min(*strides, *dilations) < 1:
        raise NotCovered("expected strides, dilations and pads for each axis of the image, got others")
    if min(*pads, *added) < 0 or (sizes is not None and len(sizes) < rank):
        raise NotCovered("expected pads from 0 on and a size of each axis, got others")
    found: list[_Along] = []
    for axis, extent in enumerate(extents):
        numbers = kernel[axis], strides[axis], dilations[axis]
        whole = (extent - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1 + added[axis]
        before, after = (0, 0) if automatic == "VALID" else (pads[axis], pads[rank + axis])
        size, cut = whole - before - after, before
        if sizes is not None:
            size = sizes[len(sizes) - rank + axis]
            less, more = max(0, whole - size) // 2, -(-max(0, whole - size) // 2)
            cut = less if automatic == "SAME_UPPER" else more
        if not 0 < size <= whole:
            raise NotCovered(f"expected a result of 1 to {whole} pixels along an axis, got {size}")
        found.append(_Along.of(extent, numbers, size, cut))
    check_pixels([one.stride * (one.before + extent + one.after) for one, extent in zip(found, extents, strict=True)])
    return (found[0], found[1]) if rank == 2 else (_Along.of(1, (1, 1, 1), 1, 0), found[0])


def _convert_depth_to_space(conversion: Conversion) -> Sequence[SSAValue]:
    x, block, mode = image_of(conversion), conversion.integer("blocksize", 0), conversion.text("mode", "DCR")
    _, channels, height, width = image_shape(x)
    if len(shape_of(x)) != 4 or block < 1 or channels % (block * block) or not prod((channels, height, width)):
        raise NotCovered(f"expected images of a multiple of {block} x {block} channels, got {channels} channels")
    size = (block * height, block * width)
    check_pixels(size)
    return [conversion.emit(Interleave2dOp(x, (block, block), size, together=mode == "CRD")).result]


INTERLEAVING_CONVERTERS: Final = MappingProxyType[tuple[str, str], Converter](
    {
        ("", "ConvTranspose"): convert_conv_transpose,
        ("", "DepthToSpace"): _convert_depth_to_space,
    }
)
"""(domain, operator) -> converter."""
