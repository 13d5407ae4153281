"""Packing for `count_blocks`: connections in blocks of inputs, the rows of a block in pairs of equal counts.

The inputs are cut into blocks whose part of x stays in the first-level cache. What an output row has in a block is a
piece (more than one beyond `MOST_CONNECTIONS`). Pieces are executed block by block, in a block by ascending count, two
at a time: a pair's count is mostly that of the pair before it, so the processor predicts the jump that it selects.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from redpebble.dialect.tensors import CscMatrix
from redpebble.lowering.block_pieces import (
    MOST_INPUTS,
    OFFSET_UNIT,
    BlockSizes,
    PackedBlocks,
    block_list,
    fetching_flags,
    groups_of,
    pieces_of,
    ranges,
    records_of,
)

ROWS: Final = 2
"""Rows of a pair."""

MOST_CONNECTIONS: Final = 32
"""Connections of a piece; the kernel has code for each of them."""

BLOCKS: Final = BlockSizes(connections=14, least=128, most=MOST_INPUTS)
"""14 connections pay for reading and writing sums; 128 inputs take half the first-level cache in tiles of 64."""


def pack_count_blocks(matrix: CscMatrix, bias: NDArray[np.float32]) -> PackedBlocks:
    """Return the packed form of `matrix` [inputs, outputs]."""
    borders = BLOCKS.borders(matrix)
    pieces = pieces_of(matrix, borders, MOST_CONNECTIONS)
    flags = pieces.flags
    members = groups_of((pieces.round * 4 + flags) * (MOST_CONNECTIONS + 1) + pieces.connections, ROWS)
    leaders = members[:, 0]

    counts, base = pieces.connections[leaders], borders[pieces.block[leaders]]
    marks = flags[leaders] + fetching_flags(matrix.shape[1], 12 * int(counts.sum()))
    sources = np.repeat(pieces.start[members], counts, axis=0) + ranges(counts)[:, None]
    offsets = (matrix.rows[sources] - np.repeat(base, counts)[:, None]) * OFFSET_UNIT
    return PackedBlocks(
        block_list(base),
        records_of(pieces.row[members], counts, marks),
        matrix.values[sources],
        offsets.astype(np.uint16),
        bias,
    )
