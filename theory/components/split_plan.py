"""Layers of a chain to compute in groups: the segments whose parts stay apart, where that is predicted to pay.

A segment is some consecutive layers with parts that no connection joins. Segments that follow each other are one run:
its values are transposed into columns once, put into the order of the next segment in between, and transposed back
once. What is cheapest over a whole chain is found by dynamic programming over its layers, on rows or on columns before
each.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.grouped_cost import LayerSize, dense_us, grouped_us, ordering_us, transposing_us
from ...sparse.csr import Indices
from .joint_parts import NOWHERE, LayerParts, group_counts, grouped, joint_parts

MOST_GROUPS: Final = 1024

LEAST_GAIN: Final = 1.25
"""The predicted gain from which on all that was measured was faster: see `redpebble.kernels.grouped_cost`."""

FEWER_SEGMENTS: Final = 1e-9
"""Added to the cost of a segment, so that the fewest are chosen among ways that cost the same."""

Times = NDArray[np.float64]
"""Microseconds for each number of rows that counts."""


@dataclass(frozen=True)
class Chain:
    """Consecutive layers, with their parts and prices."""

    layers: tuple[LayerSize, ...]
    parts: tuple[LayerParts | None, ...]
    """Parts of each layer; None where it is one part, or must not be split."""
    rows: tuple[int, ...]
    other_weights: int = 0
    """Weights of the network beside those of the chain."""

    @property
    def dense(self) -> list[Times]:
        everything = self.other_weights + sum(layer.weights for layer in self.layers)
        return [
            np.array([dense_us(layer, rows, everything - layer.weights) for rows in self.rows]) for layer in self.layers
        ]


class Segment(NamedTuple):
    """Layers `start` to `stop`, the end excluded, and the neurons of each group on each level [groups, places]."""

    start: int
    stop: int
    levels: list[Indices]
    times: Times

    @property
    def groups(self) -> int:
        return len(self.levels[0])


class Run(NamedTuple):
    """Segments one behind the other, and how many times as fast they are predicted to be, by the number of rows."""

    segments: list[Segment]
    gains: dict[int, float]


class _State(NamedTuple):
    """A way to some layer: its cost, the runs that have ended, and the segments of the one that has not."""

    cost: float
    runs: tuple[tuple[Segment, ...], ...]
    run: tuple[Segment, ...] = ()


def runs_that_pay(chain: Chain, least_gain: float = LEAST_GAIN) -> list[Run]:
    """Return the runs that are predicted to be `least_gain` times as fast as they stand, for each number of rows."""
    search = _Search(chain, max(least_gain, 1e-6))
    runs = [Run(list(run), search.gains(run)) for run in search.best()]
    return [run for run in runs if min(run.gains.values()) >= least_gain]


class _Search:
    def __init__(self, chain: Chain, least_gain: float) -> None:
        self._chain, self._dense, self._least_gain = chain, chain.dense, least_gain
        self._weights = sum(layer.weights for layer in chain.layers) + chain.other_weights
        self._unit = np.sum(self._dense, axis=0) * len(chain.rows)
        self._borders = [index for index in range(len(chain.layers) + 1) if _is_border(chain.parts, index)]

    def best(self) -> tuple[tuple[Segment, ...], ...]:
        """Return the runs of the cheapest way through the chain."""
        count = len(self._chain.layers)
        on_rows: list[list[_State]] = [[_State(0.0, ())], *([] for _ in range(count))]
        on_columns: list[list[_State]] = [[] for _ in range(count + 1)]
        for index in range(count + 1):
            for state in on_columns[index]:
                cost = state.cost + self._split_cost(self._leaving(state.run[-1]))
                on_rows[index].append(_State(cost, (*state.runs, state.run)))
            if index == count:
                break
            here = min(on_rows[index], key=lambda state: state.cost)
            on_rows[index + 1].append(_State(here.cost + self._cost(self._dense[index]), here.runs))
            starts = [here, *sorted(on_columns[index], key=lambda state: state.cost)[:1]]
            for segment in self._segments(index):
                for state in starts:
                    cost = state.cost + self._split_cost(self._times_behind(state.run, segment)) + FEWER_SEGMENTS
                    on_columns[segment.stop].append(_State(cost, state.runs, (*state.run, segment)))
        return min(on_rows[count], key=lambda state: state.cost).runs

    def gains(self, run: Sequence[Segment]) -> dict[int, float]:
        """Return the gain of a run, by the number of rows."""
        before = np.sum(self._dense[run[0].start : run[-1].stop], axis=0)
        after = self._leaving(run[-1])
        for number, segment in enumerate(run):
            after += self._times_behind(run[:number], segment)
        return dict(zip(self._chain.rows, (before / after).tolist(), strict=True))

    def _cost(self, times: Times) -> float:
        """Return times as a share of the chain's, the same weight to each number of rows."""
        return float(np.sum(times / self._unit))

    def _split_cost(self, times: Times) -> float:
        return self._least_gain * self._cost(times)

    def _times(self, values: int, price: Callable[[int, int], float]) -> Times:
        return np.array([price(values, rows) for rows in self._chain.rows])

    def _times_behind(self, run: Sequence[Segment], segment: Segment) -> Times:
        """Return the times of a segment behind others of its run, or behind rows, and of what comes before it."""
        members, inputs = segment.levels[0], self._chain.layers[segment.start].inputs
        ordering = 0.0 if not run and in_place(members, inputs) else self._times(members.size, ordering_us)
        return segment.times + ordering + (0.0 if run else self._times(inputs, transposing_us))

    def _leaving(self, segment: Segment) -> Times:
        outputs = self._chain.layers[segment.stop - 1].outputs
        ordering = 0.0 if in_place(segment.levels[-1], outputs) else self._times(outputs, ordering_us)
        return self._times(outputs, transposing_us) + ordering

    def _segments(self, start: int) -> Iterator[Segment]:
        """Yield the segments that begin with a layer, each in as many groups as suit it best."""
        if start not in self._borders:
            return
        for stop in self._borders[self._borders.index(start) + 1 :]:
            parts = [layer for layer in self._chain.parts[start:stop] if layer is not None]
            if len(parts) < stop - start:
                return
            levels = joint_parts(parts)
            count = max(int(level.max()) for level in levels) + 1
            if count < 2:
                return
            choices = (self._segment(start, stop, grouped(levels, n)) for n in group_counts(count, MOST_GROUPS))
            found = [choice for choice in choices if choice is not None]
            if found:
                yield min(found, key=lambda segment: self._cost(segment.times))

    def _segment(self, start: int, stop: int, levels: list[Indices]) -> Segment | None:
        """Return a segment in groups, None where a group has nothing to read."""
        widths = [level.shape[1] for level in levels]
        if 0 in widths:
            return None
        layers = [LayerSize(inputs, outputs, len(levels[0])) for inputs, outputs in pairwise(widths)]
        kept = self._weights - sum(layer.weights for layer in self._chain.layers[start:stop])
        everything = kept + sum(layer.weights for layer in layers)
        times = np.zeros(len(self._chain.rows))
        for layer in layers:
            times += [grouped_us(layer, rows, everything - layer.weights) for rows in self._chain.rows]
        return Segment(start, stop, levels, times)


def _is_border(parts: Sequence[LayerParts | None], index: int) -> bool:
    """Return whether a segment may begin or end before a layer: elsewhere parts go on as they are on both sides."""
    before, behind = (None, None) if index in (0, len(parts)) else (parts[index - 1], parts[index])
    if before is None or behind is None:
        return True
    joined = joint_parts([before, behind])
    return len({_through(*before), _through(*behind), _through(joined[0], joined[-1])}) > 1


def _through(first: Indices, last: Indices) -> int:
    """Return the number of parts that have neurons on both levels."""
    return len(np.intersect1d(first[first != NOWHERE], last))


def in_place(members: Indices, count: int) -> bool:
    """Return whether the places of the groups are those of all `count` neurons."""
    return np.array_equal(members.ravel(), np.arange(count))
