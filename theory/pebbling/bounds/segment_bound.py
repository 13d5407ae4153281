"""Segments: between two moments only so many connections can run as the intervals that begin in between allow.

Proof. Take a run and drop the residencies in which no connection runs; let each connection run as soon as its source is
final and both ends are resident. Neither adds a transfer: a partial sum changes in no residency in which it did not
change before. Count a *start* for every residency of an interval (see `live_intervals.py`) in which a connection of it
runs, with weight 2 for a target interval and 1 for a source interval, and cut the run into segments, each as long as
the weight of its starts is at most X; a cut lies where the connection that starts an interval runs, so that its weight
takes one of the M slots. In one segment let x source and n target starts lie, x + 2 n <= X, and let s0 source and t0
target intervals have started before and still be resident: s0 + t0 <= K = M - 1, since a neuron's source interval
starts after its target interval ends. A connection between two of the latter ran when the second of them started. So
with E(s, t) at least the most connections between s sources and t targets, the segment runs at most

    G(X) = max over x, n, s0, t0 of min(E(s0 + x, t0 + n), E(x, t0 + n) + E(s0, n)).

All segments but the last have starts of weight X - 1 or X. With W connections and q = ceil(W / G(X)), all starts weigh
at least Y = min(q (X - 1), (q - 1) (X - 1) + min{y : G(y) >= W - (q - 1) G(X)}), and the excess is at least sum 2 (b -
1) + sum (a - 1) = Y - 2 (target intervals) - (source intervals). Every X is valid; the best is taken. All this counts
the intervals and connections of one group only, so the bounds of several groups add up. Source: derived.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .live_intervals import IntervalGroup
from .spectral_weighting import is_within_reach, largest_deviation

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Crowding:
    """The most connections that few intervals can have among them.

    `most(s, t)` is at least the number of connections between any s source and t target intervals, for arrays of equal
    shape; it decreases in neither.
    """

    source_count: int
    target_count: int
    connection_count: int
    most: Callable[[Counts, Counts], Counts]


def segment_excess(crowding: Crowding, slots: int) -> int:
    """Rows that every run moves beyond one read of each neuron and one write of each output.

    Args:
        crowding: sizes and E.
        slots: K = M - 1, neurons that fast memory holds.
    """
    if crowding.connection_count == 0 or slots >= crowding.source_count + crowding.target_count:
        return 0  # a run in which all of them stay moves nothing twice
    starts = 2 * crowding.target_count + crowding.source_count
    weights = np.unique(np.geomspace(2, max(3, starts), num=24).astype(np.int64)).tolist()
    heaviest = max(_least_weight(crowding, slots, weight) for weight in weights)
    return max(0, heaviest - starts)


def interval_crowding(group: IntervalGroup) -> Crowding:
    """E for an interval group: the least of s t, the sums of the largest degrees, and p s t + d sqrt(s t).

    In the last, p is the density of the group and d the largest singular value of its matrix less p; it is left out for
    groups too large to know d.
    """
    out_sums, in_sums = _largest_sums(np.bincount(group.rows)), _largest_sums(np.bincount(group.columns))
    density = len(group.rows) / (group.shape[0] * group.shape[1])
    deviation = largest_deviation(group) if is_within_reach(group) else np.inf

    def most(sources: Counts, targets: Counts) -> Counts:
        s, t = np.minimum(sources, len(out_sums) - 1), np.minimum(targets, len(in_sums) - 1)
        product = (s * t).astype(np.float64)
        spread = np.where(product > 0, density * product + deviation * np.sqrt(np.maximum(product, 1.0)), 0.0)
        simple = np.minimum(s * t, np.minimum(out_sums[s], in_sums[t]))
        return np.floor(np.minimum(simple, spread + 1e-6)).astype(np.int64)

    return Crowding(len(out_sums) - 1, len(in_sums) - 1, len(group.rows), most)


def _largest_sums(degrees: NDArray[np.int64]) -> Counts:
    """Entry k is the sum of the k largest degrees."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(np.sort(degrees)[::-1]))).astype(np.int64)


def _least_weight(crowding: Crowding, slots: int, weight: int) -> int:
    """Y of the proof for X = `weight`."""
    full = _most_in_segment(crowding, slots, weight)
    if full == 0:
        return 0
    segments = -(-crowding.connection_count // full)
    rest = crowding.connection_count - (segments - 1) * full
    low, high = 0, weight
    while low < high:
        middle = (low + high) // 2
        if _most_in_segment(crowding, slots, middle) >= rest:
            high = middle
        else:
            low = middle + 1
    return min(segments * (weight - 1), (segments - 1) * (weight - 1) + low)


def _most_in_segment(crowding: Crowding, slots: int, weight: int) -> int:
    """G of the proof."""
    # Cells of values of n and of s0: the largest value of each argument in a cell bounds all of it.
    fewest_new, most_new = _cells(min(weight // 2, crowding.target_count), 100)
    fewest_old, most_old = _cells(slots, 50)
    shape = (len(fewest_new), len(fewest_old))
    new_sources = np.broadcast_to((weight - 2 * fewest_new)[:, None], shape)
    new_targets = np.broadcast_to(most_new[:, None], shape)
    old_sources = np.broadcast_to(most_old[None, :], shape)
    targets = slots - fewest_old[None, :] + new_targets
    together = crowding.most(old_sources + new_sources, targets)
    apart = crowding.most(new_sources, targets) + crowding.most(old_sources, new_targets)
    return int(np.max(np.minimum(together, apart)))


def _cells(last: int, count: int) -> tuple[Counts, Counts]:
    """First and last number of each of at most `count` cells that cover 0 .. last."""
    firsts = np.unique(np.linspace(0, last, min(last + 1, count)).astype(np.int64))
    return firsts, np.append(firsts[1:] - 1, last)
