"""Starts and bounds on the three networks that every figure is quoted for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from redpebble.theory.pebbling.bounds.bounds import instance_bound, lower_bound
from redpebble.theory.pebbling.machine import Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.theory.pebbling.orders.interval_stabbing import decode, sliding_window_order
from redpebble.theory.pebbling.orders.rolling_orders import greedy_target_orders
from redpebble.theory.pebbling.orders.simple_orders import pull_order, target_block_order
from tests.support.neuron_graphs import random_layers


class Case(NamedTuple):
    """A network, a memory, and what independent simulations gave in multiples of W + N + S under MIN."""

    width: int
    density: float
    capacity: int
    pull: float
    blocks: float
    sliding: float
    greedy: float


CASES = {
    "A": Case(500, 0.1, 100, 1.479, 1.107, 1.1026, 1.0998),
    "B": Case(100, 0.1, 30, 1.396, 1.302, 1.2722, 1.2323),
    "C": Case(500, 0.01, 100, 1.413, 1.414, 1.3928, 1.3158),
}


@pytest.mark.parametrize("name", [pytest.param("A", marks=pytest.mark.slow), "B", "C"])
def test_orders_come_near_the_multiples_of_independent_simulations(name: str) -> None:
    case = CASES[name]
    network, memory = random_layers([case.width] * 4, case.density, np.random.default_rng(0)), Memory(case.capacity)
    open_count = case.capacity - 2
    orders = (
        (case.pull, [pull_order(network)]),
        (case.blocks, [target_block_order(network, open_count)]),
        (case.sliding, [sliding_window_order(network, open_count)]),
        (case.greedy, [decode(network, greedy_target_orders(network, open_count, exponent)) for exponent in (2, 6)]),
    )
    least = lower_bound(network).total
    for expected, tried in orders:
        multiple = min(count_transfers(network, order, memory).total for order in tried) / least
        assert multiple == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name, most", [("A", 1.02), ("B", 1.015), ("C", 1.015)])
def test_the_certified_bound_is_above_every_value_moving_once(name: str, most: float) -> None:
    case = CASES[name]
    network = random_layers([case.width] * 4, case.density, np.random.default_rng(0))
    assert instance_bound(network, case.capacity).total >= most * lower_bound(network).total
