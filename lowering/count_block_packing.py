"""Packing for `count_blocks`: connections in blocks of inputs, the rows of a block in pairs of equal counts.

The inputs are cut into blocks whose part of x stays in the first-level cache. What an output row has in a block is a
piece (more than one beyond `MOST_CONNECTIONS`). Pieces are executed block by block, in a block by ascending count, two
at a time: a pair's count is mostly that of the pair before it, so the processor predicts the jump that it selects.

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
"""Connections that pay for reading and writing a row's sums: a block has so many inputs that rows have about these."""

Indices = NDArray[np.int64]


class PackedBlocks(NamedTuple):
    """What the kernel reads; whatever belongs to a pair is in the order of the pairs, first row before second row."""

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
    """Parts of output rows, in the order of rows and of their inputs; `round` orders them in time."""

    row: Indices
    round: Indices
    start: Indices
    count: Indices


def pack_count_blocks(matrix: CscMatrix, bias: NDArray[np.float32]) -> PackedBlocks:
    """Return the packed form of `matrix` [inputs, outputs].

    A row without a partner has the row after the last one beside it, for which buffers have room.
    """
    pieces = _pieces(matrix)
    flags = _flags(pieces.row)
    key = (pieces.round * 4 + flags) * (MOST_CONNECTIONS + 1) + pieces.count
    order = np.argsort(key, kind="stable")
    first, alone = _pairs(key[order])
    members = order[np.stack([first, np.where(alone, first, first + 1)], axis=1)]

    counts = pieces.count[members[:, 0]]
    rows = pieces.row[members]
    rows[alone, 1] = matrix.shape[1]
    work = counts + (flags[members[:, :1]][:, 0] << 16)
    records = np.zeros((len(first) + RECORDS_AHEAD, 3), dtype=np.uint32)
    records[: len(first)] = np.column_stack([rows * OFFSET_UNIT, work])

    sources = np.repeat(pieces.start[members], counts, axis=0) + _ranges(counts)[:, None]
    inputs = matrix.rows[sources]
    blocks, base = _blocks(pieces.round[members[:, 0]], counts, inputs)
    offsets = (inputs - np.repeat(base, counts)[:, None]) * OFFSET_UNIT
    packed_offsets = (offsets[:, 0] + (offsets[:, 1] << 16)).astype(np.uint32)
    return PackedBlocks(blocks, records, matrix.values[sources], packed_offsets, np.pad(bias, (0, 1)))


def block_count(inputs: int, density: float) -> int:
    """Return the number of blocks into which `inputs` are cut."""
    wanted = min(max(TYPICAL_COUNT / density, LEAST_INPUTS), MOST_INPUTS) if density else MOST_INPUTS
    return max(1, round(inputs / wanted), -(-inputs // MOST_INPUTS))


def _pieces(matrix: CscMatrix) -> _Pieces:
    """Return the pieces of all rows; a row without connections is one piece of none, in the first block."""
    outputs, blocks = matrix.shape[1], block_count(matrix.shape[0], matrix.density)
    cuts = _cuts(matrix, blocks)
    counts = np.diff(cuts, axis=1).ravel()
    parts = -(-counts // MOST_CONNECTIONS)
    parts[::blocks] += np.diff(matrix.pointers) == 0
    cell = np.repeat(np.arange(outputs * blocks), parts)
    part = _ranges(parts)
    quotient, rest = np.divmod(counts[cell], parts[cell])
    start = cuts[:, :-1].ravel()[cell] + part * quotient + np.minimum(part, rest)
    row, block = np.divmod(cell, blocks)
    # the parts of a row in one block write the same sums, so each has a round of its own
    return _Pieces(row, block * int(parts.max()) + part, start, quotient + (part < rest))


def _cuts(matrix: CscMatrix, blocks: int) -> Indices:
    """Return where each row's connections are cut, [outputs, blocks + 1]: at the borders of blocks or near them."""
    inputs, outputs = matrix.shape
    starts, ends = matrix.pointers[:-1, None], matrix.pointers[1:, None]
    if blocks == 1:
        return np.concatenate([starts, ends], axis=1)
    borders = np.arange(1, blocks) * inputs // blocks
    block = np.searchsorted(borders, np.arange(inputs), side="right")[matrix.rows]
    counts = np.bincount(matrix.columns * blocks + block, minlength=outputs * blocks).reshape(outputs, blocks)
    exact = np.cumsum(counts, axis=1)[:, :-1]
    moved = np.minimum(np.rint(exact / COUNT_STEP).astype(np.int64) * COUNT_STEP, ends - starts)
    # the connection that is farthest from the border among those that change sides
    farthest = np.where(moved > exact, moved - 1, moved) + starts
    distance = np.abs(np.append(matrix.rows, 0)[farthest] - borders)
    near = (moved == exact) | (distance < inputs // blocks // 4)
    inner = np.maximum.accumulate(np.where(near, moved, exact), axis=1)
    return np.concatenate([starts, starts + inner, ends], axis=1)


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


def _blocks(rounds: Indices, counts: Indices, inputs: Indices) -> tuple[NDArray[np.uint32], Indices]:
    """Return the list of blocks, and the first input of each pair's block.

    `rounds` and `counts` are those of the pairs, `inputs` [connections of all pairs, 2].
    """
    lengths = _run_lengths(rounds)
    starts = np.append(0, np.cumsum(counts))[np.cumsum(lengths) - lengths]
    # a block whose rows have no connections reads nothing, wherever it is said to begin
    least = np.append(inputs.min(axis=1), inputs.max(initial=0))
    base = np.minimum.reduceat(least, starts)
    blocks = np.zeros((len(lengths) + 1, 2), dtype=np.uint32)
    blocks[:-1, 0], blocks[:-1, 1] = lengths, base * OFFSET_UNIT
    return blocks, np.repeat(base, lengths)


def _run_lengths(values: Indices) -> Indices:
    """Return the length of each run of equal neighbours."""
    return np.diff(np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1, [len(values)]]))


def _ranges(lengths: Indices) -> Indices:
    """Return 0, 1, ..., length - 1 for each length, one after the other."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
