"""The data movement of a model: bounds, the transfers of several orders, and of the one that a search finds."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ...dialect.reports.layer_report import Report
from ...distributed.plans.cluster import VALUE_BYTES
from ...sparse.neuron_graph import NeuronGraph
from ...theory.pebbling.bounds.bounds import InstanceBound, instance_bounds, lower_bound, pull_bound
from ...theory.pebbling.machine import POLICIES, Memory, Policy, TransferCount
from ...theory.pebbling.machine_compiled import count_levels
from ...theory.pebbling.orders.interval_stabbing import sliding_window_order
from ...theory.pebbling.orders.simple_orders import depth_first_order, pull_order, push_order, target_block_order
from .memory_sizes import spread_sizes
from .neuron_graphs import FlatModel, join, join_orders
from .saved_orders import FoundSchedule, ScheduleRequest, SearchBudget, add_counts, find_schedule
from .search_watch import SearchWatch

Order = NDArray[np.int64]
QUICK_ORDERS: Final[Mapping[str, Callable[[NeuronGraph, int], Order]]] = MappingProxyType(
    {
        "pull": lambda network, _: pull_order(network),
        "push": lambda network, _: push_order(network),
        "depth first": lambda network, _: depth_first_order(network),
        "target blocks": lambda network, memory: target_block_order(network, memory - 2),
        "sliding window": lambda network, memory: sliding_window_order(network, memory - 2),
    }
)
"""Orders that take a second or two for a million connections, for a network and M."""

SEARCHED: Final = "searched"
"""The name of the order that the search finds."""

MOST_SEARCHED: Final = 250_000
"""Connections up to which `explain` searches an order: the search's own starts take longer than the rest beyond."""

L1_BYTES: Final = 48 * 1024
"""Bytes of a usual first-level cache: the memory that is meant where none is given."""


@dataclass(frozen=True)
class ExplainRequest:
    """M in rows, the columns of a row, and how long to search for an order."""

    memory: int
    batch_tile: int
    budget: SearchBudget

    def __post_init__(self) -> None:
        if self.batch_tile < 1:
            raise ValueError(f"expected a batch tile of 1 column or more, got {self.batch_tile}")
        Memory(self.memory)

    @property
    def search(self) -> ScheduleRequest:
        return ScheduleRequest(self.memory, "min", self.budget)

    @staticmethod
    def default_memory(batch_tile: int) -> int:
        """Return the rows of `batch_tile` columns that fit into a usual first-level cache."""
        return max(3, L1_BYTES // (VALUE_BYTES * max(1, batch_tile)))


@dataclass(frozen=True)
class Transfers:
    """Values read and written, for a batch tile."""

    reads: int
    writes: int

    @property
    def total(self) -> int:
        """Values moved."""
        return self.reads + self.writes

    @staticmethod
    def of(count: TransferCount, batch_tile: int) -> "Transfers":
        """Return a count in values."""
        return Transfers(count.batched_reads(batch_tile), count.batched_writes(batch_tile))


@dataclass(frozen=True)
class Curve:
    """Values moved against M under MIN: one number for each of `memories`, for each order and the certified bound."""

    memories: tuple[int, ...]
    orders: Mapping[str, tuple[int, ...]]
    instance_lower: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class NetworkExplanation:
    """The graphs of a model together, run one after the other; transfers are values for the batch tile."""

    network: NeuronGraph
    graph_line: str
    lower: Transfers
    upper: Transfers
    instance_lower: int
    arguments: tuple[str, ...]
    """Names of the arguments by which the bounds of the graphs are certified."""
    orders: Mapping[str, Mapping[Policy, Transfers]]
    curve: Curve
    schedule: FoundSchedule | None
    order: Order
    """The best order of all, by its transfers under MIN."""
    order_name: str


@dataclass(frozen=True)
class Explanation:
    """All that is known of a model; `network` is None where it has no linear layer with constant weights."""

    request: ExplainRequest
    report: Report
    graph_line: str
    network: NetworkExplanation | None


def explain(model: FlatModel, report: Report, request: ExplainRequest, watch: SearchWatch) -> Explanation:
    """Count orders and bound what any order transfers; `report` says what is known of the model's layers."""
    if not model.networks:
        return Explanation(request, report, model.graph_line, None)
    # on a machine that does something else, threads that spin in eigenvalue solvers cost far more than they save
    with threadpool_limits(1):
        network = _explain_network(model, request, watch)
    return Explanation(request, report, model.graph_line, network)


def _explain_network(model: FlatModel, request: ExplainRequest, watch: SearchWatch) -> NetworkExplanation:
    networks, batch = model.networks, request.batch_tile
    orders = {name: [make(one, request.memory) for one in networks] for name, make in QUICK_ORDERS.items()}
    memories = spread_sizes(networks, request.memory)
    here = memories.index(request.memory)
    sweep, here_by_policy = [Memory(one) for one in memories], [Memory(request.memory, one) for one in POLICIES]
    bounds = [_bounds(one, memories, here) for one in networks]
    counts = {name: _count(networks, parts, sweep) for name, parts in orders.items()}
    schedule, fewest = None, sum(bound[here].batched_total(batch) for bound in bounds)
    is_open = min(Transfers.of(counted[here], batch).total for counted in counts.values()) > fewest
    if is_open and sum(one.connection_count for one in networks) <= MOST_SEARCHED:
        schedule = find_schedule(model, request.search, watch)
        orders[SEARCHED] = [found.order for found in schedule.found]
        counts[SEARCHED] = _count(networks, orders[SEARCHED], sweep)
    best = min(counts, key=lambda name: counts[name][here].total)
    return NetworkExplanation(
        network=join(networks),
        graph_line=model.graph_line,
        lower=Transfers.of(add_counts([lower_bound(one) for one in networks]), batch),
        upper=Transfers.of(add_counts([pull_bound(one) for one in networks]), batch),
        instance_lower=sum(bound[here].batched_total(batch) for bound in bounds),
        arguments=tuple(dict.fromkeys(bound[here].argument for bound in bounds)),
        orders={
            name: {
                memory.policy: Transfers.of(count, batch)
                for memory, count in zip(here_by_policy, _count(networks, parts, here_by_policy), strict=True)
            }
            for name, parts in orders.items()
        },
        curve=Curve(
            tuple(memories),
            {name: tuple(Transfers.of(count, batch).total for count in counted) for name, counted in counts.items()},
            tuple(sum(bound[place].batched_total(batch) for bound in bounds) for place in range(len(memories))),
        ),
        schedule=schedule,
        order=join_orders(networks, orders[best]),
        order_name=best,
    )


def _count(networks: tuple[NeuronGraph, ...], orders: list[Order], memories: list[Memory]) -> list[TransferCount]:
    """Return the transfers of graphs run one after the other, for each memory."""
    counted = [count_levels(network, order, memories) for network, order in zip(networks, orders, strict=True)]
    return [add_counts(list(counts)) for counts in zip(*counted, strict=True)]


def _bounds(network: NeuronGraph, memories: list[int], here: int) -> list[InstanceBound]:
    """Return a bound for each memory, worked out for a few of them: what binds a larger memory binds a smaller one."""
    chosen = sorted({0, here // 2, here, min(here + 1, len(memories) - 1), len(memories) - 1})
    known = dict(zip(chosen, instance_bounds(network, [memories[place] for place in chosen]), strict=True))
    return [known[min(at for at in chosen if at >= place)] for place in range(len(memories))]


def explanation_report(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as the JSON that `explain --report` writes."""
    request, network = explanation.request, explanation.network
    return {
        "memory": request.memory,
        "batch_tile": request.batch_tile,
        "network": None if network is None else _network_report(network),
        "layers": [asdict(layer) for layer in explanation.report],
        "graphs": explanation.graph_line,
        "neuron_order": explanation.report.neuron_order,
        "schedule_search": explanation.report.schedule_search,
    }


def _network_report(explained: NetworkExplanation) -> dict[str, Any]:
    network, curve = explained.network, explained.curve
    return {
        "neurons": network.neuron_count,
        "inputs": len(network.inputs),
        "outputs": len(network.outputs),
        "connections": network.connection_count,
        "lower": explained.lower.total,
        "upper": explained.upper.total,
        "instance_lower": explained.instance_lower,
        "instance_arguments": list(explained.arguments),
        "orders": {
            name: {policy: asdict(transfers) for policy, transfers in by_policy.items()}
            for name, by_policy in explained.orders.items()
        },
        "best_order": explained.order_name,
        "curve": {"memories": curve.memories, "orders": curve.orders, "instance_lower": curve.instance_lower},
    }
