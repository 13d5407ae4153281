"""Outputs that are no float32: native code yields floats, which become codes or floats of another width behind it.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class OutputCast(NamedTuple):
    """The dtype of floats that an output is cast to."""

    dtype: str

    def of(self, floats: NDArray[np.float32]) -> NDArray[Any]:
        """Return floats of this dtype: the nearest ones, infinite where they are beyond its range."""
        with np.errstate(over="ignore"):
            return floats.astype(self.dtype)


class OutputCodes(NamedTuple):
    """The dtype of an output, the distance of the values of two codes, and the code of 0."""

    dtype: str
    scale: float
    zero: int

    def of(self, floats: NDArray[np.float32]) -> NDArray[Any]:
        """Return the codes of floats: the nearest ones, even where two are; a NaN has the least code."""
        ends = np.iinfo(self.dtype)
        low, high = np.float32(ends.min - self.zero), np.float32(ends.max - self.zero)
        multiples = floats / np.float32(self.scale)
        steps = np.rint(np.minimum(np.where(multiples > low, multiples, low), high))
        return (steps.astype(np.int16) + self.zero).astype(self.dtype)


OutputForm = OutputCast | OutputCodes
