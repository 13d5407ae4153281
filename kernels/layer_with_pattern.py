"""A linear layer whose cost sees which inputs its outputs read, not only how many.

`kernel_work` counts work as if connections were spread evenly over the inputs. What follows from their places is: the
pieces that rows have in blocks of inputs, the visits of a walk, and the rows of x and y that are still in a cache when
they are read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from redpebble.kernels.input_reuse import RowReuse, stable_order
from redpebble.kernels.machine import Machine, predicted_us
from redpebble.kernels.walk_distance import FEW_ROWS, PANEL_ROWS, WALK_BLOCK, walk_panels
from redpebble.kernels.work import Layer, Tile, has_transposed_inputs
from redpebble.sparse.patterns.similar_rows import Rows

Indices = NDArray[np.int64]

WALK_EXPONENT: Final = 0.5
"""How the time of a walk follows from its visits: fitted to walks as they are packed; the rest is idle lanes."""

TRANSPOSED_EXPONENT: Final = 0.1
"""The same where inputs are looked up transposed, too, in blocks in which their order matters little."""

LEAST_WALKED: Final = 0.02
"""Density below which a walk is mostly gathers; where it need not be, its steps are as many and its ends cost most."""

SUMS_EXPOSED: Final = 0.25
"""Share of the time for sums from beyond the second-level cache that kernels over blocks wait: they fetch them ahead.
Measured on layers of 16384 and 32768 outputs over 1 to 14 blocks."""


@dataclass(frozen=True, eq=False)
class LayerWithPattern(Layer):
    """A layer with what each output reads, outputs and inputs as they stand."""

    rows: Rows | None = None

    @override
    def pieces(self, blocks: int, most: int) -> float:
        """Return how many pieces of up to `most` connections rows have in `blocks` blocks of inputs."""
        if (blocks, most) not in self._pieces:
            empty = np.count_nonzero(self.counts == 0)
            self._pieces[blocks, most] = float((-(-self._cells(blocks)[1] // most)).sum() + empty)
        return self._pieces[blocks, most]

    @cached_property
    def _pieces(self) -> dict[tuple[int, int], float]:
        return {}

    @property
    @override
    def walk_share(self) -> float:
        """The time of a walk over that of a walk over a random mask with the same counts."""
        return self._walk_share

    @cached_property
    def _walk_share(self) -> float:
        if self.density < LEAST_WALKED:
            return 1.0
        expected = _random_visits(self._rows)
        return (walk_visits(self._rows) / expected) ** self.walk_exponent if expected > 0 else 1.0

    @cached_property
    def walk_exponent(self) -> float:
        """How the time of a walk follows from its visits."""
        return TRANSPOSED_EXPONENT if has_transposed_inputs(self) else WALK_EXPONENT

    @override
    def x_share(self, tile: Tile, *, by_count: bool = False) -> float:
        """Return the rows of x that the first-level cache misses, over those of a random mask."""
        capacity, reuse = tile.l1_bytes / (4 * tile.width), self._reuse_by_count if by_count else self._reuse
        random = reuse.random_missed(capacity)
        return min(1.0, reuse.missed(capacity) / random) if random > 0 else 1.0

    def far_values(self, family: str, width: int, cache_bytes: int) -> float:
        """Return the bytes of x and y that come from beyond a cache, for families that read x row by row."""
        capacity, row_bytes = cache_bytes / (4 * width), 4.0 * width
        if self.inputs + self.outputs <= capacity:
            return 0.0
        if family == "sparse_rows":
            return row_bytes * (self.connections * self._reuse.missed(capacity) + self.outputs)
        if family in ("count_blocks", "narrow_blocks"):
            # block by block, each over the rows that read from it
            reuse = self._piece_reuse(self.blocks(family))
            return row_bytes * (self.inputs + 2 * SUMS_EXPOSED * reuse.reads * reuse.missed(capacity))
        return row_bytes * (self.inputs + self.outputs)

    @property
    def _rows(self) -> Rows:
        assert self.rows is not None
        return self.rows

    @cached_property
    def _reuse(self) -> RowReuse:
        return RowReuse(self._rows.inputs)

    @cached_property
    def _reuse_by_count(self) -> RowReuse:
        if len(self.counts) == 0 or self.counts.min() == self.counts.max():
            return self._reuse
        order = np.argsort(self.counts, kind="stable")
        lengths = self.counts[order]
        starts = np.repeat(self._rows.pointers[order] - (np.cumsum(lengths) - lengths), lengths)
        return RowReuse(self._rows.inputs[starts + np.arange(len(starts))])

    def _piece_reuse(self, blocks: int) -> RowReuse:
        if blocks not in self._piece_reuses:
            cells, _ = self._cells(blocks)
            self._piece_reuses[blocks] = RowReuse(cells[stable_order(cells % blocks, blocks)] // blocks)
        return self._piece_reuses[blocks]

    @cached_property
    def _piece_reuses(self) -> dict[int, RowReuse]:
        return {}

    def _cells(self, blocks: int) -> tuple[Indices, Indices]:
        """Return cells, row * blocks + block of inputs, that have connections, ascending, and how many they have."""
        rows = self._rows
        borders = np.arange(1, blocks + 1) * self.inputs // blocks
        block = np.searchsorted(borders, np.arange(self.inputs), side="right")[rows.inputs]
        keys = np.repeat(np.arange(self.outputs), np.diff(rows.pointers)) * blocks + block
        # rows ascend, and so do the inputs of each: equal keys follow each other
        firsts = np.flatnonzero(np.append(True, np.diff(keys) != 0)) if len(keys) else np.zeros(0, dtype=np.int64)
        return keys[firsts], np.diff(np.append(firsts, len(keys)))


class _MorePieces(LayerWithPattern):
    """The same layer with a tenth more pieces."""

    @override
    def pieces(self, blocks: int, most: int) -> float:
        return 1.1 * super().pieces(blocks, most)


def piece_us(family: str, layer: LayerWithPattern, width: int, machine: Machine) -> float:
    """Return the microseconds that all pieces of a layer take beside its connections."""
    known = (layer.inputs, layer.counts, layer.other_bytes, layer.stored, layer.panel_reads, layer.rows)
    more = _MorePieces(*known, block_counts=layer.block_counts)
    return 10 * (predicted_us(family, more, width, machine) - predicted_us(family, layer, width, machine))


def tile_us(family: str, layer: Layer, width: int, machine: Machine) -> float:
    """Return the microseconds of a tile, with the time of values that the second-level cache does not hold."""
    time = predicted_us(family, layer, width, machine)
    if not isinstance(layer, LayerWithPattern):
        return time
    far = layer.far_values(family, width, machine.l2_bytes)
    return time + machine.far_ns(far, 4.0 * width * (layer.inputs + layer.outputs)) / 1000


def walk_visits(rows: Rows) -> float:
    """Return the visits of all panels' walks to blocks, those that few rows need in part (see `place_cost`)."""
    blocks = -(-rows.input_count // WALK_BLOCK)
    row = np.repeat(np.arange(rows.row_count), np.diff(rows.pointers))
    keys = row * blocks + rows.inputs // WALK_BLOCK
    firsts = np.flatnonzero(np.append(True, np.diff(keys) != 0))
    # the c-th connection of a row in a block has the level c
    level = np.arange(len(keys)) - np.repeat(firsts, np.diff(np.append(firsts, len(keys))))
    cell = (walk_panels(rows)[row] * blocks + rows.inputs // WALK_BLOCK) * WALK_BLOCK + level
    _, reached = np.unique(cell, return_counts=True)
    return float(-np.expm1(-reached / FEW_ROWS).sum()) / 2


def _random_visits(rows: Rows) -> float:
    """Return the expectation of the visits for random inputs.

    A row of n connections among K inputs has c or more in a block with the probability q of a binomial distribution
    with 16 trials of n / K; of 32 such rows E[exp(-reached / 3)] is the product of 1 - q (1 - exp(-1 / 3)).
    """
    if rows.row_count == 0 or len(rows.inputs) == 0:
        return 0.0
    chance = np.minimum(1.0, np.sort(np.diff(rows.pointers))[::-1] / rows.input_count)
    chance = np.pad(chance, (0, -len(chance) % PANEL_ROWS)).reshape(-1, PANEL_ROWS)
    total, exactly = 0.0, (1 - chance) ** WALK_BLOCK
    reach = 1 - exactly
    for count in range(1, WALK_BLOCK + 1):
        total += float((1 - np.prod(1 + reach * np.expm1(-1 / FEW_ROWS), axis=1)).sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.where(chance < 1, chance / (1 - chance), 0.0)
        exactly = exactly * odds * (WALK_BLOCK - count + 1) / count
        reach = np.where(chance < 1, np.maximum(0.0, reach - exactly), 1.0 if count < WALK_BLOCK else 0.0)
    return total * -(-rows.input_count // WALK_BLOCK) / 2
