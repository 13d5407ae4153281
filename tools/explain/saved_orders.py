"""Searching an order for all connections of a model, and the file that others can count it from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

import numpy as np

from ...foundation.atomic_files import replacing
from ...sparse.neuron_graph import NeuronGraph
from ...theory.compiled import never
from ...theory.pebbling.bounds.bounds import instance_bounds
from ...theory.pebbling.machine import Policy, TransferCount
from ...theory.pebbling.search.search import FoundOrder, SearchRequest, search_order
from .neuron_graphs import FlatModel, join, join_orders
from .search_watch import SearchWatch

LONGER_FOR_BOUNDS: Final = 1.0
"""Seconds after the end of a search from which on no bound is begun."""


@dataclass(frozen=True)
class SearchBudget:
    """Seconds of a search, or proposals, with which the same seed finds the same order; 0 take the best start."""

    seconds: float = 5.0
    proposals: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seconds < float("inf"):
            raise ValueError(f"expected 0 seconds or more to search, got {self.seconds}")
        if self.proposals is not None and self.proposals < 0:
            raise ValueError(f"expected 0 proposals or more to search, got {self.proposals}")

    @property
    def known_seconds(self) -> float | None:
        """Seconds that a search takes; None for proposals, which take as long as they take."""
        return self.seconds if self.proposals is None else None

    def after(self, seconds: float) -> "SearchBudget":
        """Return what is left once so many seconds have gone by."""
        return SearchBudget(max(0.0, self.seconds - seconds), self.proposals, self.seed)

    def is_late(self, seconds: float) -> bool:
        """Whether no bound is to be begun once so many seconds have gone by; one that is worked out is waited for."""
        return self.known_seconds is not None and seconds >= self.known_seconds + LONGER_FOR_BOUNDS

    def part(self, share: float) -> "SearchBudget":
        """Return a share of the budget."""
        proposals = None if self.proposals is None else round(self.proposals * share)
        return SearchBudget(self.seconds * share, proposals, self.seed)


@dataclass(frozen=True)
class ScheduleRequest:
    """A search: rows of fast memory, which value is evicted, and how long."""

    memory: int
    policy: Policy
    budget: SearchBudget


@dataclass(frozen=True)
class FoundSchedule:
    """The graphs of a model, and the order found for each."""

    networks: tuple[NeuronGraph, ...]
    found: tuple[FoundOrder, ...]

    @property
    def counts(self) -> TransferCount:
        """Transfers of all graphs together, run one after the other."""
        return add_counts([one.counts for one in self.found])


def add_counts(counts: list[TransferCount]) -> TransferCount:
    """Return the transfers of graphs that run one after the other."""
    fields = ("weight_reads", "bias_reads", "row_reads", "row_writes")
    return TransferCount(*(sum(getattr(count, field) for count in counts) for field in fields))


def find_schedule(model: FlatModel, request: ScheduleRequest, watch: SearchWatch) -> FoundSchedule:
    """Search an order for each graph, each for its share of what is left of the budget; 0 takes the best start.

    Raises:
        ValueError: there is no graph, or the memory is too small.
    """
    if not model.networks:
        raise ValueError(f"nothing to schedule: the model {model.obstacle}")
    began, sizes = monotonic(), [network.connection_count for network in model.networks]
    found: list[FoundOrder] = []
    for number, network in enumerate(model.networks):
        rng = np.random.default_rng((request.budget.seed, number))
        if request.budget.proposals is None:
            left, others = request.budget.after(monotonic() - began), sum(sizes[number:])
        else:
            left, others = request.budget, sum(sizes)
        budget = left.part(sizes[number] / max(1, others))
        found.append(search_order(network, _search_request(request, budget, watch), rng))
    return FoundSchedule(model.networks, tuple(found))


def _search_request(request: ScheduleRequest, budget: SearchBudget, watch: SearchWatch) -> SearchRequest:
    if budget.proposals == 0 or budget.known_seconds == 0 or watch.ended_by:
        return SearchRequest(request.memory, request.policy, proposals=0)
    remaining = _countdown(budget, watch)
    return SearchRequest(request.memory, request.policy, budget.proposals, remaining)


def _countdown(budget: SearchBudget, watch: SearchWatch) -> Callable[[], float]:
    """Return a countdown in seconds that starts at its first call; 0 once the search is to end."""
    asked: list[float] = []

    def left() -> float:
        now = monotonic()
        watch.spent(now - asked[-1] if asked else 0.0)
        asked[1:] = [now]
        if watch.ended_by:
            return 0.0
        # what does not fall leaves it to the proposals
        return budget.seconds - (now - asked[0]) if budget.proposals is None else 1.0

    return left


@dataclass(frozen=True)
class ScheduledGraph:
    """Values that the order of a graph moves, the start of its search, and what any order moves with that memory."""

    graph: str
    connections: int
    start: str
    reads: int
    writes: int
    bound: int

    @property
    def ratio(self) -> float:
        """Values moved over those that any order moves."""
        return (self.reads + self.writes) / max(1, self.bound)


def graph_bounds(model: FlatModel, memory: int, is_late: Callable[[], bool] = never) -> list[int]:
    """Return what any order moves, for each graph, by what is worked out before it is late."""
    return [instance_bounds(network, [memory], is_late)[0].total for network in model.networks]


def schedule_lines(schedule: FoundSchedule, bounds: Sequence[int]) -> list[ScheduledGraph]:
    """Return a line for each graph, and one for all where there are several."""
    lines: list[ScheduledGraph] = []
    for number, (found, bound) in enumerate(zip(schedule.found, bounds, strict=True)):
        moved = found.counts
        lines.append(ScheduledGraph(str(number), len(found.order), found.start, moved.reads, moved.writes, bound))
    if len(lines) > 1:
        counts = schedule.counts
        lines.append(ScheduledGraph("all", counts.weight_reads, "", counts.reads, counts.writes, sum(bounds)))
    return lines


def save_schedule(schedule: FoundSchedule, request: ScheduleRequest, path: Path) -> None:
    """Write an npz, complete or not at all: the connections in the order of execution, and what they transfer.

    `sources` and `targets` (int64 [W], numbers of neurons of all graphs), `inputs`, `outputs` (numbers), `memory`,
    `policy`, `reads`, `writes`.
    """
    network = join(schedule.networks)
    order = join_orders(schedule.networks, [one.order for one in schedule.found])
    with replacing(path) as file:
        np.savez_compressed(
            file,
            sources=network.sources[order],
            targets=network.targets[order],
            inputs=network.inputs,
            outputs=network.outputs,
            memory=request.memory,
            policy=request.policy,
            reads=schedule.counts.reads,
            writes=schedule.counts.writes,
        )
