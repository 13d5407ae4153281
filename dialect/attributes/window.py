"""The attribute that says which values of an image a convolution or a pooling reads for one of its results."""

from collections.abc import Sequence
from typing import NamedTuple

from xdsl.utils.exceptions import VerifyException

from ..record import Record

Pair = tuple[int, int]
"""A number for rows and one for columns."""


class Tap(NamedTuple):
    """A value of a window: its row and its column in the input, counted from the window's corner without pads."""

    row: int
    column: int


class WindowAttr(Record, text="{kernel} strides {strides} dilations {dilations} pads {pads}"):
    """A window over images: result (i, j) reads rows i * stride - pad + tap * dilation, and columns likewise.

    ```mlir
    #pebble.window<[3, 3] strides [2, 2] dilations [1, 1] pads [1, 1, 1, 1]>
    ```

    `pads` are the values that are missing at the top, left, bottom and right.
    """

    name = "pebble.window"

    kernel: Sequence[int]
    strides: Sequence[int] = (1, 1)
    dilations: Sequence[int] = (1, 1)
    pads: Sequence[int] = (0, 0, 0, 0)

    @property
    def kernel_size(self) -> Pair:
        """Taps along rows and along columns."""
        return _pair(self.kernel)

    @property
    def stride(self) -> Pair:
        """Rows and columns between the windows of neighbouring results."""
        return _pair(self.strides)

    @property
    def pad_sizes(self) -> tuple[int, int, int, int]:
        """Pads at the top, left, bottom and right."""
        top, left, bottom, right = self.pads
        return top, left, bottom, right

    @property
    def taps(self) -> list[Tap]:
        """The taps row by row, in the order in which weights have them."""
        (rows, columns), (down, across) = self.kernel_size, _pair(self.dilations)
        top, left, *_ = self.pad_sizes
        return [Tap(row * down - top, column * across - left) for row in range(rows) for column in range(columns)]

    def result_size(self, height: int, width: int) -> Pair:
        """Return height and width of the result for an image of `height` and `width`; 0 where no window fits."""
        top, left, bottom, right = self.pad_sizes
        padded = (height + top + bottom, width + left + right)
        rows, columns = (
            max(0, (size - (taps - 1) * dilation - 1) // stride + 1)
            for size, taps, dilation, stride in zip(
                padded, self.kernel_size, _pair(self.dilations), self.stride, strict=True
            )
        )
        return rows, columns

    @property
    def added_to_length(self) -> int:
        """Number that is added to the length of a row: divided by the stride, rounded down, the sum is the results."""
        _, left, _, right = self.pad_sizes
        return left + right - (self.kernel[1] - 1) * self.dilations[1] - 1 + self.strides[1]

    def is_all_of(self, height: int, width: int) -> bool:
        """Return whether there is one result, which reads each pixel of an image and nothing beside it."""
        if self.kernel_size != (height, width) or self.result_size(height, width) != (1, 1):
            return False
        taps = self.taps
        return (taps[0], taps[-1]) == (Tap(0, 0), Tap(height - 1, width - 1))

    def verify(self) -> None:
        for word, values, count, least in (
            ("kernel", self.kernel, 2, 1),
            ("strides", self.strides, 2, 1),
            ("dilations", self.dilations, 2, 1),
            ("pads", self.pads, 4, 0),
        ):
            numbers = list(values)
            if len(numbers) != count or min(numbers) < least:
                raise VerifyException(f"expected {count} {word} of at least {least}, got {numbers}")


def _pair(values: Sequence[int]) -> Pair:
    first, second = values
    return first, second
