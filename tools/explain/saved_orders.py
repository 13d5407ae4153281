"""Searching an order for all connections of a model, and the file that others can count it from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

import numpy as np

from redpebble.foundation.atomic_files import replacing
from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.pebbling.machine import TransferCount
from redpebble.theory.pebbling.search.search import FoundOrder, SearchRequest, search_order
from redpebble.tools.explain.neuron_graphs import FlatModel, join, join_orders


@dataclass(frozen=True)
class ScheduleRequest:
    """A search: rows of fast memory, which value is evicted, and seconds in all."""

    memory: int
    policy: Literal["min", "lru"] = "min"
    seconds: float = 5.0
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.seconds < float("inf"):
            raise ValueError(f"a search of {self.seconds} seconds, expected 0 or more")


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
    """Return what graphs transfer that run one after the other."""
    fields = ("weight_reads", "bias_reads", "row_reads", "row_writes")
    return TransferCount(*(sum(getattr(count, field) for count in counts) for field in fields))


def find_schedule(model: FlatModel, request: ScheduleRequest) -> FoundSchedule:
    """Search an order for each graph, each for its share of the seconds; 0 seconds take the best start.

    Raises:
        ValueError: there is no graph, or the memory is too small.
    """
    if not model.networks:
        raise ValueError("nothing to schedule: the model has no linear layer with constant weights")
    total = sum(network.connection_count for network in model.networks)
    found: list[FoundOrder] = []
    for number, network in enumerate(model.networks):
        rng = np.random.default_rng((request.seed, number))
        seconds = request.seconds * network.connection_count / max(1, total)
        found.append(search_order(network, _search_request(request, seconds), rng))
    return FoundSchedule(model.networks, tuple(found))


def _search_request(request: ScheduleRequest, seconds: float) -> SearchRequest:
    if seconds == 0:
        return SearchRequest(request.memory, request.policy, proposals=0)
    return SearchRequest(request.memory, request.policy, remaining=_countdown(seconds), threads=request.threads)


def _countdown(seconds: float) -> Callable[[], float]:
    """Return what says how many seconds are left, counted from the first time it is asked."""
    ends: list[float] = []

    def left() -> float:
        if not ends:
            ends.append(monotonic() + seconds)
        return ends[0] - monotonic()

    return left


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
