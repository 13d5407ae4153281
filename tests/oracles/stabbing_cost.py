"""The cost of orders of targets, source by source: the reference of the search over intervals."""

from __future__ import annotations

import numpy as np

from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.pebbling.orders.interval_stabbing import TargetOrders, check_target_orders, fixed_cost, load_times


def stabbing_cost(network: NeuronGraph, orders: TargetOrders) -> int:
    """Transfers of the decoded order without any use of spare slots, in values.

    Raises:
        ValueError: the orders cannot be carried out.
    """
    check_target_orders(network, orders)
    times = load_times(network, orders)
    ends = orders.interval_ends(network.neuron_count)
    writes_value = (network.in_degrees > 0) & ~network.is_output
    total = fixed_cost(network)
    for source in np.flatnonzero(network.out_degrees > 0).tolist():
        loads = np.unique(times[network.outgoing.of(source)])
        paid = int(np.sum(loads != ends[source] + 1))
        total += paid + int(paid > 0 and writes_value[source])
    return total
