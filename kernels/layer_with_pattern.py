"""A linear layer whose cost sees which inputs its outputs read, not only how many.

`Layer` counts work as if connections were spread evenly over the inputs. What follows from where they are: the segments
that rows have in blocks of inputs, what families find in the pattern themselves, and the rows of x and y that are still
in a cache when they are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from ..foundation.recent_results import RecentResults
from ..sparse.csr import CsrPattern, Indices, stable_order
from .input_blocks import BlockRule
from .work import Layer, Tile

SUMS_EXPOSED: Final = 0.25
"""Share of the time for sums from beyond the second-level cache that kernels over blocks wait: they fetch them ahead.
Measured on layers of 16384 and 32768 outputs over 1 to 14 blocks."""


@dataclass(frozen=True, eq=False)
class LayerWithPattern(Layer):
    """A layer with what each output reads, outputs and inputs as they stand."""

    rows: CsrPattern | None = None
    segment_factor: float = 1.0
    """Times as many segments as there are: what they cost shows in the difference."""

    @override
    def segments(self, blocks: int, most: int) -> float:
        """Return how many segments of up to `most` connections rows have in `blocks` blocks of inputs."""

        def found() -> float:
            empty = np.count_nonzero(self.counts == 0)
            return float((-(-self._cells(blocks)[1] // most)).sum() + empty)

        return self.segment_factor * self._once(("segments", blocks, most), found)

    @override
    def of_pattern(self, fact: Callable[[CsrPattern], float], otherwise: float) -> float:
        """Return the result of `fact` on the pattern; it is computed once."""
        return self._once(fact, lambda: fact(self._rows))

    @override
    def x_share(self, tile: Tile, *, by_count: bool = False) -> float:
        """Return the rows of x that the first-level cache misses, over those of a random mask."""
        capacity = tile.l1_bytes / (4 * tile.width)
        if self.inputs <= capacity:
            return 1.0

        def found() -> float:
            reuse = self._reuse_by_count if by_count else self._reuse
            random = reuse.random_missed(capacity)
            return min(1.0, reuse.missed(capacity) / random) if random > 0 else 1.0

        return self._once(("x", capacity, by_count), found)

    def missed_reads(self, capacity: float) -> float:
        """Return the reads of rows of x that a cache for `capacity` of them does not deliver."""
        return self._once(("missed", capacity), lambda: self.connections * self._reuse.missed(capacity))

    def missed_segments(self, blocks: int, capacity: float) -> float:
        """Return the same of rows of y where inputs are cut into so many blocks."""

        def found() -> float:
            reuse = self._segment_reuse(blocks)
            return reuse.reads * reuse.missed(capacity)

        return self._once(("missed", blocks, capacity), found)

    def _once(self, fact: Hashable, find: Callable[[], float]) -> float:
        """Return a number that follows from the pattern alone, which is found once for all layers that have it."""
        if fact not in self._numbers:
            self._numbers[fact] = find()
        return self._numbers[fact]

    @cached_property
    def _numbers(self) -> dict[Hashable, float]:
        return _numbers().of(self._rows.digest, dict[Hashable, float])

    @property
    def _rows(self) -> CsrPattern:
        assert self.rows is not None
        return self.rows

    @cached_property
    def _reuse(self) -> RowReuse:
        """The reuse of rows of x where outputs are computed one after the other."""
        return RowReuse(self._rows.indices)

    @cached_property
    def _reuse_by_count(self) -> RowReuse:
        if len(self.counts) == 0 or self.counts.min() == self.counts.max():
            return self._reuse
        order = np.argsort(self.counts, kind="stable")
        lengths = self.counts[order]
        starts = np.repeat(self._rows.pointers[order] - (np.cumsum(lengths) - lengths), lengths)
        return RowReuse(self._rows.indices[starts + np.arange(len(starts))])

    def _segment_reuse(self, blocks: int) -> RowReuse:
        """Return the reuse of rows of y where inputs are cut into so many blocks."""
        if blocks not in self._segment_reuses:
            cells, _ = self._cells(blocks)
            self._segment_reuses[blocks] = RowReuse(cells[stable_order(cells % blocks, blocks)] // blocks)
        return self._segment_reuses[blocks]

    @cached_property
    def _segment_reuses(self) -> dict[int, RowReuse]:
        return {}

    def _cells(self, blocks: int) -> tuple[Indices, Indices]:
        """Return cells, row * blocks + block of inputs, that have connections, ascending, and how many they have."""
        rows = self._rows
        borders = np.arange(1, blocks + 1) * self.inputs // blocks
        block = np.searchsorted(borders, np.arange(self.inputs), side="right")[rows.indices]
        keys = np.repeat(np.arange(self.outputs), np.diff(rows.pointers)) * blocks + block
        # rows ascend, and so do the inputs of each: equal keys follow each other
        firsts = np.flatnonzero(np.append(True, np.diff(keys) != 0)) if len(keys) else np.zeros(0, dtype=np.int64)
        return keys[firsts], np.diff(np.append(firsts, len(keys)))


@cache
def _numbers() -> RecentResults[bytes, dict[Hashable, float]]:
    """Return what follows from patterns, by their digests."""
    return RecentResults()


def features_in_turn(layer: LayerWithPattern, capacity: float) -> float:
    """Return the features that a cache for `capacity` of them does not deliver where each is read or written once."""
    del capacity
    return layer.inputs + layer.outputs


def features_over_blocks(rule: BlockRule) -> Callable[[LayerWithPattern, float], float]:
    """Return the same for a family over blocks of inputs: each block goes over the rows that read from it."""

    def far_features(layer: LayerWithPattern, capacity: float) -> float:
        return layer.inputs + 2 * SUMS_EXPOSED * layer.missed_segments(layer.blocks(rule), capacity)

    return far_features


# Reads that a cache of some rows does not deliver, from the order in which rows are read: no simulation.
#
# A window of t reads meets a row at a read whose row was not met in the window before; a read that comes g reads
# after the last one of its row is such for min(g, t) of the windows that hold it, so a window meets (sum of min(g,
# t)) / n rows on average. The cache holds the rows of about the last t reads where that average is its capacity:
# reads with g > t miss. The first read of a row, which misses however large the cache is, counts as the one after its
# last read, in a loop.


class RowReuse:
    """The gaps between reads of the same row, for caches of all capacities."""

    def __init__(self, rows: Indices) -> None:
        """Take the rows [reads] in the order in which they are read."""
        order = stable_order(rows, int(rows.max(initial=0)) + 1)
        sorted_rows = rows[order]
        first = np.append(True, sorted_rows[1:] != sorted_rows[:-1]) if len(rows) else np.zeros(0, dtype=np.bool_)
        gaps = np.diff(order, prepend=0)
        starts = np.flatnonzero(first)
        lasts = np.append(starts[1:], len(rows)) - 1
        # once around: from the last read of a row to its first one in the next turn
        gaps[starts] = order[starts] + len(rows) - order[lasts[: len(starts)]]
        self._within = np.cumsum(np.bincount(gaps))
        self.reads = len(rows)
        self._row_count = len(starts)

    @cached_property
    def _met(self) -> NDArray[np.float64]:
        """The mean of min(gap, t) over all gaps for t = 0, 1, .., ascending: of each window, how many rows it meets."""
        return np.append(0, np.cumsum(self.reads - self._within[:-1])) / self.reads

    def missed(self, capacity: float) -> float:
        """Return the share of reads that a cache of `capacity` rows does not deliver."""
        if self.reads == 0 or capacity >= self._row_count:
            return 0.0
        longest = int(np.searchsorted(self._met, capacity, side="right")) - 1
        return 1.0 - float(self._within[longest]) / self.reads

    def random_missed(self, capacity: float) -> float:
        """Return the share that would miss if the same number of rows were read at random."""
        return max(0.0, 1.0 - capacity / self._row_count) if self._row_count else 0.0
