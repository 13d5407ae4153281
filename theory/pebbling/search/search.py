"""The entry point of the search: the best connection order that a budget finds, never worse than the best start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph
from ..machine import Memory, Policy, TransferCount
from ..machine_compiled import count_transfers
from .phases import Budget, Candidate, Search, SearchTrace, joined_trace
from .starts import start_orders

STARTS_SHARE: Final = 0.4
"""Share of a time budget after which no further start is made."""


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
            raise ValueError("a search takes a number of proposals or a time budget")
        if self.proposals is not None and self.proposals < 0:
            raise ValueError(f"a search of {self.proposals} proposals is less than none")
        if min(self.threads, self.restarts) < 1:
            raise ValueError(f"{self.threads} threads and {self.restarts} restarts, at least 1 of each is needed")

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
    the best order of all is taken.

    Args:
        network: what to run.
        request: memory and budget.
        rng: source of randomness.
    """
    budget = request.budget()
    orders = start_orders(network, request.capacity, lambda: budget.is_spent(STARTS_SHARE))
    starts = {name: count_transfers(network, order, request.memory) for name, order in orders.items()}
    candidates = {name: Candidate(orders[name], count.total, name, ()) for name, count in starts.items()}
    found = [min(candidates.values(), key=lambda candidate: candidate.cost)]
    if request.proposals != 0 and network.connection_count > 1:
        searches = [Search(network, request.memory, budget, thread) for thread in rng.spawn(request.threads)]
        with ThreadPoolExecutor(request.threads) as pool:
            futures = [pool.submit(search.improve, candidates) for search in searches]
        found += [future.result() for future in futures]
    best = min(found, key=lambda candidate: candidate.cost)
    counts = count_transfers(network, best.order, request.memory)
    return FoundOrder(best.order, counts, best.start, joined_trace(best.trace), starts)
