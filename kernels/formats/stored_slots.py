"""Packed slots in as few bytes as their weights need, for files: a bit for each weight, four for each that is not zero.

What is read from a file becomes `code_slots` again before it is used, by `lowering/calls/slot_unpacking.py`. The units
of a panel stay in its order; of each 16 inputs there are 16 bits for each output, the lowest for the first input. Where
most weights are zeros, the numbers of zeros between the others take less than these bits: four bits each, 15 for 15
zeros and no weight behind them.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from .code_slots import (
    DENSE_BIT,
    DENSE_LINES,
    LINE,
    LOOKED_UP,
    MIDDLE,
    PAIR_INPUTS,
    PAIRED_LINES,
    PANEL_WIDTH,
    PANELS_AT_ONCE,
    SLOTS,
    STEP_BYTES,
    UNIT,
    PackedSlots,
)

STORED: Final = np.dtype("V16")
"""The type of the array for files, which no other one has."""

HEADER_BYTES: Final = 64

FOUR_BITS: Final = 15

DENSE_KEY: Final = 15
"""The key of a block all of whose weights are stored; that of another one is the number of its steps."""

PAIRED_KEY: Final = 14
"""The key of a block with two weights of each four inputs."""

Bytes = NDArray[np.uint8]


class StoredHeader(NamedTuple):
    """Numbers of 32 bits at the beginning; the parts follow each other, each from a multiple of 16 bytes on.

    Those of `code_slots` first: its first line, heads and scales as they are. Then keys: a byte for each unit by its
    number, the key of its first 16 inputs in the higher half. Then zeros of four bits for each output of a unit, if
    there are any but the middle one: a weight is its code minus them, and has the lowest bits of that in `codes`.
    Then bits, or gaps.
    """

    lines: int
    """Lines of 32 bytes that become of it."""
    has_zeros: int
    has_gaps: int
    scales: int
    """The byte that a part begins at; heads come behind the first line of `code_slots`."""
    keys: int
    zeros: int
    places: int
    codes: int


def stored(array: NDArray[np.void]) -> NDArray[np.void]:
    """Return a packed array as it is kept in files: itself where it cannot be smaller."""
    packed = PackedSlots.of(array)
    keys = _keys(packed)
    if keys is None:
        return array
    steps = np.concatenate([*_steps_of_blocks(packed), np.zeros((0, PANEL_WIDTH, LOOKED_UP), np.int8)])
    zeros = _zeros(packed, steps)
    flat = steps.reshape(-1)
    found = np.flatnonzero(flat)
    bits = np.packbits(flat != 0, bitorder="little")
    # a gap takes half a byte at least
    gaps = _gaps(found) if len(found) < 2 * len(bits) else None
    has_gaps, has_zeros = gaps is not None and len(gaps) < len(bits), bool((zeros != MIDDLE).any())
    parts: list[NDArray[np.generic]] = [
        packed.scales,
        keys,
        _in_halves(zeros.reshape(-1)) if has_zeros else np.zeros(0, np.uint8),
        gaps if gaps is not None and has_gaps else bits,
        _in_halves(flat[found] & FOUR_BITS),
    ]
    first = np.concatenate([array[:1].view(np.uint8), packed.heads.reshape(-1).view(np.uint8)])
    rooms = [_padded(part) for part in parts]
    starts = HEADER_BYTES + len(first) + np.cumsum([0, *map(len, rooms)])
    header = StoredHeader(len(array), has_zeros, has_gaps, *map(int, starts[:-1]))
    numbers = np.array([*header, *[0] * (HEADER_BYTES // 4 - len(header))], np.uint32)
    whole = np.concatenate([numbers.view(np.uint8), first, *rooms]).view(STORED)
    return whole if whole.nbytes < array.nbytes else array


def unpacked_bytes(array: NDArray[np.void]) -> int:
    """Return the bytes of the packed array that a stored one becomes."""
    return int(array[:1].view(np.uint32)[0]) * STEP_BYTES


def is_stored(array: NDArray[np.generic]) -> TypeGuard[NDArray[np.void]]:
    """Return whether an array has to be unpacked before it is used."""
    return array.dtype == STORED


def as_stored(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return an array of any kind as it is kept in files."""
    return stored(array.view(LINE)) if array.dtype == LINE else array


def _padded(part: NDArray[np.generic]) -> Bytes:
    content = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
    return np.pad(content, (0, -len(content) % STORED.itemsize))


def _in_halves(values: NDArray[np.int8]) -> Bytes:
    """Return values of four bits, two in a byte, the first one in the lower half."""
    pairs = np.pad(values, (0, len(values) % 2)).astype(np.uint8).reshape(-1, 2)
    return pairs[:, 0] | pairs[:, 1] << np.uint8(4)


def _gaps(found: NDArray[np.int64]) -> Bytes:
    """Return the number of zeros before each weight; zeros that fill up the last bytes have no weight behind them."""
    gaps = np.diff(found, prepend=-1) - 1
    longer = gaps // FOUR_BITS
    count, whole = int(longer.sum()) + len(gaps), 2 * STORED.itemsize
    written = np.full(count + -count % whole, FOUR_BITS, np.int8)
    written[np.cumsum(longer + 1) - 1] = gaps % FOUR_BITS
    return _in_halves(written)


def _keys(packed: PackedSlots) -> Bytes | None:
    """Return the keys of units by their numbers [panels, units]; None where there are too many steps for one."""
    lines = np.stack([packed.units & 255, packed.units >> 8 & 255])
    if packed.units.shape[1] > 1 << 16 or lines.max(initial=0, where=lines < DENSE_BIT) >= PAIRED_KEY:
        return None
    whole = np.where(lines == DENSE_BIT | DENSE_LINES, DENSE_KEY, PAIRED_KEY)
    first, second = np.where(lines >= DENSE_BIT, whole, lines)
    keys = np.zeros(packed.units.shape, np.uint8)
    np.put_along_axis(keys, (packed.units >> 16).astype(np.int64), (first << 4 | second).astype(np.uint8), axis=1)
    return keys


def _steps_of_blocks(packed: PackedSlots) -> Iterator[NDArray[np.int8]]:
    """Yield the steps of blocks [blocks, 16 outputs, 16 inputs], those of some panels at once, in the panels' order."""
    start = 0
    for first in range(0, len(packed.units), PANELS_AT_ONCE):
        words = packed.units[first : first + PANELS_AT_ONCE]
        halves = [words & 255, words >> 8 & 255] if packed.unit == UNIT else [words & 255]
        kinds = np.stack(halves, axis=-1).reshape(-1).astype(np.int64)
        is_dense, is_paired = (kinds == DENSE_BIT | count for count in (DENSE_LINES, PAIRED_LINES))
        lines = kinds & DENSE_BIT - 1
        slots = packed.slots[start : start + int(lines.sum())]
        start += len(slots)
        found = np.zeros((len(kinds), PANEL_WIDTH, LOOKED_UP), np.int8)
        begins = np.cumsum(lines) - lines
        found[is_dense] = _of_dense_lines(slots[begins[is_dense, np.newaxis] + np.arange(DENSE_LINES)])
        found[is_paired] = _of_paired_lines(slots[begins[is_paired, np.newaxis] + np.arange(PAIRED_LINES)])
        in_steps = np.repeat(kinds < DENSE_BIT, lines)
        block = np.repeat(np.arange(len(kinds)), lines)[in_steps]
        written = slots[in_steps].reshape(-1, PANEL_WIDTH, STEP_BYTES // PANEL_WIDTH)
        line, output, slot = np.nonzero(written)
        bytes_ = written[line, output, slot]
        sizes = (bytes_ >> 4 & 7).astype(np.int8)
        np.add.at(found, (block[line], output, bytes_ & 15), np.where(bytes_ & 128, -sizes, sizes))
        yield found


def _of_dense_lines(lines: Bytes) -> NDArray[np.int8]:
    """Return the steps of blocks whose weights are all stored [blocks, 16 outputs, 16 inputs]."""
    halves = np.stack([lines & 15, lines >> 4], axis=2)
    pairs = halves.reshape(-1, DENSE_LINES, 2, PANEL_WIDTH, 2)
    return np.moveaxis(pairs, 3, 1).reshape(-1, PANEL_WIDTH, LOOKED_UP).astype(np.int8) - np.int8(MIDDLE)


def _of_paired_lines(lines: Bytes) -> NDArray[np.int8]:
    """Return the steps of blocks with two weights of each four inputs [blocks, 16 outputs, 16 inputs]."""
    found = np.zeros((len(lines), PANEL_WIDTH, LOOKED_UP), np.int8)
    block, output = np.ogrid[: len(lines), :PANEL_WIDTH]
    for quad in range(LOOKED_UP // PAIR_INPUTS):
        codes = (lines[:, quad // 2] >> 4 * (quad % 2) & FOUR_BITS).astype(np.int8) - np.int8(MIDDLE)
        places = PAIR_INPUTS * quad + (lines[:, 2] >> 2 * quad & 3)
        for slot in range(SLOTS):
            np.add.at(found, (block, output, places[:, slot::SLOTS]), codes[:, slot::SLOTS])
    return found


def _zeros(packed: PackedSlots, steps: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return a zero for each output of a unit, for which codes of its weights have four bits."""
    by_unit = steps.reshape(-1, packed.unit // LOOKED_UP, PANEL_WIDTH, LOOKED_UP)
    least, most = by_unit.min(axis=(1, 3), initial=0), by_unit.max(axis=(1, 3), initial=0)
    is_middle = (least >= -MIDDLE) & (most < MIDDLE)
    return np.where(is_middle, MIDDLE, -least).astype(np.int8)
