"""Starts of searches: connection orders without a search, and the orders of targets that are in any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph
from ...compiled import never
from ..orders.bandwidth_order import reverse_cuthill_mckee_order
from ..orders.frontier_order import narrow_frontier_order
from ..orders.interval_stabbing import (
    TargetOrders,
    decode,
    natural_orders,
    sliding_window_order,
)
from ..orders.rolling_orders import rolled_in_time
from ..orders.simple_orders import depth_first_order, pull_order, push_order, target_block_order

# Connections from which on one greedy order must do, and from which on no order by the band of a matrix is made.
_LARGE, _HUGE = 200_000, 1_500_000
# The last one is the best alone for 200 000 connections and more.
_EXPONENTS = (3.0, 2.0, 6.0)

SLOWER: Final[Mapping[str, tuple[Callable[[NeuronGraph], NDArray[np.int64]], int]]] = {
    "reverse cuthill-mckee": (reverse_cuthill_mckee_order, _HUGE),
    "depth first": (depth_first_order, _LARGE),
    "narrow frontier": (narrow_frontier_order, _LARGE),
}
"""Orders that take seconds, and the connections from which on they take too many."""


def start_orders(
    network: NeuronGraph, capacity: int, is_late: Callable[[], bool] = never
) -> dict[str, NDArray[np.int64]]:
    """Connection orders [W] by name, for a memory of `capacity` values; without the slower ones for huge networks.

    Those that take longest come last, and are left out once it is late.
    """
    open_count = capacity - 2
    orders = {
        "pull": pull_order(network),
        "push": push_order(network),
        "target blocks": target_block_order(network, open_count),
        "sliding window": sliding_window_order(network, open_count),
    }
    for name, rolled in _rolled(network, open_count, is_late).items():
        orders[name] = decode(network, rolled)
    for name, (order, most) in SLOWER.items():
        if network.connection_count < most and not is_late():
            orders[name] = order(network)
    return orders


def rolling_targets(network: NeuronGraph, open_count: int, is_late: Callable[[], bool] = never) -> list[TargetOrders]:
    """Orders of targets for a number of open ones: by a window that slides, and greedily, unless it is late."""
    return [natural_orders(network, open_count), *_rolled(network, open_count, is_late).values()]


def _rolled(network: NeuronGraph, open_count: int, is_late: Callable[[], bool]) -> dict[str, TargetOrders]:
    """Return orders of targets by name, those that were made before it was late."""
    found = {
        f"greedy rolling {exponent:g}": rolled_in_time(network, open_count, exponent, is_late)
        for exponent in _exponents(network)
    }
    return {name: orders for name, orders in found.items() if orders is not None}


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
    return _EXPONENTS[-1:] if network.connection_count >= _LARGE else _EXPONENTS
