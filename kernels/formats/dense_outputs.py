"""`dense_outputs`: all weights, zeros included, in panels of 16 outputs, input by input.

Rows of activations pass a few panels in blocks, each of R rows and V vectors of outputs.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..family import KernelFamily, LayerWeights
from ..tile_widths import TILE_WIDTHS
from ..work import Layer, Tile, Work

PANEL: Final = 16
"""Outputs of a panel [inputs][16]: a cache line for each input, and whole vectors on every target."""

GROUP: Final = 4 * PANEL
"""Outputs of the panels in work at a time."""

VECTORS: Final = {
    16: {1: 4, 2: 4, 3: 4, 4: 4, 6: 4, 8: 2, 10: 2, 12: 2},
    8: {1: 8, 2: 4, 3: 2, 4: 2, 5: 2, 6: 2},
    4: {1: 8, 2: 4, 3: 2, 4: 2},
}
"""V of the blocks that there are, by lanes and R.

There must be enough sums to hide the latency of multiply-adds, and they must fit the registers. With one vector there
is a load for each multiply-add, but more rows are done before weights have to be read again.
"""

BULK_ROWS: Final = {16: 12, 8: 6, 4: 4}
"""R of all blocks but the last two where there are more rows than a block can have, by lanes."""

LATENCY: Final = {16: 8, 8: 6, 4: 8}
"""Independent multiply-adds that hide the latency, by lanes; CPUs without AVX-512 that split vectors of 8 start one a
cycle."""


class PackedPanels(NamedTuple):
    """Panels, padded with outputs of zeros."""

    weights: NDArray[np.float32]
    """[ceil(outputs / 16), inputs, 16]."""
    bias: NDArray[np.float32]
    """[16 ceil(outputs / 16)]."""


def pack(weights: LayerWeights) -> PackedPanels:
    """Return the panels and the bias."""
    dense = weights.dense
    padding = -dense.shape[1] % PANEL
    padded = np.pad(dense, ((0, 0), (0, padding)))
    panels = padded.reshape(len(dense), padded.shape[1] // PANEL, PANEL).transpose(1, 0, 2)
    return PackedPanels(np.ascontiguousarray(panels), np.pad(weights.bias, (0, padding)))


def work(layer: Layer, tile: Tile) -> Work:
    """Return the work for steps of a vector of weights, and of those the ones that begin a block of rows."""
    most, bulk = max(VECTORS[tile.lanes]), BULK_ROWS[tile.lanes]
    blocks = 1 if tile.width <= most else -(-tile.width // bulk)
    rest = tile.width - bulk * max(0, blocks - 2)
    half = (rest + 3) // 4 * 2
    rows = [bulk] * (blocks - 2) + ([rest] if blocks == 1 else [half, rest - half])
    panels = -(-layer.outputs // PANEL)
    vectors = layer.inputs * panels * PANEL / tile.lanes
    steps = sum(_steps(count, tile.lanes) for count in rows)
    return Work((vectors * steps, vectors * blocks), 4.0 * PANEL * layer.inputs * panels)


def _steps(rows: int, lanes: int) -> float:
    """Return how long a vector of weights takes in a block: multiply-adds, loads, or waiting for one's own sums.

    A block that is called for fewer rows than it has repeats the last one.
    """
    rows = min(known for known in VECTORS[lanes] if known >= rows)
    vectors = VECTORS[lanes][rows]
    return max(rows, rows / vectors + 1, LATENCY[lanes] / vectors)


FAMILY = KernelFamily(
    "dense_outputs",
    pack,
    work,
    TILE_WIDTHS,
    stored=("dense", "sparse", "panels"),
    any_rows=True,
    share=GROUP,
)
