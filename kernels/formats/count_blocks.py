"""`count_blocks`: connections in blocks of inputs, the rows of a block in pairs of equal counts.

The inputs are cut into as many blocks as the IR says. What an output row has in a block is a segment (more than one
beyond `MOST_CONNECTIONS`). Segments are executed block by block, in a block by ascending count, two at a time: a pair's
count is mostly that of the pair before it, so the processor predicts the jump that it selects.
"""

from typing import Final

import numpy as np

from ..family import KernelFamily, LayerWeights
from ..input_blocks import BlockRule
from ..layer_with_pattern import features_over_blocks
from ..row_segments import (
    OFFSET_UNIT,
    PackedBlocks,
    block_borders,
    block_list,
    fetching_flags,
    groups_of,
    ranges,
    records_of,
    segments_of,
)
from ..tile_widths import WIDTHS
from ..work import Layer, Tile, Work

ROWS: Final = 2
"""Rows of a pair."""

MOST_CONNECTIONS: Final = 32
"""Connections of a segment; the kernel has code for each of them."""


BLOCKS: Final = BlockRule("count_blocks", 14, 128, 2048, MOST_CONNECTIONS)
"""14 connections pay for reading and writing sums; 128 inputs take half of the first-level cache in tiles of 64."""


def pack(weights: LayerWeights) -> PackedBlocks:
    """Return the packed form of a layer.

    Raises:
        ValueError: the layer cannot have so many blocks, or so few.
    """
    matrix = weights.sparse
    borders = block_borders(matrix.shape[0], weights.blocks)
    segments = segments_of(matrix, borders, MOST_CONNECTIONS)
    flags = segments.flags
    members = groups_of((segments.round * 4 + flags) * (MOST_CONNECTIONS + 1) + segments.connections, ROWS)
    leaders = members[:, 0]

    counts, base = segments.connections[leaders], borders[segments.block[leaders]]
    marks = flags[leaders] + fetching_flags(matrix.shape[1], 12 * int(counts.sum()))
    sources = np.repeat(segments.start[members], counts, axis=0) + ranges(counts)[:, None]
    offsets = (matrix.rows[sources] - np.repeat(base, counts)[:, None]) * OFFSET_UNIT
    return PackedBlocks(
        block_list(base),
        records_of(segments.row[members], counts, marks),
        matrix.values[sources],
        offsets.astype(np.uint16),
        weights.bias,
    )


def work(layer: Layer, tile: Tile) -> Work:
    """Return the work for a call, weights, their multiply-adds, pairs, their lines, kinds, bytes of x and y again."""
    weights, blocks = float(layer.connections), layer.blocks(BLOCKS)
    kinds = layer.counts_of_segments(blocks)
    pairs = layer.segments(blocks, MOST_CONNECTIONS) / ROWS + kinds / 4
    far = tile.random_far_share(layer.inputs / blocks) * layer.x_share(tile, by_count=True)
    x_again = 4 * weights * tile.width * far
    y_again = 8 * ROWS * pairs * tile.width * tile.far_share(layer.outputs)
    lines = (pairs * tile.line, kinds * tile.passes, x_again, y_again)
    units = (1.0, weights * tile.passes, weights * tile.line, pairs * tile.passes, *lines)
    return Work(units, 6 * weights + 12 * pairs, tile.passes)


FAMILY = KernelFamily(
    "count_blocks", pack, work, WIDTHS[1:], block_rule=BLOCKS, far_features=features_over_blocks(BLOCKS)
)
