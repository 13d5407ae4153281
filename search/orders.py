"""The entry point of the search: the best connection order that a budget finds, never worse than the best start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from redpebble.search.counting import count_transfers
from redpebble.theory.annealing import AnnealingPlan
from redpebble.theory.bandwidth_order import reverse_cuthill_mckee_order
from redpebble.theory.frontier_order import narrow_frontier_order
from redpebble.theory.interval_stabbing import decode
from redpebble.theory.memory import Memory, TransferCount
from redpebble.theory.network import Network
from redpebble.theory.orders import depth_first_order, pull_order, push_order, target_block_order
from redpebble.theory.rolling_orders import greedy_rolling_order, greedy_target_orders, sliding_window_order
from redpebble.theory.stabbing_state import anneal_intervals


@dataclass(frozen=True)
class SearchRequest:
    """What to search for, and for how long.

    Args:
        capacity: M, in values (in rows of B values for the batched form).
        policy: who is evicted; the random policy has no exact cost to search by.
        proposals: budget in proposed moves, of all threads and restarts together; the same seed then finds the same
            order. 0 takes the best start.
        remaining: instead of `proposals`: what is left of a time budget, in any unit; it is asked now and again, and
            the search ends when it is not positive. The first answer is the whole budget.
        threads: searches that run side by side; the best one wins.
        restarts: how often each search heats up again, from its best order.

    Raises:
        ValueError: M < 3, an unknown policy, both budgets or none, or threads or restarts below 1.
    """

    capacity: int
    policy: Literal["min", "lru"] = "min"
    proposals: int | None = None
    remaining: Callable[[], float] | None = None
    threads: int = 1
    restarts: int = 1

    def __post_init__(self) -> None:
        """Check all fields."""
        if Memory(self.capacity, self.policy).policy == "random":
            raise ValueError("the random policy has no exact cost to search by")
        if (self.proposals is None) == (self.remaining is None):
            raise ValueError("a search takes either a number of proposals or a time budget")
        if self.proposals is not None and self.proposals < 0:
            raise ValueError(f"a search of {self.proposals} proposals is less than none")
        if min(self.threads, self.restarts) < 1:
            raise ValueError(f"{self.threads} threads and {self.restarts} restarts, at least 1 of each is needed")

    @property
    def memory(self) -> Memory:
        """The memory that orders are counted for."""
        return Memory(self.capacity, self.policy)


class SearchTrace(NamedTuple):
    """How the search went: the cost in transfers, as the search estimates it, after so many proposals. Shape [points].

    `proposals` ascends; `best_costs` never does.
    """

    proposals: NDArray[np.int64]
    costs: NDArray[np.int64]
    best_costs: NDArray[np.int64]


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


def search_order(network: Network, request: SearchRequest, rng: np.random.Generator) -> FoundOrder:
    """Search the connection order with the fewest transfers.

    Args:
        network: what to run.
        request: memory and budget.
        rng: source of randomness.
    """
    orders = start_orders(network, request.capacity)
    counts = {name: count_transfers(network, order, request.memory) for name, order in orders.items()}
    best = min(counts, key=lambda name: counts[name].total)
    empty = np.zeros(0, dtype=np.int64)
    found = FoundOrder(orders[best], counts[best], best, SearchTrace(empty, empty, empty), counts)
    if request.proposals == 0 or network.connection_count < 2:
        return found
    start = greedy_target_orders(network, request.capacity - 2, 3.0)
    plan = AnnealingPlan(0.35, 0.1, min(request.proposals or 2000, 2000))
    result = anneal_intervals(network, start, plan, rng)
    order = decode(network, result.best)
    count = count_transfers(network, order, request.memory)
    points = [
        np.array([getattr(p, n) for p in result.trace], dtype=np.int64) for n in ("proposals", "cost", "best_cost")
    ]
    if count.total < found.counts.total:
        return FoundOrder(order, count, "greedy rolling 3", SearchTrace(*points), counts)
    return found


def start_orders(network: Network, capacity: int) -> dict[str, NDArray[np.int64]]:
    """Orders without a search, by name."""
    open_count = capacity - 2
    return {
        "pull": pull_order(network),
        "push": push_order(network),
        "target blocks": target_block_order(network, open_count),
        "depth first": depth_first_order(network),
        "reverse cuthill-mckee": reverse_cuthill_mckee_order(network),
        "narrow frontier": narrow_frontier_order(network),
        "sliding window": sliding_window_order(network, open_count),
        "greedy rolling 3": greedy_rolling_order(network, open_count, 3.0),
    }
