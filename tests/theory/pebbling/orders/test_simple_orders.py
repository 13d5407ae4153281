"""Every order is topological and keeps its promise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph, check_order
from redpebble.theory.pebbling.bounds.bounds import lower_bound, pull_bound
from redpebble.theory.pebbling.machine import POLICIES, Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.theory.pebbling.orders.bandwidth_order import reverse_cuthill_mckee_order, topological_numbers
from redpebble.theory.pebbling.orders.frontier_order import narrow_frontier_order
from redpebble.theory.pebbling.orders.interval_stabbing import decode, sliding_window_order
from redpebble.theory.pebbling.orders.rolling_orders import greedy_target_orders
from redpebble.theory.pebbling.orders.simple_orders import depth_first_order, pull_order, push_order, target_block_order
from tests.support.exhaustive_optimum import fewest_transfers
from tests.support.network_strategies import SEEDS, networks, tiny_networks
from tests.support.neuron_graphs import random_banded, shuffled

ORDERS: dict[str, Callable[[NeuronGraph, int], NDArray[np.int64]]] = {
    "pull": lambda network, _: pull_order(network),
    "push": lambda network, _: push_order(network),
    "target blocks": target_block_order,
    "depth first": lambda network, _: depth_first_order(network),
    "sliding window": sliding_window_order,
    "greedy rolling": lambda network, count: decode(network, greedy_target_orders(network, count, 2.0)),
    "reverse Cuthill-McKee": lambda network, _: reverse_cuthill_mckee_order(network),
    "narrow frontier": lambda network, _: narrow_frontier_order(network),
}


@pytest.mark.parametrize("name", ORDERS)
@settings(max_examples=25, deadline=None)
@given(network=networks(), open_count=st.integers(1, 8))
def test_the_order_is_topological(name: str, network: NeuronGraph, open_count: int) -> None:
    check_order(network, ORDERS[name](network, open_count))


@settings(max_examples=40, deadline=None)
@given(tiny_networks(), st.integers(3, 5))
def test_no_order_beats_the_exhaustive_optimum_under_any_policy(network: NeuronGraph, capacity: int) -> None:
    optimum = fewest_transfers(network, capacity)
    for order_of in ORDERS.values():
        order = order_of(network, capacity - 2)
        for policy in POLICIES:
            assert count_transfers(network, order, Memory(capacity, policy)).total >= optimum


@settings(max_examples=50, deadline=None)
@given(networks(), st.integers(3, 12))
def test_pull_keeps_its_bound_under_every_policy(network: NeuronGraph, capacity: int) -> None:
    bound, order = pull_bound(network), pull_order(network)
    for policy in POLICIES:
        count = count_transfers(network, order, Memory(capacity, policy))
        assert count.reads <= bound.reads
        assert count.writes <= bound.writes


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 40), st.integers(1, 8), st.floats(0.1, 1.0), SEEDS)
def test_a_banded_network_meets_the_lower_bound_in_natural_order(
    neuron_count: int, bandwidth: int, density: float, seed: int
) -> None:
    network = random_banded(neuron_count, bandwidth, density, np.random.default_rng(seed))
    for policy in POLICIES:
        memory = Memory(bandwidth + 2, policy)
        count = count_transfers(network, pull_order(network), memory)
        assert count == lower_bound(network)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 40), st.integers(1, 8), SEEDS)
def test_a_full_band_is_found_again_after_shuffling(neuron_count: int, bandwidth: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = shuffled(random_banded(neuron_count, bandwidth, 1.0, rng), rng)
    for order in (reverse_cuthill_mckee_order(network), narrow_frontier_order(network)):
        assert count_transfers(network, order, Memory(bandwidth + 2)) == lower_bound(network)


def test_the_narrow_frontier_comes_within_a_percent_on_shuffled_bands() -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        network = shuffled(random_banded(300, 10, 0.5, rng), rng)
        count = count_transfers(network, narrow_frontier_order(network), Memory(12))
        assert count.total <= 1.01 * lower_bound(network).total


@given(networks())
def test_numbers_of_the_bandwidth_order_are_topological(network: NeuronGraph) -> None:
    numbers = topological_numbers(network)
    assert sorted(numbers.tolist()) == list(range(network.neuron_count))
    assert np.all(numbers[network.sources] < numbers[network.targets])


def test_a_block_or_a_window_without_targets_is_refused() -> None:
    network = random_banded(5, 2, 1.0, np.random.default_rng(0))
    with pytest.raises(ValueError, match="expected a block of 1 target or more, got 0"):
        target_block_order(network, 0)
    with pytest.raises(ValueError, match="expected 1 open target or more, got 0"):
        sliding_window_order(network, 0)
