"""The attribute that says where the rows, or the columns, of a resampled image come from."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.utils.exceptions import VerifyException

from ..record import Record

OUTSIDE: Final = -1
"""An index of a row or a column that the image does not have: the fill value stands there."""


class ResamplingTap(NamedTuple):
    """Rows of an image, one for each of a result, and the share that each has in it."""

    indices: NDArray[np.int64]
    shares: NDArray[np.float32]


class ResamplingAttr(Record, text="{indices}[ to {others} shares {shares}]"):
    """Rows (or columns) of a result: each is one of the image, or a sum of several by their shares, which add up to 1.

    ```mlir
    #pebble.resampling<[0, 0, 1, 1]>
    #pebble.resampling<[0, 0, 1] to [1, 1, 1] shares [0.0, 0.5, 0.0]>
    ```

    `others` are the second row of each result, then, for cubic resampling, the third and the fourth of each.

    -1 is no row of the image.
    """

    name = "pebble.resampling"

    indices: Sequence[int]
    others: Sequence[int] = ()
    shares: Sequence[float] = ()

    @property
    def size(self) -> int:
        """Rows of the result."""
        return len(self.indices)

    @property
    def taps(self) -> tuple[ResamplingTap, ...]:
        """The rows of which a row of the result has a share: one or more."""
        first = np.array(self.indices, np.int64)
        if not len(self.others):
            return (ResamplingTap(first, np.ones(len(first), np.float32)),)
        shares = np.array(self.shares, np.float32).reshape(-1, self.size)
        others = np.array(self.others, np.int64).reshape(-1, self.size)
        rest = np.float32(1) - shares.sum(axis=0, dtype=np.float32)
        return (ResamplingTap(first, rest), *map(ResamplingTap, others, shares))

    def verify(self) -> None:
        others, shares = len(self.others), len(self.shares)
        if others != shares or (others and (not self.size or others % self.size)):
            raise VerifyException(f"expected no other rows and shares or {self.size}, got {others} and {shares}")
        indices = [*self.indices, *self.others]
        least = 0 if others else OUTSIDE
        if min(indices, default=0) < least:
            raise VerifyException(f"expected rows of {least} or more, got {min(indices)}")

    def fits(self, size: int) -> bool:
        """Return whether an image of so many rows has all that are asked for."""
        return max([*self.indices, *self.others], default=OUTSIDE) < size
