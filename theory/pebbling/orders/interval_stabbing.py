"""Orders at the level of neurons: every target is open for one interval, the loads of a source stab the intervals.

Of M slots one holds the weight, one a passing source, and `open_count` <= M - 2 hold open targets. Two permutations of
the targets decide everything: at time j the first j + open_count targets of the opening order have opened, the first j
of the closing order have closed, and now the next one closes. A target is open from time max(0, position in the opening
order - open_count + 1) to its position in the closing order. A load of a source at time j serves all targets open at j,
so a source needs as many loads as points are needed to hit the intervals of its targets: greedily, each point at the
first closing of a target not served, which is optimal. A hidden source is free at the time after its own closing: it
stays as passing source while the next target opens. Later loads of it cost one read each, and one write of its value.

A connection order follows (`decode`), and a machine with M = open_count + 2 runs it with at most the transfers that
these rules count.
Source: derived.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph
from ...compiled import compiled
from ..machine_compiled import Ends, Ids
from .simple_orders import topological_positions


@dataclass(frozen=True, eq=False)
class TargetOrders:
    """The neurons with incoming connections in opening and in closing order, and how many are open at once."""

    opening: NDArray[np.int64]
    closing: NDArray[np.int64]
    open_count: int

    def interval_starts(self, neuron_count: int) -> NDArray[np.int64]:
        """The time at which each target opens, shape [N]; 0 for neurons that are no targets."""
        starts = np.zeros(neuron_count, dtype=np.int64)
        starts[self.opening] = np.maximum(0, np.arange(len(self.opening)) - self.open_count + 1)
        return starts

    def interval_ends(self, neuron_count: int) -> NDArray[np.int64]:
        """The time at which each target closes, shape [N]; -2 for neurons that are final from the start."""
        ends = np.full(neuron_count, -2, dtype=np.int64)
        ends[self.closing] = np.arange(len(self.closing))
        return ends


def natural_orders(network: NeuronGraph, open_count: int) -> TargetOrders:
    """Targets open and close in topological order: a window that slides over them."""
    targets = np.flatnonzero(network.in_degrees > 0).astype(np.int64)
    targets = targets[np.argsort(topological_positions(network)[targets])]
    return TargetOrders(targets, targets, open_count)


def check_target_orders(network: NeuronGraph, orders: TargetOrders) -> None:
    """Refuse orders that cannot be carried out.

    Raises:
        ValueError: no open target, not permutations of the targets, a target that closes before it opens or before a
            source of it.
    """
    if orders.open_count < 1:
        raise ValueError(f"expected 1 open target or more, got {orders.open_count}")
    targets = np.flatnonzero(network.in_degrees > 0)
    for name, order in (("opening", orders.opening), ("closing", orders.closing)):
        if not np.array_equal(np.sort(order), targets):
            raise ValueError(f"the {name} order is no permutation of the {len(targets)} targets")
    starts, ends = orders.interval_starts(network.neuron_count), orders.interval_ends(network.neuron_count)
    early = targets[starts[targets] > ends[targets]]
    if len(early):
        raise ValueError(f"target {early[0]} closes at time {ends[early[0]]} and opens at time {starts[early[0]]}")
    wrong = np.flatnonzero(ends[network.sources] >= ends[network.targets])
    if len(wrong):
        source, target = network.sources[wrong[0]], network.targets[wrong[0]]
        raise ValueError(f"target {target} closes at time {ends[target]}, its source {source} at {ends[source]}")


def fixed_cost(network: NeuronGraph) -> int:
    """Transfers that all orders of targets have: weights, a read of each target and each lone output, the outputs."""
    lone = network.is_output & (network.in_degrees + network.out_degrees == 0)
    return network.connection_count + int(np.sum(network.in_degrees > 0)) + int(lone.sum()) + len(network.outputs)


def load_times(network: NeuronGraph, orders: TargetOrders) -> NDArray[np.int64]:
    """The time at which each connection runs, shape [W]: that of the load of its source which serves its target."""
    starts, ends = orders.interval_starts(network.neuron_count), orders.interval_ends(network.neuron_count)
    by_end = np.lexsort((ends[network.targets], network.sources))
    times = np.empty(network.connection_count, dtype=np.int64)
    # read-only arrays would be compiled for anew
    of = Ends(*(np.require(ids, requirements="W") for ids in (network.sources, network.targets)))
    put_load_times(times, by_end, of, starts, ends)
    return times


@compiled
def put_load_times(times: Ids, by_end: Ids, of: Ends, starts: Ids, ends: Ids) -> None:
    """Fill in the times [W] of connections sorted by source, then by the time at which their target closes."""
    before, point = -1, 0
    for connection in by_end:
        source, target = of.sources[connection], of.targets[connection]
        if source != before:
            before, point = source, ends[source] + 1
        if starts[target] > point:
            point = ends[target]
        times[connection] = point


def decode(network: NeuronGraph, orders: TargetOrders) -> NDArray[np.int64]:
    """The connection order, shape [W]: by time; at one time the source that closed last first, the others grouped.

    Raises:
        ValueError: the orders cannot be carried out.
    """
    check_target_orders(network, orders)
    times = load_times(network, orders)
    ends = orders.interval_ends(network.neuron_count)
    passes_on = ends[network.sources] + 1 == times
    keys = (ends[network.targets], network.sources, ~passes_on, times)
    return np.lexsort(keys).astype(np.int64)


def sliding_window_order(network: NeuronGraph, open_count: int) -> NDArray[np.int64]:
    """The connection order, shape [W], of a window that slides over the targets in topological order.

    Raises:
        ValueError: no open target.
    """
    return decode(network, natural_orders(network, open_count))
