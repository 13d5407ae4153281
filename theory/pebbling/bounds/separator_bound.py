"""Few can stay: at any moment the intervals that ended and those that have not begun share no connection.

Proof. Fix a run and a moment at which a connection runs, so that its weight takes one of the M slots. An interval has
*ended* if all its connections have run, has *not begun* if none has, else it is *partial*. A connection between an
ended and a not begun interval would have run and not have run. A partial interval either belongs to a resident neuron,
and these are at most K = M - 1 intervals (see `live_intervals.py`), or its connections run in two residencies, and the
run pays its cost. So

    excess >= cost(partial intervals that are not resident) at every moment, and the moment is ours to choose.

Give left and right intervals measures mu that sum to 1 on each side, and let `missing(x)` be at least the measure of
every left set that shares no connection with a right set of measure >= x. Write h and e for the measures that have not
begun and that have ended. Then e_L <= missing(h_R) and h_L <= missing(e_R) at every moment. The balance (h_L + h_R) -
(e_L + e_R) falls from 2 to -2 in steps of at most `step`, since a connection begins, ends, or both, one interval on
either side. At the first moment at which it is at most t it lies in (t - step, t], so that d = e_L - h_L = h_R - e_R -
balance is known up to `step`, and

    e_L + h_L <= min(1, missing(h_R) + missing(e_R), 2 missing(e_R) + d, 2 missing(h_R) - d),  and e_L + h_L >= |d|.

For each h_R and e_R (cells of a grid) this bounds from below the measure p_L = 1 - e_L - h_L of the partial left
intervals; p_R = 1 - e_R - h_R.

It remains to bound the cost of partial intervals of these measures, K of them free. For prices alpha, beta >= 0 of a
unit of left and of right measure let w(r) be the price of interval r. For the residents R and the others D

    alpha p_L + beta p_R <= sum over R and D of w <= cost(D) + sum_R min(w, cost) + sum_{R, D} max(w - cost, 0)

    cost(D) >= alpha p_L + beta p_R - (the K largest min(w, cost)) - (the sum over all intervals of max(w - cost, 0)).

The left side is known before the prices are chosen, so the best prices count, for the worst cell, at the best t.
Source: derived.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .live_intervals import IntervalGroup

Floats = NDArray[np.float64]
_PRICE_FACTORS = np.array([0.0, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0])
_THRESHOLDS = (-0.5, -0.25, 0.0, 0.25, 0.5)
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Weighting:
    """Measures of the intervals, each side summing to 1, and an upper bound on what a left set can miss.

    `missing` maps right measures, shape [any], to left measures of the same shape, and does not increase.
    """

    left: Floats
    right: Floats
    missing: Callable[[Floats], Floats]


@dataclass(frozen=True)
class _Cells:
    """Lowest and highest measure a right set can have in each cell of a grid, shape [grid]."""

    lows: Floats
    highs: Floats


@dataclass(frozen=True)
class _Partial:
    """Least measures of partial intervals, shape [cells not begun, cells ended], and which cells no run can be in."""

    left: Floats
    right: Floats
    impossible: NDArray[np.bool_]


class _Prices(NamedTuple):
    """Prices of a unit of left and of right measure, and what is not counted at these."""

    left: float
    right: float
    forgiven: float


class _Moment(NamedTuple):
    """The balance that is waited for, and the cells in which the right sets may then be."""

    threshold: float
    cells: _Cells


def separator_excess(group: IntervalGroup, slots: int, weighting: Weighting) -> int:
    """Rows that every run moves beyond one read of each neuron and one write of each output.

    Args:
        group: intervals and their costs.
        slots: K = M - 1, neurons that fast memory holds.
        weighting: measures and what can be missed.
    """
    if group.shape[0] + group.shape[1] <= slots:
        return 0
    prices = [
        _Prices(alpha, beta, _forgiven(group, slots, np.concatenate((alpha * weighting.left, beta * weighting.right))))
        for alpha in _prices(group.left_costs, weighting.left)
        for beta in _prices(group.right_costs, weighting.right)
    ]
    # The threshold is chosen on a coarse grid, which bounds as truly but less sharply than the fine one.
    right_count = len(weighting.right)
    coarse, fine = _cells(weighting.right, min(48, 4 * right_count)), _cells(weighting.right, min(256, 4 * right_count))

    def excess_at(threshold: float, cells: _Cells) -> float:
        return _least_cost(_least_partial(group, weighting, _Moment(threshold, cells)), prices)

    threshold = max(_THRESHOLDS, key=lambda value: excess_at(value, coarse))
    return max(0, int(np.ceil(excess_at(threshold, fine) - _ROUNDING)))


def _least_cost(partial: _Partial, prices: list[_Prices]) -> float:
    """The best prices' bound for the worst cell."""
    best = np.where(partial.impossible, np.inf, 0.0)
    for left, right, forgiven in prices:
        np.maximum(best, left * partial.left + right * partial.right - forgiven, out=best)
    return float(best.min())


def _least_partial(group: IntervalGroup, weighting: Weighting, moment: _Moment) -> _Partial:
    """Neurons that must be partial at the first moment at which the balance is at most the threshold."""
    threshold, cells = moment
    missed = weighting.missing(cells.lows)
    missed_by_not_begun, missed_by_ended = missed[:, None], missed[None, :]
    lowest = cells.lows[:, None] - cells.highs[None, :] - threshold
    highest = cells.highs[:, None] - cells.lows[None, :] - threshold + _largest_step(group, weighting)
    whole = np.minimum(1.0, missed_by_not_begun + missed_by_ended)
    whole = np.minimum(whole, np.minimum(2 * missed_by_ended + highest, 2 * missed_by_not_begun - lowest))
    least_difference = np.maximum(0.0, np.maximum(lowest, -highest))
    too_many = cells.lows[:, None] + cells.lows[None, :] > 1.0 + _ROUNDING
    right = np.maximum(0.0, 1.0 - cells.highs[:, None] - cells.highs[None, :])
    return _Partial(1.0 - whole, right, too_many | (whole < least_difference - _ROUNDING))


def _largest_step(group: IntervalGroup, weighting: Weighting) -> float:
    """The most that one connection lowers the balance: an interval of one connection begins and ends at once."""
    left_falls = weighting.left * np.where(np.bincount(group.rows, minlength=group.shape[0]) == 1, 2, 1)
    right_falls = weighting.right * np.where(np.bincount(group.columns, minlength=group.shape[1]) == 1, 2, 1)
    return float(np.max(left_falls[group.rows] + right_falls[group.columns]))


def _cells(measures: Floats, count: int) -> _Cells:
    """The measures that a right set can have: exact multiples if all intervals measure the same, else `count` cells."""
    if _is_uniform(measures) and len(measures) <= 2 * count:
        exact = np.arange(len(measures) + 1) / len(measures)
        return _Cells(exact, exact)
    points = np.linspace(0.0, 1.0, count + 1)
    return _Cells(points[:-1], points[1:])


def _is_uniform(measures: Floats) -> bool:
    return bool(np.ptp(measures) < 1e-12 * measures.max())


def _prices(costs: NDArray[np.int64], measures: Floats) -> list[float]:
    """Prices at which an interval of usual measure is worth about a cost that occurs on its side, and 0."""
    factors = np.array([0.0, 0.5, 1.0, 2.0]) if _is_uniform(measures) else _PRICE_FACTORS
    return np.unique(np.outer(factors, np.unique(costs)) / float(np.median(measures))).tolist()


def _forgiven(group: IntervalGroup, slots: int, worth: Floats) -> float:
    """Connections that the residents cover, and the worth of intervals beyond their cost."""
    costs = np.concatenate((group.left_costs, group.right_costs)).astype(np.float64)
    capped = np.minimum(worth, costs)
    residents = np.partition(capped, len(capped) - slots)[len(capped) - slots :] if slots < len(capped) else capped
    return float(residents.sum() + np.maximum(worth - costs, 0.0).sum())
