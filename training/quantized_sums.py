"""Sums over replicas in a few bits a value, with what is lost carried to the next step.

A block of values becomes whole multiples of a step, -m to m with m = 2^(bits - 1) - 1, at random one of the two
nearest, so that the mean is kept; zero stays zero. The last multiple is some root mean squares of the block, what is
beyond is cut off. One bit is the sign times the mean of absolutes (EF-signSGD, Karimireddy et al. 2019). What codes err
is added to the next step's values: it does not grow as long as it is less than what was there, in squares.

Every replica gets the codes of its share from all others, adds them up, and sends codes of the sum, whose error it
keeps: 2 * bits a value and step, in place of two floats. For Lion there are sums of directions, see
`redpebble.training.direction_sums`.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .replicas import Bytes, Replicas

Floats = NDArray[np.float32]

BLOCK: Final = 512
"""Values that have one scale: 32 bits for them are a sixteenth of a bit for each."""

REACH: Final = {2: 1.5, 3: 2.5}
"""Root mean squares of a block that the largest multiple is, by bits."""

FURTHEST: Final = 4.0
"""The same from 4 bits on."""

MOST_BITS: Final = 8


class Codes(NamedTuple):
    """Codes of blocks [blocks, bits * BLOCK / 8] and their scales [blocks]."""

    packed: Bytes
    scales: Floats


def encoded(values: Floats, bits: int, rng: np.random.Generator) -> Codes:
    """Return the codes of values [blocks, BLOCK]."""
    if bits == 1:
        return Codes(np.packbits(values > 0, axis=1), np.abs(values).mean(axis=1))
    most = _most(bits)
    reach = REACH.get(bits, FURTHEST) * np.sqrt(np.square(values).mean(axis=1))
    scales = np.minimum(reach, np.abs(values).max(axis=1)) / np.float32(most)
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
    multiples = values * inverse[:, None]
    multiples += rng.random(values.shape, dtype=np.float32)
    whole = np.clip(np.floor(multiples, out=multiples), -most, most, out=multiples)
    whole += most
    return Codes(packed_numbers(whole.astype(np.uint8), bits), scales)


def decoded(codes: Codes, bits: int) -> Floats:
    """Return the values [blocks, BLOCK] that codes stand for."""
    whole = unpacked_numbers(codes.packed, bits, BLOCK).astype(np.float32)
    if bits == 1:
        return (whole * 2 - 1) * codes.scales[:, None]
    whole -= _most(bits)
    return whole * codes.scales[:, None]


def _most(bits: int) -> int:
    return (1 << (bits - 1)) - 1


class QuantizedSums:
    """Sums over replicas of arrays of the same size, in `bits` a value, 1 to 8."""

    def __init__(self, replicas: Replicas, count: int, bits: int, seed: int) -> None:
        """Start without errors."""
        self._replicas, self._count, self._bits = replicas, count, bits
        self._rng = np.random.default_rng((seed, replicas.rank))
        self._share = -(-count // (BLOCK * replicas.size))
        shape = (replicas.size * self._share, BLOCK)
        self._lost = np.zeros(shape, np.float32)
        self._sum_lost = np.zeros((self._share, BLOCK), np.float32)

    def add(self, values: Floats) -> None:
        """Replace values [count] by the sum over all replicas, the same on each, as far as codes tell it."""
        if self._replicas.size == 1:
            return
        self._lost.reshape(-1)[: self._count] += values
        sent = encoded(self._lost, self._bits, self._rng)
        self._lost -= decoded(sent, self._bits)
        received = decoded(without_scales(self._replicas.scatter(with_scales(sent))), self._bits)
        self._sum_lost += received.reshape(self._replicas.size, *self._sum_lost.shape).sum(axis=0)
        total = encoded(self._sum_lost, self._bits, self._rng)
        self._sum_lost -= decoded(total, self._bits)
        every = decoded(without_scales(self._replicas.gather(with_scales(total))), self._bits)
        values[:] = every.reshape(-1)[: self._count]


def with_scales(codes: Codes) -> Bytes:
    """Return codes and scales of each block, one behind the other."""
    scales = np.ascontiguousarray(codes.scales, np.float32).view(np.uint8).reshape(-1, 4)
    return np.concatenate((codes.packed, scales), axis=1)


def without_scales(blocks: Bytes) -> Codes:
    """Return the codes that `with_scales` made bytes of."""
    return Codes(blocks[:, :-4], np.ascontiguousarray(blocks[:, -4:]).view(np.float32)[:, 0])


# Whole numbers of a few bits each, bit by bit: the highest ones of a row come first.


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
