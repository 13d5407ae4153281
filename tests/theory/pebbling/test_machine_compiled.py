"""The compiled machine against the plain one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.sparse.neuron_graph import NeuronGraph, from_layers, id_array
from redpebble.theory.pebbling import machine as reference
from redpebble.theory.pebbling.machine import Memory, Policy
from redpebble.theory.pebbling.machine_compiled import count_levels, count_transfers
from redpebble.theory.pebbling.orders.simple_orders import pull_order
from tests.support.network_strategies import SEEDS, networks
from tests.support.neuron_graphs import random_layers
from tests.support.random_orders import POLICIES, random_order


@settings(max_examples=150, deadline=None)
@given(networks(), st.integers(3, 12), st.sampled_from(POLICIES), SEEDS)
def test_the_compiled_machine_counts_as_the_plain_one(
    network: NeuronGraph, capacity: int, policy: Policy, seed: int
) -> None:
    order = random_order(network, np.random.default_rng(seed))
    memory = Memory(capacity, policy)
    expected = reference.count_transfers(network, order, memory, np.random.default_rng(seed))
    assert count_transfers(network, order, memory, np.random.default_rng(seed)) == expected


@pytest.mark.parametrize("capacity", [3, 30, 100, 1000])
def test_a_large_order_is_counted_as_by_the_plain_machine(capacity: int) -> None:
    network = random_layers([120] * 4, 0.2, np.random.default_rng(0))
    order = pull_order(network)
    memories = [Memory(capacity, policy) for policy in POLICIES]
    expected = reference.count_levels(network, order, memories, np.random.default_rng(1))
    assert count_levels(network, order, memories, np.random.default_rng(1)) == expected


def test_a_strided_order_is_counted_like_a_copy() -> None:
    network = random_layers([9] * 3, 0.4, np.random.default_rng(0))
    strided = np.repeat(pull_order(network), 2)[::2]
    assert count_transfers(network, strided, Memory(4)) == count_transfers(network, strided.copy(), Memory(4))


@pytest.mark.parametrize(
    "order, message",
    [
        ([0, 2, 1], r"connection 2 \(2 -> 3\) runs at step 1, but neuron 2 is final only after step 2"),
        ([0, 0, 1], "connection 0 occurs 2 times in the order"),
        ([0, 1, 3], "connection 2 occurs 0 times in the order"),
        ([0, -1, 2], "connection 1 occurs 0 times in the order"),
        ([0, 1], r"order is int64 of shape \(2,\), not int64 of shape \(3,\)"),
    ],
)
def test_orders_that_cannot_run_are_refused(order: list[int], message: str) -> None:
    network = from_layers([np.ones((2, 1)), np.ones((1, 1))])
    with pytest.raises(ValueError, match=message):
        count_transfers(network, id_array(order), Memory(3))


def test_the_random_policy_needs_an_rng() -> None:
    with pytest.raises(ValueError, match="the random policy needs an rng"):
        count_transfers(from_layers([np.ones((1, 1))]), id_array([0]), Memory(3, "random"))
