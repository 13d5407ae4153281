"""Cutting a sparse matrix for kernels over blocks of inputs: what an output row has in a block is a segment.

Groups of segments are executed together, block by block. The arrays that such kernels read:
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..sparse.csr import CscMatrix, stable_order
from .input_blocks import fewest_blocks

OFFSET_UNIT = 32
"""Bytes between two inputs or outputs in tiles of 8 columns; other widths scale offsets, as x86 addressing does."""

FIRST, LAST = 1, 2
"""Flags of a group: its rows start with the bias, its rows are complete afterwards."""

FETCH_OUTPUTS, FETCH_STREAMS = 4, 8
"""Flags of all groups of a matrix: rows of y, or weights and offsets, are fetched ahead of their use."""

MANY_OUTPUTS = 512
"""Outputs from which rows of y are fetched ahead."""

MANY_BYTES = 1 << 23
"""Size of weights and offsets from which they are fetched ahead: the last-level cache has to deliver them."""

RECORDS_AHEAD = 4
"""Distance in groups at which rows of y are prefetched; so many records after the last one may be read."""

Indices = NDArray[np.int64]


def block_borders(inputs: int, blocks: int | None) -> Indices:
    """Return where `blocks` about equal blocks of inputs begin, and where the last one ends; None: the fewest possible.

    Raises:
        ValueError: blocks would have more inputs than offsets tell apart, or there are fewer inputs than blocks.
    """
    fewest, most = fewest_blocks(inputs), max(1, inputs)
    count = fewest if blocks is None else blocks
    if not fewest <= count <= most:
        raise ValueError(f"expected {fewest} to {most} blocks of {inputs} inputs, got {count}")
    return np.arange(count + 1) * inputs // count


class PackedBlocks(NamedTuple):
    """Packed connections; what belongs to a group of R rows is in the order of the groups, row after row."""

    blocks: NDArray[np.uint32]
    """[blocks + 1, 2]: groups, and offset of the first input; a block without groups ends the list."""
    records: NDArray[np.uint32]
    """[groups + `RECORDS_AHEAD`, R + 1]: offsets of the output rows, connections of each + flags * 2^16."""
    weights: NDArray[np.float32]
    """[connections of all groups, R]."""
    offsets: NDArray[np.uint16]
    """[connections of all groups, R]: offsets of the inputs in the block."""
    bias: NDArray[np.float32]
    """[outputs]."""


class RowSegments(NamedTuple):
    """Parts of output rows, in the order of rows and of their inputs.

    The parts of a row in one block (more than one where it has too many connections) write the same sums, so they are
    executed in different rounds.
    """

    row: Indices
    block: Indices
    round: Indices
    start: Indices
    connections: Indices

    @property
    def flags(self) -> Indices:
        """Whether a segment is the first, or the last, of its row."""
        changes = np.flatnonzero(np.diff(self.row))
        flags = np.zeros(len(self.row), dtype=np.int64)
        flags[np.append(0, changes + 1)] |= FIRST
        flags[np.append(changes, len(self.row) - 1)] |= LAST
        return flags


def segments_of(matrix: CscMatrix, borders: Indices, most: int) -> RowSegments:
    """Return the segments of all rows, of at most `most` connections in the blocks between `borders`.

    A row without connections is one segment of none, in the first block.
    """
    outputs, blocks = matrix.shape[1], len(borders) - 1
    block = np.repeat(np.arange(blocks), np.diff(borders))[matrix.rows]
    counts = np.bincount(matrix.columns * blocks + block, minlength=outputs * blocks)
    parts = -(-counts // most)
    parts[::blocks] += np.diff(matrix.pointers) == 0
    cell, part = np.repeat(np.arange(outputs * blocks), parts), ranges(parts)
    quotient, rest = np.divmod(counts[cell], parts[cell])
    count = quotient + (part < rest)
    row, block = np.divmod(cell, blocks)
    return RowSegments(row, block, block * int(parts.max()) + part, np.cumsum(count) - count, count)


def groups_of(keys: Indices, rows: int) -> Indices:
    """Return groups [groups, rows] of segments of equal keys, in the order of the keys.

    Where segments lack, the first one is there again: it computes and writes the same sums twice, as the rows beside it
    may be another thread's.
    """
    order = stable_order(keys, int(keys.max(initial=0)) + 1)
    lengths = run_lengths(keys[order])
    entry = ranges(lengths)
    first = np.flatnonzero(entry % rows == 0)
    present = np.minimum(np.repeat(lengths, lengths)[first] - entry[first], rows)
    column = np.arange(rows)[None, :]
    return order[first[:, None] + np.where(column < present[:, None], column, 0)]


def records_of(rows: Indices, counts: Indices, marks: Indices) -> NDArray[np.uint32]:
    """Return the records of groups: their rows [groups, R], the connections of each, and flags."""
    records = np.zeros((len(rows) + RECORDS_AHEAD, rows.shape[1] + 1), dtype=np.uint32)
    records[: len(rows)] = np.column_stack([rows * OFFSET_UNIT, counts + (marks << 16)])
    return records


def block_list(base: Indices) -> NDArray[np.uint32]:
    """Return the list of blocks [blocks + 1, 2], given the first input of each group's block [groups]."""
    lengths = run_lengths(base)
    blocks = np.zeros((len(lengths) + 1, 2), dtype=np.uint32)
    blocks[:-1] = np.column_stack([lengths, base[np.cumsum(lengths) - lengths] * OFFSET_UNIT])
    return blocks


def fetching_flags(outputs: int, stream_bytes: int) -> int:
    """Return the flags that say what is fetched ahead."""
    return FETCH_OUTPUTS * (outputs >= MANY_OUTPUTS) + FETCH_STREAMS * (stream_bytes >= MANY_BYTES)


def run_lengths(values: Indices) -> Indices:
    """Return the length of each run of equal neighbours."""
    starts = np.append(0, np.flatnonzero(np.diff(values)) + 1)
    return np.append(starts[1:], len(values)) - starts


def ranges(lengths: Indices) -> Indices:
    """Return 0, 1, ..., length - 1 for each length, one after the other."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
