"""Whole numbers of a few bits each, bit by bit: the highest ones of a row come first."""

import numpy as np
from numpy.typing import NDArray

from .replicas import Bytes


def packed_numbers(numbers: NDArray[np.uint8], bits: int) -> Bytes:
    """Return the lowest bits of numbers [rows, count], packed [rows, bits * count / 8]; count is a multiple of 8."""
    places = range(bits - 1, -1, -1)
    return np.concatenate([np.packbits(numbers & np.uint8(1 << place), axis=1) for place in places], axis=1)


def unpacked_numbers(packed: Bytes, bits: int, count: int) -> NDArray[np.uint8]:
    """Return the numbers [rows, count] of what was packed."""
    numbers = np.unpackbits(packed[:, : count // 8], axis=1)
    for place in range(1, bits):
        numbers += numbers
        numbers |= np.unpackbits(packed[:, place * count // 8 : (place + 1) * count // 8], axis=1)
    return numbers
