"""Packing for `count_blocks`: connections in blocks of inputs, rows of a block in pairs of equal counts.

The inputs are cut into blocks whose part of x stays in the first-level cache. What an output row has in a block is a
piece (more than one beyond `MOST_CONNECTIONS`). Pieces are executed block by block, in a block by ascending count, two
at a time, so that a pair's count is what the pairs before it had and the processor predicts the jump it selects.

A row's cut between two blocks may lie a few connections off the border. Cuts are therefore moved to multiples of
`COUNT_STEP` connections of the row: a block then has about four different counts rather than twenty.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from redpebble.dialect.tensors import CscMatrix

MOST_CONNECTIONS = 32
"""Connections of a piece; the kernel has code for each of them."""

OFFSET_UNIT = 32
"""Bytes between two inputs or outputs in tiles of 8 columns; other widths scale offsets, as x86 addressing does."""

FIRST, LAST = 1, 2
"""Flags of a pair: its rows start with the bias, its rows are complete afterwards."""

RECORDS_AHEAD = 16
"""Records after the last one that may be read (for prefetching)."""

COUNT_STEP = 4
LEAST_INPUTS = 128
MOST_INPUTS = 1024
"""Inputs of a block. With all that cuts move, offsets stay below 2^16 / `OFFSET_UNIT` inputs."""

TYPICAL_COUNT = 12
"""Connections of a piece that pay for reading and writing its sums, where the sparsity lets a block have them."""

Indices = NDArray[np.int64]

BLOCK = np.dtype([("pairs", np.uint32), ("offset", np.uint32)])
"""Number of pairs, and the offset of the block's first input; a block without pairs ends the list."""

RECORD = np.dtype([("rows", np.uint32, 2), ("count", np.uint16), ("flags", np.uint16)])
"""Offsets of two output rows, their number of connections, and flags."""


class CountBlocks(NamedTuple):
    """What the kernel reads; weights and offsets of a pair alternate between its two rows."""

    blocks: NDArray[np.void]
    records: NDArray[np.void]
    weights: NDArray[np.float32]
    offsets: NDArray[np.uint16]
    bias: NDArray[np.float32]


class _Pieces(NamedTuple):
    """Parts of output rows: connections `start` to `start + count`, in the order of rows and of their inputs."""

    row: Indices
    block: Indices
    start: Indices
    count: Indices


def pack_count_blocks(matrix: CscMatrix, bias: NDArray[np.float32]) -> CountBlocks:
    """Return the packed form of `matrix` [inputs, outputs].

    The second row of a pair that has none is the row after the last one: buffers have room for it.
    """
    outputs = matrix.shape[1]
    pieces = _pieces(matrix)
    flags = _flags(pieces.row)
    key = (pieces.block * 4 + flags) * (MOST_CONNECTIONS + 1) + pieces.count
    order = np.argsort(key, kind="stable")
    first, second = _pairs(key[order])
    pairs = _Pieces(*(field[order[first]] for field in pieces))
    partner = order[np.where(second < 0, first, second)]

    records = np.zeros(len(first) + RECORDS_AHEAD, dtype=RECORD)
    filled = records[: len(first)]
    filled["rows"][:, 0] = pairs.row * OFFSET_UNIT
    filled["rows"][:, 1] = np.where(second < 0, outputs, pieces.row[partner]) * OFFSET_UNIT
    filled["count"], filled["flags"] = pairs.count, flags[order[first]]

    place = _ranges(pairs.count)
    sources = np.empty((len(place), 2), dtype=np.int64)
    sources[:, 0] = np.repeat(pairs.start, pairs.count) + place
    sources[:, 1] = np.repeat(pieces.start[partner], pairs.count) + place
    blocks, base = _blocks(pairs, matrix.rows[sources].min(axis=1) if len(sources) else place)
    inputs = matrix.rows[sources] - np.repeat(base, pairs.count)[:, None]
    offsets = (inputs * OFFSET_UNIT).astype(np.uint16)
    return CountBlocks(blocks, records, matrix.values[sources].ravel(), offsets.ravel(), np.pad(bias, (0, 1)))


def block_count(inputs: int, density: float) -> int:
    """Return the number of blocks into which `inputs` are cut."""
    wanted = min(max(TYPICAL_COUNT / density, LEAST_INPUTS), MOST_INPUTS) if density else MOST_INPUTS
    return max(1, round(inputs / wanted), -(-inputs // MOST_INPUTS))


def _pieces(matrix: CscMatrix) -> _Pieces:
    """Return the pieces of all rows; a row without connections is one piece of none, in the first block."""
    outputs, blocks = matrix.shape[1], block_count(matrix.shape[0], matrix.density)
    cuts = _cuts(matrix, blocks)
    counts = np.diff(cuts, axis=1).ravel()
    lengths = np.diff(matrix.pointers)
    parts = -(-counts // MOST_CONNECTIONS)
    parts[::blocks] += lengths == 0
    cell = np.repeat(np.arange(outputs * blocks), parts)
    part, share = _ranges(parts), parts[cell]
    quotient, rest = np.divmod(counts[cell], share)
    start = cuts[:, :-1].ravel()[cell] + part * quotient + np.minimum(part, rest)
    row, block = np.divmod(cell, blocks)
    # parts of one row in one block must not meet in a pair: each has a round of its own
    return _Pieces(row, block * int(parts.max(initial=1)) + part, start, quotient + (part < rest))


def _cuts(matrix: CscMatrix, blocks: int) -> Indices:
    """Return where each row's connections are cut, [outputs, blocks + 1]: at the borders of blocks or near them."""
    inputs, outputs = matrix.shape
    borders = np.arange(1, blocks) * inputs // blocks
    before = np.zeros((outputs, blocks), dtype=np.int64)
    block = np.searchsorted(borders, matrix.rows, side="right")
    np.add.at(before, (matrix.columns, block), 1)
    starts, ends = matrix.pointers[:-1, None], matrix.pointers[1:, None]
    exact = np.cumsum(before, axis=1)[:, :-1] + starts
    moved = np.minimum(starts + np.rint((exact - starts) / COUNT_STEP).astype(np.int64) * COUNT_STEP, ends)
    margin = inputs // blocks // 4
    outermost = np.where(moved > exact, moved - 1, moved)
    reached = matrix.rows[np.minimum(outermost, max(len(matrix.rows) - 1, 0))] if len(matrix.rows) else outermost
    near = (moved == exact) | (np.abs(reached - borders) < margin)
    inner = np.maximum.accumulate(np.where(near, moved, exact), axis=1)
    return np.concatenate([starts, inner, ends], axis=1)


def _flags(row: Indices) -> Indices:
    """Return the flags of pieces that are in the order of rows."""
    changes = np.flatnonzero(row[1:] != row[:-1])
    flags = np.zeros(len(row), dtype=np.int64)
    flags[np.concatenate([[0], changes + 1])] |= FIRST
    flags[np.concatenate([changes, [len(row) - 1]])] |= LAST
    return flags


def _pairs(key: Indices) -> tuple[Indices, Indices]:
    """Return the two places of each pair of neighbours with equal keys; -1 where the last of a run has no second."""
    starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    lengths = np.diff(np.append(starts, len(key)))
    place = _ranges(lengths)
    first = np.flatnonzero(place % 2 == 0)
    alone = place[first] + 1 == np.repeat(lengths, lengths)[first]
    return first, np.where(alone, -1, first + 1)


def _blocks(pairs: _Pieces, least: Indices) -> tuple[NDArray[np.void], Indices]:
    """Return the list of blocks, and each pair's first input, given the least input of every place of the pairs."""
    starts = np.flatnonzero(np.concatenate([[True], pairs.block[1:] != pairs.block[:-1]]))
    lengths = np.diff(np.append(starts, len(pairs.block)))
    places = np.concatenate([[0], np.cumsum(pairs.count)])[starts]
    # a block of rows without connections has no places, and reads no input
    padded = np.append(least, 0)
    base = np.minimum.reduceat(padded, places)
    blocks = np.zeros(len(starts) + 1, dtype=BLOCK)
    blocks["pairs"][:-1], blocks["offset"][:-1] = lengths, base * OFFSET_UNIT
    return blocks, np.repeat(base, lengths)


def _ranges(lengths: Indices) -> Indices:
    """Return 0, 1, ..., length - 1 for each length, one after the other."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
