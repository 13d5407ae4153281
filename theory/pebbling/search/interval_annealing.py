"""Interval stabbing, compiled: the annealing of `theory.stabbing_state` at 10^5 to 10^6 proposals a second.

It takes the same draws to the same moves at the same cost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.annealing.annealing import AnnealingPlan, AnnealingResult
from redpebble.theory.annealing.compiled_states import anneal_blocks
from redpebble.theory.annealing.jit import compiled
from redpebble.theory.pebbling.orders.interval_stabbing import TargetOrders, check_target_orders, fixed_cost
from redpebble.theory.pebbling.orders.stabbing_state import StabbingMoves, usual_moves
from redpebble.theory.pebbling.search.interval_swaps import (
    NOTHING,
    Reach,
    change_of,
    choose_swap,
    is_allowed,
    put_swap,
    times_after,
)
from redpebble.theory.pebbling.search.intervals import Intervals, intervals_of, settle


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
            run_swaps(self._intervals, (self._best, self._costs), (self._reach, temperature), draws)

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


def anneal_intervals(
    network: NeuronGraph, start: TargetOrders, plan: AnnealingPlan, rng: np.random.Generator
) -> AnnealingResult[TargetOrders]:
    """Anneal the orders of the targets, as `theory.stabbing_state.anneal_intervals` does, to the same result.

    Raises:
        ValueError: the start cannot be carried out.
    """
    return anneal_blocks(StabbingBlocks(network, start, usual_moves(start)), plan, rng)


@compiled
def run_swaps(
    intervals: Intervals,
    kept: tuple[NDArray[np.int32], NDArray[np.int64]],
    how: tuple[Reach, float],
    draws: NDArray[np.float64],
) -> None:
    """Proposals at one temperature; kept are the best orders, and the current and the best cost."""
    best, costs = kept
    reach, temperature = how
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
            keep(intervals.orders, best)


@compiled
def keep(orders: NDArray[np.int32], best: NDArray[np.int32]) -> None:
    """Copy the current orders."""
    for place in range(orders.shape[1]):
        best[0, place], best[1, place] = orders[0, place], orders[1, place]
