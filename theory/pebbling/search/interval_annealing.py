"""Annealing of the orders in which targets open and close, compiled: 10^5 to 10^6 proposals a second.

A move swaps two targets in the opening order, the closing order, or both. It changes the intervals of these two only,
so that the exact cost is that of their sources again, and of the two as sources if they close at another time. The
plain version that this equals, draw by draw, is the tests' `oracles/interval_annealing.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph
from ...compiled import compiled
from ..orders.interval_stabbing import TargetOrders, check_target_orders, fixed_cost
from .interval_swaps import (
    NOTHING,
    Reach,
    change_of,
    choose_swap,
    is_allowed,
    put_swap,
    times_after,
)
from .intervals import Intervals, intervals_of, settle


@dataclass(frozen=True)
class StabbingMoves:
    """Largest distance of swapped targets, in positions, and the share of proposals that aim.

    An aimed move swaps a target with the neighbour, in both orders, of another target of one of its sources. The other
    proposals swap openings, closings, and both, a third each.
    """

    window: int = 200
    aimed_share: float = 0.0


class StabbingBlocks:
    """Orders of targets under swaps, a block of proposals at a time.

    Raises:
        ValueError: the start cannot be carried out.
    """

    def __init__(self, network: NeuronGraph, start: TargetOrders, moves: StabbingMoves) -> None:
        check_target_orders(network, start)
        self._network = network
        self._reach = Reach(moves.window, moves.aimed_share)
        self._intervals = intervals_of(network, start)
        cost = fixed_cost(network) + settle(self._intervals)
        self._costs = np.array([cost, cost], dtype=np.int64)
        self._best = self._intervals.orders.copy()

    @property
    def cost(self) -> int:
        """Transfers of the current orders, in values."""
        return int(self._costs[0])

    @property
    def best_cost(self) -> int:
        """Transfers of the best orders, in values."""
        return int(self._costs[1])

    def run(self, draws: NDArray[np.float64], temperature: float) -> None:
        """Make one proposal for each row of draws, shape [proposals, 5]."""
        if self._best.shape[1] > 1:
            run_swaps(self._intervals, Kept(self._best, self._costs), self._reach, temperature, draws)

    def current(self) -> TargetOrders:
        """The current orders."""
        return self._as_orders(self._intervals.orders)

    def best(self) -> TargetOrders:
        """The best orders."""
        return self._as_orders(self._best)

    def go_back(self) -> None:
        """Continue from the best orders."""
        self._intervals = intervals_of(self._network, self.best())
        settle(self._intervals)
        self._costs[0] = self._costs[1]

    def _as_orders(self, orders: NDArray[np.int32]) -> TargetOrders:
        opening, closing = orders.astype(np.int64)
        return TargetOrders(opening, closing, int(self._intervals.shifts[0]) + 1)


class Kept(NamedTuple):
    """The best orders [2, targets], and the current and the best cost [2]."""

    orders: NDArray[np.int32]
    costs: NDArray[np.int64]


@compiled
def run_swaps(intervals: Intervals, kept: Kept, reach: Reach, temperature: float, draws: NDArray[np.float64]) -> None:
    """Make the proposals of draws [proposals, 5] at one temperature."""
    costs = kept.costs
    for number in range(len(draws)):
        row = draws[number]
        swap = choose_swap(intervals, reach, row)
        if swap.kind == NOTHING:
            continue
        times = times_after(intervals, swap)
        if not is_allowed(intervals, swap, times):
            continue
        # Above this no draw accepts; the one more is for rounding.
        limit = int(min(-temperature * np.log(max(row[4], 1e-300)), 1e9)) + 1
        change = change_of(intervals, swap, times, limit)
        if change > 0 and row[4] >= np.exp(-change / temperature):
            continue
        put_swap(intervals, swap, times)
        costs[0] += change
        if costs[0] < costs[1]:
            costs[1] = costs[0]
            keep(intervals.orders, kept.orders)


@compiled
def keep(orders: NDArray[np.int32], best: NDArray[np.int32]) -> None:
    """Copy the current orders [2, targets]."""
    for position in range(orders.shape[1]):
        best[0, position], best[1, position] = orders[0, position], orders[1, position]
