"""`bfloat_tiles`: weights as tiles of bfloat16, 16 outputs by 32 inputs, zeros too, for CPUs that multiply tiles.

Inputs are cut into chunks, of which a tile of columns stays in the caches, in bfloat16. Outputs are in panels of
two groups of 16. A panel has a step in a chunk for each 32 inputs of which one of its outputs has a weight:

    weights[step]    [2 groups][16 outputs][32 inputs]

The last 16 outputs are a group, too, which shares outputs with the one before: these have zeros there.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...foundation.bfloat import bfloat_bits
from ..family import KernelFamily, LayerWeights
from ..work import Layer, Tile, Work

GROUP: Final = 16
"""Outputs of a group, rows of a tile."""

BLOCK_INPUTS: Final = 32
"""Inputs of a tile."""

PANEL_GROUPS: Final = 2

CHUNK_BLOCKS: Final = 16
"""Blocks of a chunk: for 64 columns 64 KiB. Half and twice as many were slower by up to 1.1 and 1.35 times."""

WIDTHS: Final = (GROUP, 2 * GROUP, 4 * GROUP)
"""Batch columns of tiles: as many as whole tiles of bfloat16 have."""


class PackedTiles(NamedTuple):
    """Packed weights of a layer."""

    starts: NDArray[np.int64]
    """[chunks * panels + 1]: the first step of each panel in a chunk, one chunk after the other; last their number."""
    outputs: NDArray[np.int64]
    """[panels, 2]: the first output of each group."""
    blocks: NDArray[np.int32]
    """[steps]: the block of each in its chunk."""
    weights: NDArray[np.uint16]
    """[steps, 2, 16, 32]."""
    bias: NDArray[np.float32]
    """[outputs]."""


def pack(weights: LayerWeights) -> PackedTiles:
    """Return the packed form of a layer."""
    matrix, (inputs, outputs) = weights.sparse, weights.sparse.shape
    panels, chunks = -(-outputs // (GROUP * PANEL_GROUPS)), -(-inputs // (BLOCK_INPUTS * CHUNK_BLOCKS))
    # without a whole group of outputs the kernel has room elsewhere
    last = max(0, outputs - GROUP)
    firsts = np.minimum(np.arange(panels * PANEL_GROUPS) * GROUP, last)
    group, block = matrix.columns // GROUP, matrix.rows // BLOCK_INPUTS
    panel, chunk = group // PANEL_GROUPS, block // CHUNK_BLOCKS
    steps, index = np.unique((chunk * panels + panel) * CHUNK_BLOCKS + block % CHUNK_BLOCKS, return_inverse=True)
    tiles = np.zeros((len(steps), PANEL_GROUPS, GROUP, BLOCK_INPUTS), dtype=np.uint16)
    tiles[index, group % PANEL_GROUPS, matrix.columns - firsts[group], matrix.rows % BLOCK_INPUTS] = bfloat_bits(
        matrix.values
    )
    starts = np.searchsorted(steps, np.arange(chunks * panels + 1) * CHUNK_BLOCKS).astype(np.int64)
    return PackedTiles(
        starts,
        firsts.reshape(panels, PANEL_GROUPS).astype(np.int64),
        (steps % CHUNK_BLOCKS).astype(np.int32),
        tiles,
        weights.bias,
    )


def work(layer: Layer, tile: Tile) -> Work:
    """Return the work for a call, steps by lines of columns, blocks of inputs by lines, sums of chunks by lines."""
    blocks, panels = -(-layer.inputs // BLOCK_INPUTS), -(-layer.outputs // (GROUP * PANEL_GROUPS))
    chunks = -(-blocks // CHUNK_BLOCKS)
    # a block of so many weights has one that is no zero, whatever the density
    steps = min(layer.connections, blocks * panels)
    units = (1.0, steps * tile.line, blocks * tile.line, chunks * panels * tile.line)
    return Work(units, 2 * BLOCK_INPUTS * GROUP * PANEL_GROUPS * steps)


FAMILY = KernelFamily("bfloat_tiles", pack, work, WIDTHS, lanes=(16,), rounds="bf16", needs="bfloat_tiles")
