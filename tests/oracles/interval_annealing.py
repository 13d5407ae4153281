"""Interval stabbing under moves, plainly: what `redpebble.theory.pebbling.search.interval_annealing` must equal.

A swap changes the intervals of two targets only, so the exact cost is that of their sources again, and of the two as
sources if they close at another time. All other sources keep their loads.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.annealing.annealing import AnnealingPlan, AnnealingResult, anneal
from redpebble.theory.pebbling.orders.interval_stabbing import TargetOrders, check_target_orders, fixed_cost
from redpebble.theory.pebbling.search.interval_annealing import StabbingMoves


def anneal_intervals(
    network: NeuronGraph, start: TargetOrders, plan: AnnealingPlan, rng: np.random.Generator
) -> AnnealingResult[TargetOrders]:
    """Anneal the orders of the targets with the usual moves; see `StabbingState` for others.

    Raises:
        ValueError: the start cannot be carried out.
    """
    moves = usual_moves(start)
    return anneal(lambda orders: StabbingState(network, orders or start, moves), plan, rng)


def usual_moves(start: TargetOrders) -> StabbingMoves:
    """Moves over about a third of the open targets: of those tried, these gained most in the same time."""
    return StabbingMoves(window=max(1, start.open_count // 3), aimed_share=0.1)


class StabbingState:
    """Intervals of all targets, and the loads that stab them.

    Raises:
        ValueError: the start cannot be carried out.
    """

    def __init__(self, network: NeuronGraph, start: TargetOrders, moves: StabbingMoves) -> None:
        check_target_orders(network, start)
        self._moves = moves
        self._shift = start.open_count - 1
        self._orders: tuple[list[int], list[int]] = (start.opening.tolist(), start.closing.tolist())
        opened, closed = (_places(network, order) for order in (start.opening, start.closing))
        self._places = (opened, closed)
        self._sources = _ends(network.sources, network.incoming.indices, network.incoming.pointers)
        self._targets = _ends(network.targets, network.outgoing.indices, network.outgoing.pointers)
        is_target = network.in_degrees > 0
        self._hidden_sources = [[s for s in sources if is_target[s]] for sources in self._sources]
        # A value that is written although nothing else needs the write costs one more once it is loaded again.
        self._write_costs: list[int] = (is_target & ~network.is_output).astype(np.int64).tolist()
        self._load_costs = [self._load_cost(source) for source in range(network.neuron_count)]
        self._cost = fixed_cost(network) + sum(self._load_costs)
        self._swapped: list[tuple[int, int, int]] = []
        self._old_costs: dict[int, int] = {}

    @property
    def cost(self) -> int:
        """Transfers of the current orders."""
        return self._cost

    def snapshot(self) -> TargetOrders:
        """The current orders."""
        opening, closing = (np.array(order, dtype=np.int64) for order in self._orders)
        return TargetOrders(opening, closing, self._shift + 1)

    def propose(self, draws: list[float]) -> int | None:
        """Swap two targets; the draws choose the kind, the first target, and the second by one or two draws."""
        count = len(self._orders[0])
        if count < 2:
            return None
        aims = draws[0] < self._moves.aimed_share
        pairs = self._aimed_swaps(draws) if aims else self._window_swaps(draws)
        self._swapped = []
        for which, one, other in pairs:
            self._swap(which, one, other)
            self._swapped.append((which, one, other))
        if not pairs or not self._is_allowed(pairs):
            self._undo_swaps()
            return None
        return self._recount(pairs)

    def reject(self) -> None:
        """Swap back and take the old costs again."""
        self._undo_swaps()
        for source, cost in self._old_costs.items():
            self._cost += cost - self._load_costs[source]
            self._load_costs[source] = cost

    def _window_swaps(self, draws: list[float]) -> list[tuple[int, int, int]]:
        """(order, target, target) for a swap of openings (0), closings (1) or both, at most `window` places apart."""
        aimed = self._moves.aimed_share
        kind = int(3 * (draws[0] - aimed) / (1 - aimed))
        order = self._orders[min(kind, 1)]
        place = int(draws[1] * len(order))
        offset = 1 + int(draws[2] * self._moves.window)
        other = place + (offset if draws[3] < 0.5 else -offset)
        if not 0 <= other < len(order):
            return []
        one, two = order[place], order[other]
        return [(which, one, two) for which in ((0,), (1,), (0, 1))[kind]]

    def _aimed_swaps(self, draws: list[float]) -> list[tuple[int, int, int]]:
        """Both orders: a target and a neighbour, in the closing order, of another target of one of its sources."""
        closing = self._orders[1]
        one = closing[int(draws[1] * len(closing))]
        source = self._sources[one][int(draws[2] * len(self._sources[one]))]
        # The last draw chose among the targets; its lower digits choose the side.
        scaled = draws[3] * len(self._targets[source])
        near = self._targets[source][int(scaled)]
        place = self._places[1][near] + (1 if scaled % 1.0 < 0.5 else -1)
        if near == one or not 0 <= place < len(closing) or closing[place] == one:
            return []
        return [(which, one, closing[place]) for which in (0, 1)]

    def _swap(self, which: int, one: int, other: int) -> None:
        places, order = self._places[which], self._orders[which]
        places[one], places[other] = places[other], places[one]
        order[places[one]], order[places[other]] = one, other

    def _undo_swaps(self) -> None:
        for swap in self._swapped:
            self._swap(*swap)
        self._swapped = []

    def _is_allowed(self, pairs: list[tuple[int, int, int]]) -> bool:
        """Both targets open before they close, close after their sources, and before their own targets."""
        opened, closed = self._places
        for target in pairs[0][1:]:
            end = closed[target]
            if opened[target] - self._shift > end:
                return False
            if pairs[-1][0] == 0:
                continue
            if any(closed[source] >= end for source in self._hidden_sources[target]):
                return False
            if any(closed[after] <= end for after in self._targets[target]):
                return False
        return True

    def _recount(self, pairs: list[tuple[int, int, int]]) -> int:
        """Count the loads of all sources whose targets' intervals, or own closing, changed."""
        one, other = pairs[0][1:]
        changed = dict.fromkeys(self._sources[one] + self._sources[other])
        if pairs[-1][0] == 1:
            changed |= dict.fromkeys((one, other))
        self._old_costs = {}
        difference = 0
        for source in changed:
            cost = self._load_cost(source)
            if cost != self._load_costs[source]:
                self._old_costs[source] = self._load_costs[source]
                difference += cost - self._load_costs[source]
                self._load_costs[source] = cost
        self._cost += difference
        return difference

    def _load_cost(self, source: int) -> int:
        """Loads by the greedy stabbing of `interval_stabbing`, and the write that makes them possible."""
        opened, closed = self._places
        shift = self._shift
        point = closed[source] + 1
        loads = 0
        for end, start in sorted([(closed[target], opened[target] - shift) for target in self._targets[source]]):
            if max(0, start) > point:
                loads += 1
                point = end
        return loads + (self._write_costs[source] if loads else 0)


def _places(network: NeuronGraph, order: NDArray[np.int64]) -> list[int]:
    """Place of each target in an order, shape [N]; -2 for neurons that are final from the start."""
    places = np.full(network.neuron_count, -2, dtype=np.int64)
    places[order] = np.arange(len(order))
    return places.tolist()


def _ends(ends: NDArray[np.int64], connections: NDArray[np.int64], starts: NDArray[np.int64]) -> list[list[int]]:
    """The other ends of each neuron's connections."""
    cuts: list[int] = starts.tolist()
    others: list[int] = ends[connections].tolist()
    return [others[first:end] for first, end in pairwise(cuts)]
