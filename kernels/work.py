"""How much work kernels have with a linear layer on a tile of batch columns: a function for each way to store weights.

Work is counted in units that a kernel family prices (see `kernel_cost`): instructions by what they are for, and bytes
that the first-level cache does not deliver. The numbers follow from the connections of each output, as if they were
spread evenly over the inputs; they mirror the packing in `lowering`, which itself would take far longer.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from redpebble.kernels.input_blocks import usual_blocks

Counts = NDArray[np.int64]
Stored = Literal["dense", "sparse", "panels"]

MISSES_FROM, MISSES_ALL = 0.85, 1.5
"""A loop over more than the first of a cache's sizes begins to miss, beyond the second one it misses always."""

WALK_DENSITIES: Final = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 1.0)
WALK_STEPS: Final = (0.0, 0.03, 0.05, 1.97, 1.97, 1.36, 1.19, 1.07, 1.03, 1.007, 1.0, 1.0)
WALK_GATHERS: Final = (1.0, 1.0, 0.99, 0.3, 0.09, 0.094, 0.043, 0.031, 0.016, 0.003, 0.0, 0.0)
TRANSPOSED_STEPS: Final = (0.0, 0.03, 0.05, 1.97, 1.97, 1.36, 1.09, 1.02, 1.0, 1.0, 1.0, 1.0)
TRANSPOSED_GATHERS: Final = (1.0, 1.0, 0.99, 0.3, 0.09, 0.094, 0.014, 0.006, 0.003, 0.001, 0.0, 0.0)
"""Steps and gathers of a walk for each connection of its fullest row, by the density of that row: see walk_packing."""

TRANSPOSED_DENSITIES: Final = (0.05, 0.07, 0.1, 0.2, 0.3)
TRANSPOSED_GAINS: Final = (0.0, 0.012, 0.024, 0.019, 0.0)
TRANSPOSING: Final = 0.22
TRANSPOSED_INPUTS: Final = (256, 1280)
"""Which layers a walk looks up in x transposed, too: see walk_packing."""

STRIP_INPUTS: Final = 128
"""Inputs of a block: see strip_packing."""

DENSE_ROWS: Final = {16: (20, 12), 8: (6, 6), 4: (4, 4)}
"""Rows that a single block has at most, and those of several blocks have, by lanes: see dense_blocks."""


MOST_IN_PIECE: Final = 32
"""Connections of a row that a pair of rows takes at once: see count_block_packing."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A linear layer as its cost sees it.

    counts [outputs] are the connections of each output; other_bytes are the weights of all other layers, which are
    read between two uses of this one. A layer that is stored dense has to be computed so; one with panels has outputs
    that share inputs, and panel_reads counts an input once for all outputs of a panel that share it. block_counts are
    the blocks of inputs of families that have not as many as usual.
    """

    inputs: int
    counts: Counts
    other_bytes: float = 0.0
    stored: Stored = "sparse"
    panel_reads: float = 0.0
    block_counts: Mapping[str, int] = field(default_factory=dict[str, int], kw_only=True)

    def blocks(self, family: str) -> int:
        """Return the number of blocks of inputs that a family over blocks has."""
        return self.block_counts.get(family) or usual_blocks(family, self.inputs, self.density)

    def with_blocks(self, block_counts: Mapping[str, int]) -> Self:
        """Return the same layer with other blocks for some families; what is known of it is shared."""
        other = copy(self)
        object.__setattr__(other, "block_counts", {**self.block_counts, **block_counts})
        return other

    @property
    def outputs(self) -> int:
        """The number of outputs."""
        return len(self.counts)

    @property
    def connections(self) -> int:
        """The number of connections."""
        return int(self.counts.sum())

    @property
    def density(self) -> float:
        """The share of connections among all that there could be; 0 where there could be none."""
        return self.connections / max(1, self.inputs * self.outputs)

    @property
    def walk_share(self) -> float:
        """The time of a walk over that of a walk over a random mask with the same counts."""
        return 1.0

    def pieces(self, blocks: int, most: int) -> float:
        """Return how many pieces of up to `most` connections rows have in `blocks` blocks of inputs."""
        return _pieces(self, blocks, most)

    def x_share(self, tile: "Tile", *, by_count: bool = False) -> float:
        """Return the rows of x that the first-level cache misses, over those of a random mask.

        Outputs are computed one after the other, or those with fewer connections first.
        """
        del tile, by_count
        return 1.0

    def fullest(self, rows: int) -> Counts:
        """Return the largest count in each group of `rows` outputs, where outputs are sorted by count."""
        return np.sort(self.counts)[::-1][::rows]


class Tile(NamedTuple):
    """A tile of `width` columns, in vectors of `lanes` floats, and the first-level cache that its rows pass."""

    width: int
    lanes: int
    l1_bytes: int

    @property
    def passes(self) -> int:
        """How often weights are read: once for each four vectors of columns."""
        return max(1, -(-self.width // (4 * self.lanes)))

    def passes_of(self, vectors: int) -> int:
        """Return how often weights are read by kernels of so many vectors at once, or of two without AVX-512."""
        return max(1, -(-self.width // ((vectors if self.lanes == 16 else 2) * self.lanes)))

    @property
    def line(self) -> float:
        """The columns in lines of 16 floats."""
        return self.width / 16

    def far_share(self, rows: float) -> float:
        """Return the share of `rows` rows, read again and again, that the first-level cache does not hold."""
        return misses(4 * self.width * rows, self.l1_bytes)

    def random_far_share(self, rows: float) -> float:
        """Return the share of rows, read at random among `rows`, that the first-level cache does not hold."""
        return max(0.0, 1 - self.l1_bytes / (4 * self.width * rows)) if rows else 0.0


class Work(NamedTuple):
    """Units of work in the order of a family's prices, and the bytes of weights and indices that it streams."""

    units: tuple[float, ...]
    stream_bytes: float
    passes: int = 1


def misses(loop_bytes: float, cache_bytes: float) -> float:
    """Return the share of a loop over `loop_bytes` that a cache of `cache_bytes` does not deliver, 0 to 1."""
    share = (loop_bytes / cache_bytes - MISSES_FROM) / (MISSES_ALL - MISSES_FROM)
    return min(1.0, max(0.0, share))


def permute_lookup(layer: Layer, _: Tile) -> Work:
    """Return the work for inputs that are transposed, steps of 32 rows, gathers for 32 rows, panels."""
    transposed = has_transposed_inputs(layer)
    ratios = (TRANSPOSED_STEPS, TRANSPOSED_GATHERS) if transposed else (WALK_STEPS, WALK_GATHERS)
    steps, gathers, panels = _walk_length(layer, *ratios)
    return Work((float(transposed * layer.inputs), steps, gathers, panels), 153 * steps + 256 * gathers + 264 * panels)


def has_transposed_inputs(layer: Layer) -> bool:
    """Return whether a walk looks up inputs in x transposed, too."""
    least, most = TRANSPOSED_INPUTS
    gains = np.interp(layer.fullest(32) / max(1, layer.inputs), TRANSPOSED_DENSITIES, TRANSPOSED_GAINS)
    return least <= layer.inputs <= most and float(gains.sum()) > TRANSPOSING


def _walk_length(layer: Layer, steps: tuple[float, ...], gathers: tuple[float, ...]) -> tuple[float, float, int]:
    """Return the steps, gathers and panels of a layer's walks; whole chunks of six steps cost three for each panel."""
    densities = layer.fullest(32) / max(1, layer.inputs)
    totals = [
        layer.inputs * float(np.interp(densities, WALK_DENSITIES, np.multiply(ratio, WALK_DENSITIES)).sum())
        for ratio in (steps, gathers)
    ]
    share = layer.walk_share
    return share * totals[0] + 3.0 * len(densities), share * totals[1], len(densities)


def dense_outputs(layer: Layer, tile: Tile) -> Work:
    """Return the work for steps of a vector of weights, and of those the ones that begin a block of rows."""
    most, bulk = DENSE_ROWS[tile.lanes]
    blocks = 1 if tile.width <= most else -(-tile.width // bulk)
    rest = tile.width - bulk * max(0, blocks - 2)
    half = (rest + 3) // 4 * 2
    rows = [bulk] * (blocks - 2) + ([rest] if blocks == 1 else [half, rest - half])
    panels = -(-layer.outputs // 16)
    vectors = layer.inputs * panels * 16 / tile.lanes
    steps = sum(_dense_steps(count, tile.lanes) for count in rows)
    return Work((vectors * steps, vectors * blocks), 64.0 * layer.inputs * panels)


def _dense_steps(rows: int, lanes: int) -> float:
    """Return how long a vector of weights takes in a block: multiply-adds, loads, or waiting for one's own sums."""
    vectors = (4 if rows <= 6 else 2 if rows <= 12 else 1) if lanes == 16 else {1: 8, 2: 4}.get(rows, 2)
    return max(rows, rows / vectors + 1, 8 / vectors)


def panels(layer: Layer, tile: Tile) -> Work:
    """Return the work for a call, lines of x, weights, their multiply-adds, lines of y, bytes of x again."""
    reads, weights, passes = layer.panel_reads, float(layer.connections), tile.passes_of(3)
    again = 4 * reads * tile.width * tile.far_share(layer.inputs) * layer.x_share(tile)
    units = (1.0, reads * tile.line, weights * passes, weights * tile.line, layer.outputs * tile.line, again)
    return Work(units, 4 * weights + 4 * reads + 8 * layer.outputs, passes)


def strips(layer: Layer, tile: Tile) -> Work:
    """Return the work for a call, lines of x, weights, their multiply-adds, strips, their lines, bytes of y again."""
    weights, passes, blocks = float(layer.connections), tile.passes_of(4), max(1, -(-layer.inputs // STRIP_INPUTS))
    # the inputs that a row at least of four reads; what is not evenly shared is read again
    reads = layer.inputs * layer.outputs / 4 * (1 - (1 - layer.density) ** 4)
    strips = layer.outputs / 4 * blocks
    again = 32 * strips * tile.width * tile.far_share(layer.outputs)
    units = (1.0, reads * tile.line, weights * passes, weights * tile.line, strips * passes, strips * tile.line, again)
    return Work(units, 6 * weights + 40 * strips, passes)


def sparse_rows(layer: Layer, tile: Tile) -> Work:
    """Return the work for a call, weights, their multiply-adds, rows, bytes of x again."""
    weights = float(layer.connections)
    again = 4 * weights * tile.width * tile.far_share(layer.inputs) * layer.x_share(tile)
    units = (1.0, weights * tile.passes, weights * tile.line, float(layer.outputs * tile.passes), again)
    return Work(units, 8 * weights + 12 * layer.outputs, tile.passes)


def count_blocks(layer: Layer, tile: Tile) -> Work:
    """Return the work for a call, weights, their multiply-adds, pairs, their lines, kinds, bytes of x and y again."""
    weights = float(layer.connections)
    blocks = layer.blocks("count_blocks")
    kinds = _kinds(layer, blocks)
    pairs = layer.pieces(blocks, MOST_IN_PIECE) / 2 + kinds / 4
    far = tile.random_far_share(layer.inputs / blocks) * layer.x_share(tile, by_count=True)
    x_again = 4 * weights * tile.width * far
    y_again = 16 * pairs * tile.width * tile.far_share(layer.outputs)
    lines = (pairs * tile.line, kinds * tile.passes, x_again, y_again)
    units = (1.0, weights * tile.passes, weights * tile.line, pairs * tile.passes, *lines)
    return Work(units, 6 * weights + 12 * pairs, tile.passes)


def narrow_blocks(layer: Layer, tile: Tile) -> Work:
    """Return the work for a call, weights, their multiply-adds, groups, kinds of groups, bytes of x and y again."""
    blocks = layer.blocks("narrow_blocks")
    pieces = layer.pieces(blocks, layer.inputs + 1)
    groups, kinds = pieces / 4, _kinds(layer, blocks)
    # counts are rounded up so that rows find partners
    weights = layer.connections + pieces
    far = tile.random_far_share(layer.inputs / blocks) * layer.x_share(tile, by_count=True)
    x_again = 4 * weights * tile.width * far
    y_again = 32 * groups * tile.width * tile.far_share(layer.outputs)
    units = (1.0, weights * tile.passes, weights * tile.line, groups * tile.passes, kinds, x_again, y_again)
    return Work(units, 6 * weights + 20 * groups, tile.passes)


def _kinds(layer: Layer, blocks: int) -> float:
    """Return the different counts of pieces: each is a jump that was not predicted, and leaves a piece alone or none.

    Counts spread by about five deviations.
    """
    mean = layer.connections / max(1, layer.outputs * blocks)
    return blocks * min(layer.outputs / 2, 5 * mean**0.5 + 1)


def _pieces(layer: Layer, blocks: int, most: int) -> float:
    """Return how many pieces of up to `most` connections rows have in `blocks` blocks, connections spread evenly."""
    tally = np.bincount(layer.counts)
    counts = np.flatnonzero(tally)
    mean = counts / blocks
    touched = -blocks * np.expm1(-mean) if blocks > 1 else np.ones(len(mean))
    further = np.zeros(len(mean))
    # counts in a block are about normal; a logistic curve with 0.55 of the deviation is the chance to pass a border
    spread = 0.55 * np.sqrt(mean * np.maximum(0.0, 1 - counts / max(1, layer.inputs))) + 1e-3
    for border in range(most, int(mean.max(initial=0)) + 2 * most, most):
        further += 1 / (1 + np.exp(np.clip((border + 0.5 - mean) / spread, -50, 50)))
    return float((touched + blocks * further) @ tally[counts])
