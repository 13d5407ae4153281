"""Predicted time of dense convolutions in onnxruntime, which sparse ones have to beat.

Its kernels hold the sums of up to six pixels of a line in registers, and read a weight once for these:

    pixels of a line   | a | b c d e f g | h i | j |
                       edge    block     block  edge

A pixel at an edge, for which part of the window lies outside, is computed alone, by the taps that are inside. A weight
that is read for one pixel alone takes as long as two or three products. A line needs all weights again, mostly from the
second-level cache. What comes from beyond it is waited for: few sums are under way at once.

Layers of 3 x 3 taps, 64 to 512 channels and 2 to 28 pixels a side take what is predicted on Emerald Rapids within 12 %
in the mean (30 % by products alone, which are too few of few pixels); 1 x 1 and 3 x 3 taps with 64 to 512 channels and
56 to 7 pixels a side on Zen 5 are within 7 % (25 %).
"""

from collections.abc import Sequence
from math import prod
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .machine import Machine

BLOCK: Final = 6
"""Pixels of a line that are computed at once."""

READING: Final = 2.5
"""Pixels whose products take as long as to read a weight from the second-level cache: 2 to 3 on Emerald Rapids."""


class Axis(NamedTuple):
    """A window along an axis of an image."""

    size: int
    """Pixels along it."""
    places: int
    """Places of the window: pixels of the result."""
    taps: int
    stride: int = 1
    dilation: int = 1
    pad: int = 0
    """Pixels that are missing in front."""

    @property
    def taps_inside(self) -> NDArray[np.int64]:
        """The taps inside the image at each place."""
        return self._is_inside.sum(axis=1)

    @property
    def read_taps(self) -> int:
        """The taps that are inside at any place."""
        return int(self._is_inside.any(axis=0).sum())

    @property
    def _is_inside(self) -> NDArray[np.bool_]:
        first = np.arange(self.places) * self.stride - self.pad
        pixels = first[:, None] + np.arange(self.taps) * self.dilation
        return (pixels >= 0) & (pixels < self.size)


def pixel_taps(axes: Sequence[Axis]) -> float:
    """Return the products of each input with each output, axes outermost first; a wait for a weight counts as some."""
    if all((axis.taps, axis.stride) == (1, 1) and axis.places == axis.size for axis in axes):
        # pixels that stand alone are one line
        return _pixels(prod(axis.places for axis in axes))
    *outer, last = axes
    inside = last.taps_inside
    is_whole = inside == last.taps
    line = READING * int(inside[~is_whole].sum()) + last.taps * _pixels(int(is_whole.sum()))
    return line * prod(int(axis.taps_inside.sum()) for axis in outer)


def dense_image_us(weights: int, axes: Sequence[Axis], product: float, machine: Machine, loop_bytes: float) -> float:
    """Return the microseconds of an image by a convolution of so many weights.

    `product` is the time of a multiply-add, `loop_bytes` are those of all weights that every image reads.
    """
    of_tap = weights // prod(axis.taps for axis in axes)
    read_bytes = 4.0 * of_tap * prod(axis.read_taps for axis in axes)
    return of_tap * pixel_taps(axes) * product + machine.far_ns(read_bytes, loop_bytes) / 1000


def _pixels(count: int) -> float:
    """Return the pixels in blocks of a line; a single one counts as the time of its weights."""
    whole, left = divmod(count, BLOCK)
    return BLOCK * whole + (max(left, READING) if left else 0)
