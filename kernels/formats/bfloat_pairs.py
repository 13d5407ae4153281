"""`bfloat_pairs`: connections in blocks of inputs, two inputs of an output at a time, their weights as bfloat16.

The inputs of a block are rounded to bfloat16 once, into lines that stay in the first-level cache: a line of zeros, then
one an input. What an output has in a block is a segment; its inputs are taken two by two, wherever they are, the last
one of an odd number with the line of zeros. Segments come in pairs of equal counts, as those of `count_blocks` do.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...foundation.bfloat import bfloat_bits
from ..family import KernelFamily, LayerWeights
from ..row_segments import (
    OFFSET_UNIT,
    block_list,
    fetching_flags,
    groups_of,
    ranges,
    records_of,
    segments_of,
)
from ..work import Layer, Tile, Work

TURNS: Final = 2
"""Outputs that take turns."""

STEP_INPUTS: Final = 2
"""Inputs whose products an instruction adds."""

CONNECTIONS: Final = 24
"""Connections of a segment that pay for reading and writing sums."""

LEAST_INPUTS, MOST_INPUTS = 256, 1024
"""Inputs of a block: lines of the fewest take 32 KiB in tiles of 64. Measured on layers of 70 to 99 % zeros."""

WIDTHS: Final = (32, 64)
"""Batch columns of tiles: whole vectors of bfloat16."""

LINE_UNITS: Final = 16
"""Offset from one line to the next, in units of 8 bytes in tiles of 64 columns: what addresses of x86 multiply by."""


class PackedPairs(NamedTuple):
    """Packed connections: see `row_segments.PackedBlocks`; a step of an output is two of its inputs."""

    blocks: NDArray[np.uint32]
    """[blocks + 1, 3]: groups, offset of the first input, inputs; a block without groups ends the list."""
    records: NDArray[np.uint32]
    """Their counts are of steps."""
    weights: NDArray[np.uint32]
    """[steps of all groups, 2]: two weights in a word."""
    offsets: NDArray[np.uint16]
    """[steps of all groups, 2, 2]: offsets of two lines each."""
    bias: NDArray[np.float32]
    """[outputs]."""


def block_count(inputs: int, density: float) -> int:
    """Return the blocks of so many inputs."""
    wanted = int(CONNECTIONS / density) if density else MOST_INPUTS
    return max(1, -(-inputs // min(max(wanted, LEAST_INPUTS), MOST_INPUTS)))


def pack(weights: LayerWeights) -> PackedPairs:
    """Return the packed form of a layer."""
    matrix = weights.sparse
    (inputs, outputs), most = matrix.shape, MOST_INPUTS
    blocks = block_count(inputs, weights.density)
    borders = np.arange(blocks + 1) * inputs // blocks
    segments = segments_of(matrix, borders, most)
    steps = -(-segments.connections // STEP_INPUTS)
    members = groups_of((segments.round * 4 + segments.flags) * (most + 1) + steps, TURNS)
    leaders = members[:, 0]

    counts, block = steps[leaders], segments.block[leaders]
    marks = segments.flags[leaders] + fetching_flags(outputs, 16 * int(counts.sum()))
    owners = np.repeat(members, counts, axis=0)[:, :, None]
    places = STEP_INPUTS * ranges(counts)[:, None, None] + np.arange(STEP_INPUTS)
    there = places < segments.connections[owners]
    sources = np.where(there, segments.start[owners] + places, 0)
    first = np.repeat(borders[block], counts)[:, None, None]
    lines = np.where(there, matrix.rows[sources] - first + 1, 0) if len(matrix.rows) else np.zeros_like(sources)
    bits = np.where(there, bfloat_bits(matrix.values)[sources], 0) if len(matrix.rows) else np.zeros_like(sources)
    listed = block_list(borders[block])
    sizes = np.zeros((len(listed), 1), dtype=np.uint32)
    sizes[:-1, 0] = np.diff(borders)[np.searchsorted(borders, listed[:-1, 1] // OFFSET_UNIT, side="right") - 1]
    return PackedPairs(
        np.hstack([listed, sizes]),
        records_of(segments.row[members], counts, marks),
        np.ascontiguousarray(bits.astype(np.uint16)).view(np.uint32)[..., 0],
        (lines * LINE_UNITS).astype(np.uint16),
        weights.bias,
    )


def work(layer: Layer, tile: Tile) -> Work:
    """Return the work for a call, steps in lines, groups in lines, their kinds, inputs in lines, bytes of y again."""
    blocks = block_count(layer.inputs, layer.density)
    segments = layer.segments(blocks, MOST_INPUTS)
    # half of the segments have an odd number of connections
    steps, kinds = layer.connections / STEP_INPUTS + segments / 4, layer.counts_of_segments(blocks) / STEP_INPUTS
    groups = segments / TURNS + kinds / 4
    y_again = 8 * TURNS * groups * tile.width * tile.far_share(layer.outputs)
    units = (1.0, steps * tile.line, groups * tile.line, groups, kinds, layer.inputs * tile.line, y_again)
    return Work(units, 8 * steps + 12 * groups)


FAMILY = KernelFamily("bfloat_pairs", pack, work, WIDTHS, lanes=(4, 16), rounds="bf16")
