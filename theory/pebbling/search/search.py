"""The entry point of the search: the best connection order that a budget finds, never worse than the best start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph
from ...annealing.annealing import AnnealingPlan, TracePoint
from ...annealing.compiled_states import anneal_blocks
from ...compiled import never, one_connection
from ..exact_optimum import exact_optimum
from ..machine import Memory, Policy, TransferCount
from ..machine_compiled import count_transfers
from ..orders.interval_stabbing import TargetOrders, decode
from ..orders.simple_orders import pull_order
from .connection_moves import ConnectionBlocks, ConnectionMoves, anneal_connections, moves_are_ready
from .interval_annealing import StabbingBlocks, StabbingMoves, swaps_are_ready
from .starts import rolling_targets, start_orders, target_orders

STARTS_SHARE: Final = 0.4
"""Share of a time budget after which no further start is made."""

COMPILING_SHARE: Final = 0.6
"""Share of a time budget after which no loop is waited for that is still being compiled."""

EXACT: Final = "exact optimum"
"""Name of the start that no order and eviction go below; networks of small parts have one."""


@dataclass(frozen=True)
class SearchRequest:
    """The request of a search: its goal and its length.

    Args:
        capacity: M, in values (in rows of B values for the batched form).
        policy: how the victim of an eviction is chosen.
        proposals: budget in proposed moves, of all threads and restarts together; the same seed then finds the same
            order. 0 takes the best start.
        remaining: what is left of a time budget, in any unit; it is asked now and again, and the search ends when it is
            not positive. The first answer is the whole budget. With `proposals`, too, the first of both ends it.
        threads: searches that run side by side; the best one wins.
        restarts: how often each search heats up again, from its best order.

    Raises:
        ValueError: M < 3, an unknown policy, no budget, or threads or restarts below 1.
    """

    capacity: int
    policy: Policy = "min"
    proposals: int | None = None
    remaining: Callable[[], float] | None = None
    threads: int = 1
    restarts: int = 1

    def __post_init__(self) -> None:
        """Check all fields."""
        Memory(self.capacity, self.policy)
        if self.proposals is None and self.remaining is None:
            raise ValueError("expected a number of proposals or a time budget of the search, got neither")
        if self.proposals is not None and self.proposals < 0:
            raise ValueError(f"expected 0 proposals or more, got {self.proposals}")
        if min(self.threads, self.restarts) < 1:
            raise ValueError(f"expected 1 thread and 1 restart or more, got {self.threads} and {self.restarts}")

    def budget(self) -> Budget:
        """The budget of each thread; a time budget begins now."""
        proposals = None if self.proposals is None else self.proposals // self.threads
        if self.remaining is None:
            return Budget(proposals, None, self.restarts)
        remaining, whole = self.remaining, self.remaining()
        return Budget(proposals, lambda: 1.0 - remaining() / whole if whole > 0 else 1.0, self.restarts)

    @property
    def memory(self) -> Memory:
        """The memory that orders are counted for."""
        return Memory(self.capacity, self.policy)


@dataclass(frozen=True, eq=False)
class FoundOrder:
    """The best order of a search, and what it was compared with.

    Attributes:
        order: connection ids, shape [W], int64.
        counts: what it moves for the memory asked for.
        start: the name of the start that it came from.
        trace: of the search that found it.
        starts: what each start moves; never less than `counts`.
    """

    order: NDArray[np.int64]
    counts: TransferCount
    start: str
    trace: SearchTrace
    starts: Mapping[str, TransferCount]


def search_order(network: NeuronGraph, request: SearchRequest, rng: np.random.Generator) -> FoundOrder:
    """Search the connection order with the fewest transfers.

    First orders of targets are annealed, then connections one by one and in runs; every thread does so on its own, and
    the best order of all is taken. Where the optimum of a small network is known, only other policies are searched for
    than one under which its order has it.

    Args:
        network: what to run.
        request: memory and budget.
        rng: source of randomness.
    """
    budget = request.budget()
    one = one_connection()
    count_transfers(one, pull_order(one), request.memory)  # compiles what nothing goes without
    exact = exact_optimum(network, request.capacity, budget.after(1.0))
    orders = start_orders(network, request.capacity, budget.after(STARTS_SHARE))
    starts = {name: count_transfers(network, order, request.memory) for name, order in orders.items()}
    if exact is not None:
        starts[EXACT], orders[EXACT] = count_transfers(network, exact.order, request.memory), exact.order
    candidates = {name: Candidate(orders[name], count.total, name, ()) for name, count in starts.items()}
    found = [min(candidates.values(), key=lambda candidate: candidate.cost)]
    is_best = exact is not None and found[0].cost == exact.total
    if request.proposals != 0 and network.connection_count > 1 and not is_best:
        searches = [Search(network, request.memory, budget, thread) for thread in rng.spawn(request.threads)]
        with ThreadPoolExecutor(request.threads) as pool:
            futures = [pool.submit(search.improve, candidates) for search in searches]
        found += [future.result() for future in futures]
    best = min(found, key=lambda candidate: candidate.cost)
    counts = count_transfers(network, best.order, request.memory)
    return FoundOrder(best.order, counts, best.start, joined_trace(best.trace), starts)


# The phases of one search: orders of targets, then connections; each takes its share of the budget.

# Proposals of one block: between blocks the clock is asked and the temperature falls.
_BLOCK = 2048
_UNLIMITED = 1 << 62
# Connections up to which moves of them reach everything; of larger networks they only mend the orders of targets.
_SMALL = 500
# Connections from which on they are not moved one by one, which wins a few of them and takes seconds to begin with, and
# from which on only the best start is searched from.
_HUGE = 200_000
# Under LRU and RR fewer targets than M - 2 may be open, since sources that have passed leave late: shares of M to try.
_OPEN_SHARES: Final[Mapping[Policy, tuple[float, ...]]] = {
    "lru": (0.45, 0.55, 0.65, 0.75),
    "rr": (0.15, 0.25, 0.35, 0.45),
}
_TRIED_SHARE = 0.25


class SearchTrace(NamedTuple):
    """Trace of the search: its current and best cost, in transfers, after so many proposals. Shape [points] each.

    While orders of targets are searched under MIN it is the cost of their intervals, which MIN comes near; the search
    under LRU begins with connections. For `writeback` connections move at their cost under MIN, for RR under LRU.
    `proposals` ascends, `best_costs` never does.
    """

    proposals: NDArray[np.int64]
    costs: NDArray[np.int64]
    best_costs: NDArray[np.int64]


class Candidate(NamedTuple):
    """An order, its transfers, the start that it came from, and how."""

    order: NDArray[np.int64]
    cost: int
    start: str
    trace: tuple[TracePoint, ...]


class Phase(NamedTuple):
    """The shares of the budget between which a phase runs, from 0 to 1."""

    begin: float
    end: float


class Temperatures(NamedTuple):
    """First and last temperature of a phase, in transfers."""

    hottest: float
    coldest: float


@dataclass(frozen=True)
class Budget:
    """Budget of one search: proposals, what `spent`, from 0 to 1, says of a time budget, or both."""

    proposals: int | None
    spent: Callable[[], float] | None
    restarts: int

    @property
    def is_late(self) -> Callable[[], bool]:
        """Whether loops that are not compiled would come too late."""
        return self.after(COMPILING_SHARE)

    def after(self, share: float) -> Callable[[], bool]:
        """Whether so much of a time budget is spent, for those who ask later."""
        return never if self.spent is None else partial(self.is_spent, share)

    def is_spent(self, share: float) -> bool:
        """Whether so much of a time budget is spent; never without one."""
        return self.spent is not None and self.spent() >= share

    def plan(self, phase: Phase, temperatures: Temperatures) -> AnnealingPlan:
        """The plan of a phase."""
        (begin, end), (hottest, coldest) = phase, temperatures
        spent = self.spent
        count = _UNLIMITED if self.proposals is None else max(1, round(self.proposals * (end - begin)))
        elapsed = None if spent is None else lambda: (spent() - begin) / (end - begin)
        return AnnealingPlan(hottest, coldest, count, min(self.restarts, count), _BLOCK, elapsed)


class Search:
    """One search; several may run side by side."""

    def __init__(self, network: NeuronGraph, memory: Memory, budget: Budget, rng: np.random.Generator) -> None:
        self._network, self._memory, self._budget, self._rng = network, memory, budget, rng

    def improve(self, starts: Mapping[str, Candidate]) -> Candidate:
        """The best order found from the starts, or the best start."""
        best = min(starts.values(), key=lambda start: start.cost)
        if not swaps_are_ready(self._budget.is_late):
            return best
        if self._network.connection_count < _HUGE:
            moves_are_ready(self._budget.is_late)
        shares = _OPEN_SHARES.get(self._memory.policy)
        found = self._by_min(starts) if shares is None else self._by_open_counts(shares)
        if found.cost <= best.cost:
            return found
        return best._replace(trace=found.trace)

    def _by_min(self, starts: Mapping[str, Candidate]) -> Candidate:
        """Targets in the orders of the start whose orders of targets cost least, then connections."""
        open_count = self._memory.capacity - 2
        best = min(starts.values(), key=lambda start: start.cost)
        tried = [best] if self._network.connection_count >= _HUGE else [*starts.values()]
        states = {of.start: self._state(target_orders(self._network, of.order, open_count)) for of in tried}
        name = min(states, key=lambda start: states[start].cost)
        share = self._targets_share()
        found = self._anneal_targets(states[name], name, Phase(0.0, share))
        if best.cost < found.cost:
            found = best._replace(trace=found.trace)
        return self._move_connections(found, Phase(share, 1.0))

    def _targets_share(self) -> float:
        """The share of the budget that goes to orders of targets, the rest to connections."""
        count = self._network.connection_count
        if count >= _HUGE:
            return 1.0
        return 0.9 if count > _SMALL else 0.3

    def _by_open_counts(self, shares: Sequence[float]) -> Candidate:
        """A short search for each number of open targets, with moves of connections; a longer one for the best number.

        The best number before these moves need not be the best number after them.
        """
        counts = sorted({max(1, round(share * self._memory.capacity)) for share in shares})
        width = _TRIED_SHARE / len(counts)
        tried: list[tuple[int, Candidate, Candidate, StabbingBlocks]] = []
        for number, open_count in enumerate(counts):
            begin, middle, end = ((number + part) * width for part in (0.0, 0.3, 1.0))
            rolled = rolling_targets(self._network, open_count, self._budget.after(middle))
            state = min((self._state(orders) for orders in rolled), key=lambda one: one.cost)
            targets = self._anneal_targets(state, f"rolling, {open_count} open", Phase(begin, middle))._replace(
                trace=()
            )
            moved = self._move_connections(targets, Phase(middle, end))
            tried.append((moved.cost, targets, moved, state))
        _, targets, moved, state = min(tried, key=lambda one: one[0])
        state.go_back()
        longer = self._anneal_targets(state, targets.start, Phase(_TRIED_SHARE, 0.5))._replace(trace=moved.trace)
        return min(moved, self._move_connections(longer, Phase(0.5, 1.0)), key=lambda candidate: candidate.cost)

    def _state(self, orders: TargetOrders) -> StabbingBlocks:
        """The state; where targets have few sources, moves go further, and more of them aim."""
        far = self._degree() <= 8
        moves = StabbingMoves(max(1, orders.open_count // (1 if far else 2)), 0.3 if far else 0.1)
        return StabbingBlocks(self._network, orders, moves)

    def _degree(self) -> float:
        """Mean connections into a target."""
        return self._network.connection_count / max(1, int(np.sum(self._network.in_degrees > 0)))

    def _anneal_targets(self, state: StabbingBlocks, start: str, phase: Phase) -> Candidate:
        """A swap changes the loads of many sources where degrees are high: the cooler, the more they are."""
        hottest = min(0.5, 3.0 / self._degree())
        result = anneal_blocks(state, self._budget.plan(phase, Temperatures(hottest, hottest / 6)), self._rng)
        order = decode(self._network, result.best)
        return Candidate(order, self._cost(order), start, result.trace)

    def _move_connections(self, start: Candidate, phase: Phase) -> Candidate:
        is_lru, connection_count = self._memory.policy in _OPEN_SHARES, self._network.connection_count
        if connection_count >= _HUGE or self._budget.is_spent(1.0) or not moves_are_ready(self._budget.is_late):
            return start
        temperatures = Temperatures(0.3, 0.1) if is_lru else Temperatures(0.1, 0.05)
        if connection_count <= _SMALL:
            temperatures = Temperatures(1.0, 0.1)
        moves = ConnectionMoves(run_share=0.9 if is_lru else 0.5, aimed_share=0.8)
        moved_by = Memory(self._memory.capacity, "lru" if is_lru else "min")
        state = ConnectionBlocks(self._network, start.order, moved_by, moves)
        plan = self._budget.plan(phase, temperatures)
        # The best order is looked for between blocks; after one, MIN counts the whole order again.
        plan = replace(plan, block=max(4, min(_BLOCK, connection_count // 8)))
        result = anneal_connections(state, plan, self._rng)
        moved = Candidate(result.best, self._cost(result.best), start.start, (*start.trace, *result.trace))
        return moved if moved.cost <= start.cost else start._replace(trace=moved.trace)

    def _cost(self, order: NDArray[np.int64]) -> int:
        return count_transfers(self._network, order, self._memory).total


def joined_trace(points: tuple[TracePoint, ...]) -> SearchTrace:
    """The trace of several phases: each counts its proposals from 0."""
    proposals = np.array([point.proposals for point in points], dtype=np.int64)
    steps = np.diff(proposals, prepend=0)
    steps[steps < 0] = 0
    best_costs = np.array([point.best_cost for point in points], dtype=np.int64)
    return SearchTrace(
        np.cumsum(steps),
        np.array([point.cost for point in points], dtype=np.int64),
        np.minimum.accumulate(best_costs) if len(points) else best_costs,
    )
