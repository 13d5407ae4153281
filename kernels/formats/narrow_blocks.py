"""`narrow_blocks`: connections in blocks of inputs, the rows of a block in fours of about equal counts.

A narrow tile has little work a connection, so a mispredicted jump is dear, and rows without a partner are too. So the
counts of a block's rows are rounded up to a multiple of 1, 2, 4 or 8, whichever leaves the least work: few counts are
left, and nearly all rows find partners. A row gets more connections by having its last one in parts, w/2 + w/4 + w/4
in place of w, which is the same product whatever the input is, an infinity included.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..family import KernelFamily, LayerWeights
from ..input_blocks import MOST_INPUTS, BlockRule
from ..layer_with_pattern import features_over_blocks
from ..row_segments import (
    OFFSET_UNIT,
    Indices,
    PackedBlocks,
    RowSegments,
    block_borders,
    block_list,
    fetching_flags,
    groups_of,
    ranges,
    records_of,
    run_lengths,
    segments_of,
)
from ..work import Layer, Tile, Work

GROUP_ROWS: Final = 4
"""Rows of a group: their multiply-adds hide each other's latency."""

STEPS: Final = 8
"""Connections of a row in one round of the kernel."""

MOST_CONNECTIONS: Final = MOST_INPUTS
"""Connections of a segment: as many as a block has inputs at most, so rows are not cut inside one."""

BLOCKS: Final = BlockRule("narrow_blocks", 50, 512, 1024, MOST_CONNECTIONS)
"""A row gains nothing by more than 50 connections; so many inputs take one to two thirds of the first-level cache in
tiles of 8."""

UNITS: Final = (1, 2, 4, 8)
"""Multiples that counts may be rounded up to."""

GROUP_COST: Final = 12
"""Overhead of a group beside its connections, in these."""
COUNT_COST: Final = 40
"""Overhead of a change of the count, which is mispredicted, in connections."""


class _Rounded(NamedTuple):
    """Groups [groups, 4] of segments, and the connections that each of a group is given."""

    members: Indices
    counts: Indices


def pack(weights: LayerWeights) -> PackedBlocks:
    """Return the packed form of a layer.

    The offsets begin with those of `STEPS` idle connections.

    Raises:
        ValueError: the layer cannot have so many blocks, or so few.
    """
    matrix = weights.sparse
    borders = block_borders(matrix.shape[0], weights.blocks)
    segments = segments_of(matrix, borders, MOST_CONNECTIONS)
    members, counts = min((_rounded(segments, unit) for unit in UNITS), key=_cost)
    leaders = members[:, 0]

    base = borders[segments.block[leaders]]
    marks = segments.flags[leaders] + fetching_flags(matrix.shape[1], 0)
    sources, factors = _in_parts(segments, members, counts)
    offsets = (matrix.rows[sources] - np.repeat(base, counts)[:, None]) * OFFSET_UNIT
    return PackedBlocks(
        block_list(base),
        records_of(segments.row[members], counts, marks),
        matrix.values[sources] * factors,
        np.pad(offsets.astype(np.uint16), ((STEPS, 0), (0, 0))),
        weights.bias,
    )


def _rounded(segments: RowSegments, unit: int) -> _Rounded:
    counts = -(-segments.connections // unit) * unit
    members = groups_of((segments.round * 4 + segments.flags) * (MOST_CONNECTIONS + max(UNITS)) + counts, GROUP_ROWS)
    return _Rounded(members, counts[members[:, 0]])


def _cost(rounded: _Rounded) -> int:
    changes = len(run_lengths(rounded.counts))
    return int(rounded.counts.sum()) * GROUP_ROWS + GROUP_COST * len(rounded.counts) + COUNT_COST * changes


def _in_parts(segments: RowSegments, members: Indices, counts: Indices) -> tuple[Indices, NDArray[np.float32]]:
    """Return for each connection of a group which one of the matrix it is, and its part of the weight."""
    rank, wanted = ranges(counts)[:, None], np.repeat(counts, counts)[:, None]
    own = np.repeat(segments.connections[members], counts, axis=0)
    # the last one's parts are 1/2, 1/4, ..., and the smallest of them twice
    halvings = np.minimum(rank - own + 2, wanted - own)
    sources = np.repeat(segments.start[members], counts, axis=0) + np.minimum(rank, own - 1)
    return sources, np.exp2(-np.maximum(halvings, 0)).astype(np.float32)


def work(layer: Layer, tile: Tile) -> Work:
    """Return the work for a call, weights, their multiply-adds, groups, kinds of groups, bytes of x and y again."""
    blocks = layer.blocks(BLOCKS)
    segments, kinds = layer.segments(blocks, MOST_CONNECTIONS), layer.counts_of_segments(blocks)
    groups = segments / GROUP_ROWS
    # counts are rounded up so that rows find partners
    weights = layer.connections + segments
    far = tile.random_far_share(layer.inputs / blocks) * layer.x_share(tile, by_count=True)
    x_again = 4 * weights * tile.width * far
    y_again = 8 * GROUP_ROWS * groups * tile.width * tile.far_share(layer.outputs)
    units = (1.0, weights * tile.passes, weights * tile.line, groups * tile.passes, kinds, x_again, y_again)
    return Work(units, 6 * weights + 20 * groups, tile.passes)


FAMILY = KernelFamily(
    "narrow_blocks", pack, work, (1, 8, 16), block_rule=BLOCKS, far_features=features_over_blocks(BLOCKS)
)
