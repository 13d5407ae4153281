"""Format of quantized weights for CPUs that multiply tiles: 64 inputs of 32 outputs at once, zeros among them.

Outputs are in panels of two tiles. A panel has a step for every 64 inputs of which one of its outputs has a weight, so
that blocks without any are left out. In a tile four inputs of an output lie next to each other, as products take them:

    weights[step]    [2 tiles][16 fours of inputs][16 outputs][4 inputs]
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..sparse.csr import CscMatrix
from .byte_lookup import within_bytes
from .byte_quads import QUAD

TILE_ROWS: Final = 16
"""Rows of inputs, and outputs, of a tile."""

TILE_INPUTS: Final = 64

PANEL_OUTPUTS: Final = 2 * TILE_ROWS


class TilePanels(NamedTuple):
    """Packed weights of a layer."""

    starts: NDArray[np.int64]
    """The first step of each panel, and the number of steps."""
    places: NDArray[np.int32]
    """[steps]: the first input of each."""
    weights: NDArray[np.int8]
    """[steps, 2, 16, 16, 4]"""


def step_count(weight: CscMatrix) -> int:
    """Return the steps of a weight of integers of eight bits."""
    blocks = -(-weight.shape[0] // TILE_INPUTS)
    return len(np.unique(weight.columns // PANEL_OUTPUTS * blocks + weight.rows // TILE_INPUTS))


def pack(weight: CscMatrix) -> TilePanels:
    """Return the panels of a weight [inputs, outputs] of integers up to 255."""
    entries = within_bytes(weight.columns, weight.rows, np.rint(weight.values).astype(np.int64))
    parts, blocks = int(entries.parts.max(initial=0)) + 1, -(-weight.shape[0] // TILE_INPUTS)
    panel, block = entries.owners // PANEL_OUTPUTS, entries.inputs // TILE_INPUTS
    # a weight too large for a byte is a sum of bytes, each in another step
    steps, index = np.unique((panel * blocks + block) * parts + entries.parts, return_inverse=True)
    weights = np.zeros((len(steps), PANEL_OUTPUTS // TILE_ROWS, TILE_INPUTS // QUAD, TILE_ROWS, QUAD), dtype=np.int8)
    output, place = entries.owners % PANEL_OUTPUTS, entries.inputs % TILE_INPUTS
    weights[index, output // TILE_ROWS, place // QUAD, output % TILE_ROWS, place % QUAD] = entries.values
    panels = -(-weight.shape[1] // PANEL_OUTPUTS)
    starts = np.searchsorted(steps, np.arange(panels + 1) * blocks * parts).astype(np.int64)
    return TilePanels(starts, (steps // parts % blocks * TILE_INPUTS).astype(np.int32), weights)
