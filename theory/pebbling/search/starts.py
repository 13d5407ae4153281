"""Starts of searches: connection orders without a search, and the orders of targets that are in any of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.pebbling.orders.bandwidth_order import reverse_cuthill_mckee_order
from redpebble.theory.pebbling.orders.frontier_order import narrow_frontier_order
from redpebble.theory.pebbling.orders.interval_stabbing import (
    TargetOrders,
    decode,
    natural_orders,
    sliding_window_order,
)
from redpebble.theory.pebbling.orders.learned_rule import learned_rule
from redpebble.theory.pebbling.orders.rolling_orders import greedy_target_orders, rolled_target_orders
from redpebble.theory.pebbling.orders.simple_orders import depth_first_order, pull_order, push_order, target_block_order

# Connections from which on one greedy order must do, and from which on only orders that take a second.
_LARGE, _HUGE = 200_000, 1_500_000
_EXPONENTS = (3.0, 2.0, 6.0)

LEARNED = "learned rolling"
"""Name of the start that a trained rule makes."""


def start_orders(network: NeuronGraph, capacity: int) -> dict[str, NDArray[np.int64]]:
    """Connection orders [W] by name, for a memory of `capacity` values; without the slower ones for huge networks."""
    open_count = capacity - 2
    orders = {
        "pull": pull_order(network),
        "push": push_order(network),
        "target blocks": target_block_order(network, open_count),
        "depth first": depth_first_order(network),
        "sliding window": sliding_window_order(network, open_count),
    }
    if network.connection_count < _HUGE:
        orders["reverse cuthill-mckee"] = reverse_cuthill_mckee_order(network)
        orders["narrow frontier"] = narrow_frontier_order(network)
    for exponent in _exponents(network):
        orders[f"greedy rolling {exponent:g}"] = decode(network, greedy_target_orders(network, open_count, exponent))
    if network.connection_count < _HUGE:
        orders[LEARNED] = decode(network, _learned(network, open_count))
    return orders


def rolling_targets(network: NeuronGraph, open_count: int) -> list[TargetOrders]:
    """Orders of targets for a number of open ones: by a window that slides, and greedily."""
    greedy = [greedy_target_orders(network, open_count, exponent) for exponent in _exponents(network)]
    learned = [_learned(network, open_count)] if network.connection_count < _HUGE else []
    return [natural_orders(network, open_count), *greedy, *learned]


def _learned(network: NeuronGraph, open_count: int) -> TargetOrders:
    return rolled_target_orders(network, open_count, learned_rule(network, open_count))


def target_orders(network: NeuronGraph, order: NDArray[np.int64], open_count: int) -> TargetOrders:
    """The targets by their first and by their last connection in an order [W].

    If more than `open_count` are open at once in the order, targets open as they close.
    """
    steps = np.empty(len(order), dtype=np.int64)
    steps[order] = np.arange(len(order))
    firsts = np.full(network.neuron_count, len(order), dtype=np.int64)
    lasts = np.full(network.neuron_count, -1, dtype=np.int64)
    np.minimum.at(firsts, network.targets, steps)
    np.maximum.at(lasts, network.targets, steps)
    targets = np.flatnonzero(network.in_degrees > 0)
    opening, closing = targets[np.argsort(firsts[targets])], targets[np.argsort(lasts[targets])]
    orders = TargetOrders(opening, closing, open_count)
    starts, ends = orders.interval_starts(network.neuron_count), orders.interval_ends(network.neuron_count)
    return orders if np.all(starts[targets] <= ends[targets]) else TargetOrders(closing, closing, open_count)


def _exponents(network: NeuronGraph) -> tuple[float, ...]:
    if network.connection_count >= _HUGE:
        return ()
    return _EXPONENTS[:1] if network.connection_count >= _LARGE else _EXPONENTS
