"""What small role groups miss and share at most, by trying every set."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from redpebble.theory.pebbling.bounds.live_intervals import IntervalGroup
from redpebble.theory.pebbling.bounds.segment_bound import Crowding
from redpebble.theory.pebbling.bounds.separator_bound import Weighting


def dense(group: IntervalGroup) -> NDArray[np.bool_]:
    matrix = np.zeros(group.shape, dtype=np.bool_)
    matrix[group.rows, group.columns] = True
    return matrix


def subsets(count: int) -> Iterator[list[int]]:
    for size in range(count + 1):
        yield from (list(chosen) for chosen in combinations(range(count), size))


def exact_weighting(group: IntervalGroup) -> Weighting:
    """Equal measures, and exactly what each number of right roles lets left roles miss."""
    matrix = dense(group)
    lefts, rights = group.shape
    most = np.zeros(rights + 1)
    for chosen in subsets(rights):
        most[len(chosen)] = max(most[len(chosen)], np.sum(~matrix[:, chosen].any(axis=1)) / lefts)

    def missing(measures: NDArray[np.float64]) -> NDArray[np.float64]:
        return most[np.clip(np.ceil(measures * rights - 1e-9), 0, rights).astype(np.int64)]

    return Weighting(np.full(lefts, 1 / lefts), np.full(rights, 1 / rights), missing)


def exact_crowding(group: IntervalGroup) -> Crowding:
    """Exactly the most connections among s source and t target roles."""
    matrix = dense(group).astype(np.int64)
    sources, targets = group.shape
    table = np.zeros((sources + 1, targets + 1), dtype=np.int64)
    for chosen in subsets(sources):
        falling = np.sort(matrix[chosen].sum(axis=0))[::-1]
        best = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(falling)))
        table[len(chosen)] = np.maximum(table[len(chosen)], best)

    def most(s: NDArray[np.int64], t: NDArray[np.int64]) -> NDArray[np.int64]:
        return table[np.minimum(s, sources), np.minimum(t, targets)]

    return Crowding(sources, targets, int(matrix.sum()), most)
