"""Windows of convolutions: what a convolution multiplies, as rows, of which each image gives some."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ..kernels.dense_convolutions import Axis

Array = NDArray[np.float32]

ROWS_OF_INPUT: Final = 32
"""Windows of all images for each input of a layer, about: least squares need more rows than inputs, and neighbouring
windows say nearly the same."""

PATCHES: Final = 4
"""Places of an image, at least, at which windows are looked at."""


@dataclass(frozen=True)
class Window:
    """The window of a convolution over one or more axes; a place is where it may be."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    """Zeros in front of all axes, then behind them, where `auto_pad` says nothing else."""
    auto_pad: str = "NOTSET"

    @staticmethod
    def of(node: onnx.NodeProto, kernel: Sequence[int]) -> "Window":
        """Return the window of a Conv node with a weight of this kernel."""
        given: Mapping[str, Any] = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        axes = len(kernel)
        return Window(
            tuple(kernel),
            tuple(given.get("strides", (1,) * axes)),
            tuple(given.get("dilations", (1,) * axes)),
            tuple(given.get("pads", (0,) * 2 * axes)),
            given.get("auto_pad", b"NOTSET").decode(),
        )

    @property
    def attributes(self) -> list[onnx.AttributeProto]:
        given: dict[str, Any] = {"strides": self.strides, "dilations": self.dilations, "auto_pad": self.auto_pad}
        if self.auto_pad == "NOTSET":
            given["pads"] = self.pads
        return [onnx.helper.make_attribute(name, value) for name, value in given.items()]

    def places(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return how many places there are along axes of these sizes."""
        padded = (size + sum(pads) for size, pads in zip(sizes, self._pads(sizes), strict=True))
        parts = zip(padded, self._spans, self.strides, strict=True)
        return tuple((size - span) // stride + 1 for size, span, stride in parts)

    def axes(self, sizes: Sequence[int]) -> list[Axis]:
        """Return what a convolution's time depends on, axis by axis."""
        pads = (before for before, _ in self._pads(sizes))
        numbers = zip(sizes, self.places(sizes), self.kernel, self.strides, self.dilations, pads, strict=True)
        return [Axis(*one) for one in numbers]

    def rows(self, x: Array, images: int) -> Iterator[Array]:
        """Yield the inputs [places, channels * taps] of some windows of x [.., channels, ..], some of so many images.

        The places of an image are the same for all values of one shape.
        """
        most = max(PATCHES, -(-ROWS_OF_INPUT * x.shape[1] * prod(self.kernel) // max(1, images)))
        yield np.concatenate([self._rows_of(image, most, number) for number, image in enumerate(x)])

    def _rows_of(self, image: Array, most: int, number: int) -> Array:
        axes = tuple(range(1, image.ndim))
        steps = (slice(None), *(slice(None, None, stride) for stride in self.strides))
        taps = (..., *(slice(None, None, dilation) for dilation in self.dilations))
        padded = np.pad(image, [(0, 0), *self._pads(image.shape[1:])])
        # [channels, places .., taps ..], of which no copy is made
        windows = sliding_window_view(padded, self._spans, axes)[steps][taps]
        grid = windows.shape[1 : image.ndim]
        count = prod(grid)
        chosen = np.random.default_rng(number).permutation(count)[:most] if count > most else np.arange(count)
        rows = np.moveaxis(windows[:, *np.unravel_index(chosen, grid)], 0, 1)
        return np.ascontiguousarray(rows.reshape(len(chosen), -1))

    @property
    def _spans(self) -> list[int]:
        return [dilation * (size - 1) + 1 for dilation, size in zip(self.dilations, self.kernel, strict=True)]

    def _pads(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        axes = len(sizes)
        if self.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            missing = [
                max(0, (-(-size // stride) - 1) * stride + span - size)
                for size, stride, span in zip(sizes, self.strides, self._spans, strict=True)
            ]
            is_upper = self.auto_pad == "SAME_UPPER"
            return [(one // 2, one - one // 2) if is_upper else (one - one // 2, one // 2) for one in missing]
        if self.auto_pad == "VALID":
            return [(0, 0)] * axes
        return list(zip(self.pads[:axes], self.pads[axes:], strict=True))
