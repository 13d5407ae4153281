"""Bfloat16: the upper half of a float32, eight bits of mantissa."""

import numpy as np
from numpy.typing import NDArray

QUIET = np.uint16(0x40)
"""The bit by which a NaN stays one whatever else is cut off."""


def bfloat_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the bits of the nearest bfloat16 of each value, ties to even; a NaN stays one."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    upper = (bits >> 16).astype(np.uint16)
    # sums pass 32 bits for NaN alone, which is cut instead
    rounded = ((bits.astype(np.uint64) + 0x7FFF + (upper & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), upper | QUIET, rounded)


def rounded_to_bfloat(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the nearest bfloat16 of each value, as float32."""
    return (bfloat_bits(values).astype(np.uint32) << 16).view(np.float32)
