"""Signs of sums over replicas of numbers rounded to a few bits: the reduction of Lion's directions.

A number is its sign and one of 2^(bits - 1) magnitudes, which fall from the largest of its block by a constant factor:
only the sign of the sum counts, so small numbers need the same relative precision as large ones, in case replicas
disagree about the large ones. Levels at the same distance, by the mean of absolutes, lose more.

Momentum of replicas stays apart, and is never needed elsewhere: the sum of directions is linear in it, so that without
rounding steps are those of Lion on sums of float32. Replicas get what all others have of their share, in `bits` a
number, and send signs of sums, one bit: bits + 1 a number and step in place of two floats. Source: Lion Cub (Ishikawa
et al. 2024) quantizes before the sign; magnitudes by factors are ours.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .quantized_sums import Codes, packed_numbers, unpacked_numbers, with_scales, without_scales
from .replicas import Bytes, Replicas

Floats = NDArray[np.float32]

BLOCK: Final = 256
"""Values that have one scale: 32 bits for them are an eighth of a bit for each."""

LEAST: Final = 64.0
"""The largest magnitude of a block over the smallest one."""

LEAST_OF_TWO: Final = 4.0
"""The same where there are two."""


def encoded(values: Floats, bits: int) -> Codes:
    """Return the codes of values [blocks, BLOCK], in 2 bits or more each; zero has a sign, too."""
    sizes = np.abs(values)
    scales = sizes.max(axis=1)
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
    sizes *= inverse[:, None]
    falls = np.log2(np.maximum(sizes, np.float32(1 / LEAST), out=sizes), out=sizes)
    falls *= np.float32(-1 / np.log2(_factor(bits)))
    levels = np.minimum(np.rint(falls, out=falls), _most(bits), out=falls).astype(np.uint8)
    levels |= np.left_shift(values > 0, bits - 1, dtype=np.uint8)
    return Codes(packed_numbers(levels, bits), scales)


def decoded(codes: Codes, bits: int) -> Floats:
    """Return the values [blocks, BLOCK] that codes stand for."""
    numbers = unpacked_numbers(codes.packed, bits, BLOCK)
    magnitudes = (_factor(bits) ** -np.arange(_most(bits) + 1)).astype(np.float32)
    return np.concatenate((-magnitudes, magnitudes))[numbers] * codes.scales[:, None]


def _most(bits: int) -> int:
    return (1 << (bits - 1)) - 1


def _factor(bits: int) -> float:
    return float((LEAST_OF_TWO if bits == 2 else LEAST) ** (1 / _most(bits)))


class DirectionSums:
    """Signs of sums over replicas of arrays of the same size, in `bits` a value, 2 to 8."""

    def __init__(self, replicas: Replicas, count: int, bits: int) -> None:
        """Make room for so many values."""
        self._replicas, self._count, self._bits = replicas, count, bits
        share = -(-count // (BLOCK * replicas.size))
        self._blocks = np.zeros((replicas.size * share, BLOCK), np.float32)

    def signs(self, values: Floats) -> Bytes:
        """Return the bits [count] of sums that are more than zero, as `np.packbits` packs them."""
        self._blocks.reshape(-1)[: self._count] = values
        sent = with_scales(encoded(self._blocks, self._bits))
        received = decoded(without_scales(self._replicas.scatter(sent)), self._bits)
        sums = received.reshape(self._replicas.size, -1, BLOCK).sum(axis=0)
        every = self._replicas.gather(np.packbits(sums > 0, axis=1))
        return every.reshape(-1)[: -(-self._count // 8)]
