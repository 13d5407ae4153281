"""Packing for `count_blocks`: connections in blocks of inputs, the rows of a block in pairs of equal counts.

The inputs are cut into blocks whose part of x stays in the first-level cache. What an output row has in a block is a
piece (more than one beyond `MOST_CONNECTIONS`). Pieces are executed block by block, in a block by ascending count, two
at a time: a pair's count is mostly that of the pair before it, so the processor predicts the jump that it selects.
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

FETCH_OUTPUTS, FETCH_STREAMS = 4, 8
"""Flags of all pairs of a matrix: rows of y, or weights and offsets, are fetched ahead of their use."""

MANY_OUTPUTS = 2048
"""Outputs from which rows of y are fetched ahead."""

MANY_BYTES = 1 << 23
"""Size of weights and offsets from which they are fetched ahead: the last-level cache has to deliver them."""

RECORDS_AHEAD = 4
"""Records after the last one that may be read (for prefetching)."""

LEAST_INPUTS, MOST_INPUTS = 128, 2048
"""Inputs of a block: half the first-level cache in tiles of 64 columns, and what offsets of 16 bits can tell apart."""

TYPICAL_COUNT = 14
"""Connections that pay for reading and writing a row's sums: a block has so many inputs that rows have about these."""

Indices = NDArray[np.int64]


class PackedBlocks(NamedTuple):
    """What the kernel reads; what belongs to a pair is in the order of the pairs, first row before second row."""

    blocks: NDArray[np.uint32]
    """[blocks + 1, 2]: pairs, and offset of the first input; a block without pairs ends the list."""
    records: NDArray[np.uint32]
    """[pairs + `RECORDS_AHEAD`, 3]: offsets of the two output rows, connections of each + flags * 2^16."""
    weights: NDArray[np.float32]
    """[connections of all pairs, 2]."""
    offsets: NDArray[np.uint32]
    """[connections of all pairs]: offset of the first row's input in the block + that of the second row's * 2^16."""
    bias: NDArray[np.float32]
    """[outputs + 1]."""


class _Pieces(NamedTuple):
    """Parts of output rows, in the order of rows and of their inputs.

    The parts of a row in one block write the same sums, so they are executed in different rounds.
    """

    row: Indices
    block: Indices
    round: Indices
    start: Indices
    connections: Indices


def pack_count_blocks(matrix: CscMatrix, bias: NDArray[np.float32]) -> PackedBlocks:
    """Return the packed form of `matrix` [inputs, outputs].

    A row without a partner has the row after the last one beside it, for which buffers have room.
    """
    inputs, outputs = matrix.shape
    blocks = block_count(inputs, matrix.density)
    borders = np.arange(blocks + 1) * inputs // blocks
    pieces = _pieces(matrix, borders)
    flags = _flags(pieces.row)
    key = (pieces.round * 4 + flags) * (MOST_CONNECTIONS + 1) + pieces.connections
    order = np.argsort(key, kind="stable")
    first, alone = _pairs(key[order])
    members = order[np.stack([first, np.where(alone, first, first + 1)], axis=1)]
    leaders = members[:, 0]

    counts, base = pieces.connections[leaders], borders[pieces.block[leaders]]
    rows = pieces.row[members]
    rows[alone, 1] = outputs
    fetched = FETCH_OUTPUTS * (outputs >= MANY_OUTPUTS) + FETCH_STREAMS * (12 * counts.sum() >= MANY_BYTES)
    marks = flags[leaders] + fetched
    records = np.zeros((len(first) + RECORDS_AHEAD, 3), dtype=np.uint32)
    records[: len(first)] = np.column_stack([rows * OFFSET_UNIT, counts + (marks << 16)])

    sources = np.repeat(pieces.start[members], counts, axis=0) + _ranges(counts)[:, None]
    offsets = (matrix.rows[sources] - np.repeat(base, counts)[:, None]) * OFFSET_UNIT
    halves = (offsets[:, 0] + (offsets[:, 1] << 16)).astype(np.uint32)
    return PackedBlocks(_blocks(base), records, matrix.values[sources], halves, np.pad(bias, (0, 1)))


def block_count(inputs: int, density: float) -> int:
    """Return the number of blocks into which `inputs` are cut."""
    wanted = min(max(TYPICAL_COUNT / density, LEAST_INPUTS), MOST_INPUTS) if density else MOST_INPUTS
    return max(1, round(inputs / wanted), -(-inputs // MOST_INPUTS))


def _pieces(matrix: CscMatrix, borders: Indices) -> _Pieces:
    """Return the pieces of all rows; a row without connections is one piece of none, in the first block."""
    outputs, blocks = matrix.shape[1], len(borders) - 1
    block = np.repeat(np.arange(blocks), np.diff(borders))[matrix.rows]
    counts = np.bincount(matrix.columns * blocks + block, minlength=outputs * blocks)
    parts = -(-counts // MOST_CONNECTIONS)
    parts[::blocks] += np.diff(matrix.pointers) == 0
    cell, part = np.repeat(np.arange(outputs * blocks), parts), _ranges(parts)
    quotient, rest = np.divmod(counts[cell], parts[cell])
    count = quotient + (part < rest)
    row, block = np.divmod(cell, blocks)
    return _Pieces(row, block, block * int(parts.max()) + part, np.cumsum(count) - count, count)


def _flags(row: Indices) -> Indices:
    """Return the flags of pieces that are in the order of rows."""
    changes = np.flatnonzero(np.diff(row))
    flags = np.zeros(len(row), dtype=np.int64)
    flags[np.append(0, changes + 1)] |= FIRST
    flags[np.append(changes, len(row) - 1)] |= LAST
    return flags


def _pairs(key: Indices) -> tuple[Indices, NDArray[np.bool_]]:
    """Return the first place of each pair of neighbours with equal keys, and whether it has no second one."""
    lengths = _run_lengths(key)
    place = _ranges(lengths)
    first = np.flatnonzero(place % 2 == 0)
    return first, place[first] + 1 == np.repeat(lengths, lengths)[first]


def _blocks(base: Indices) -> NDArray[np.uint32]:
    """Return the list of blocks, given the first input of each pair's block."""
    lengths = _run_lengths(base)
    blocks = np.zeros((len(lengths) + 1, 2), dtype=np.uint32)
    blocks[:-1] = np.column_stack([lengths, base[np.cumsum(lengths) - lengths] * OFFSET_UNIT])
    return blocks


def _run_lengths(values: Indices) -> Indices:
    """Return the length of each run of equal neighbours."""
    starts = np.append(0, np.flatnonzero(np.diff(values)) + 1)
    return np.append(starts[1:], len(values)) - starts


def _ranges(lengths: Indices) -> Indices:
    """Return 0, 1, ..., length - 1 for each length, one after the other."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
