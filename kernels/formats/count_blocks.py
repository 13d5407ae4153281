"""Packing for `count_blocks`: connections in blocks of inputs, the rows of a block in pairs of equal counts.

The inputs are cut into as many blocks as the IR says. What an output row has in a block is a piece (more than one
beyond `MOST_CONNECTIONS`). Pieces are executed block by block, in a block by ascending count, two at a time: a pair's
count is mostly that of the pair before it, so the processor predicts the jump that it selects.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from redpebble.kernels.pieces import (
    OFFSET_UNIT,
    PackedBlocks,
    block_borders,
    block_list,
    fetching_flags,
    groups_of,
    pieces_of,
    ranges,
    records_of,
)
from redpebble.sparse.csr import CscMatrix

ROWS: Final = 2
"""Rows of a pair."""

MOST_CONNECTIONS: Final = 32
"""Connections of a piece; the kernel has code for each of them."""


def pack_count_blocks(matrix: CscMatrix, bias: NDArray[np.float32], blocks: int | None = None) -> PackedBlocks:
    """Return the packed form of `matrix` [inputs, outputs] over so many blocks, or over the fewest there are.

    Raises:
        ValueError: the matrix cannot have so many blocks, or so few.
    """
    borders = block_borders(matrix.shape[0], blocks)
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
