"""The memory machine against the exhaustive optimum and hand-made cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from redpebble import theory
from redpebble.sparse.neuron_graph import NeuronGraph, from_layers, id_array
from redpebble.theory.pebbling.machine import POLICIES, Memory
from redpebble.theory.pebbling.machine_compiled import count_levels, count_transfers
from redpebble.theory.pebbling.orders.simple_orders import pull_order
from tests.support.exhaustive_optimum import all_orders, fewest_transfers
from tests.support.network_strategies import SEEDS, networks, tiny_networks
from tests.support.neuron_graphs import random_layers
from tests.support.random_orders import random_order


@settings(max_examples=60, deadline=None)
@given(tiny_networks(), st.integers(3, 5))
def test_the_best_order_under_min_is_the_exhaustive_optimum(network: NeuronGraph, capacity: int) -> None:
    best = min(count_transfers(network, order, Memory(capacity)).total for order in all_orders(network))
    assert best == fewest_transfers(network, capacity)


@settings(max_examples=60, deadline=None)
@given(tiny_networks(), st.integers(3, 5), SEEDS)
def test_no_order_and_policy_beats_the_exhaustive_optimum(network: NeuronGraph, capacity: int, seed: int) -> None:
    optimum = fewest_transfers(network, capacity)
    order = random_order(network, np.random.default_rng(seed))
    for policy in POLICIES:
        assert count_transfers(network, order, Memory(capacity, policy)).total >= optimum


@settings(max_examples=60, deadline=None)
@given(networks(), SEEDS)
def test_with_room_for_everything_each_value_moves_once(network: NeuronGraph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for policy in POLICIES:
        count = count_transfers(network, random_order(network, rng), Memory(network.neuron_count + 3, policy))
        moved_inputs = int(np.sum(network.is_moved & network.is_input))
        assert count.weight_reads == network.connection_count
        assert count.bias_reads == int(np.sum(network.is_moved)) - moved_inputs
        assert count.row_reads == moved_inputs
        assert count.row_writes == len(network.outputs)


@settings(max_examples=60, deadline=None)
@given(networks(), st.integers(3, 9), SEEDS)
def test_more_memory_never_costs_min_a_read(network: NeuronGraph, capacity: int, seed: int) -> None:
    order = random_order(network, np.random.default_rng(seed))
    less = count_transfers(network, order, Memory(capacity))
    more = count_transfers(network, order, Memory(capacity + 1))
    assert more.reads <= less.reads


def test_a_live_partial_sum_costs_a_write_and_a_read_to_drop() -> None:
    """Two inputs, two outputs, all connected, M = 3: source by source, one output leaves half done."""
    network = from_layers([np.ones((2, 2))])
    count = count_transfers(network, id_array([0, 1, 3, 2]), Memory(3))
    assert (count.weight_reads, count.bias_reads, count.row_reads, count.row_writes) == (4, 2, 2 + 1, 2 + 1)


def test_a_clean_source_is_dropped_for_free() -> None:
    network = from_layers([np.ones((2, 2))])
    count = count_transfers(network, id_array([0, 2, 3, 1]), Memory(3))
    assert (count.row_reads, count.row_writes) == (3, 2)


def test_an_output_without_connections_is_read_and_written() -> None:
    network = from_layers([np.zeros((1, 2))])
    count = count_transfers(network, id_array([]), Memory(3))
    assert (count.bias_reads, count.row_reads, count.row_writes) == (2, 0, 2)


def test_levels_are_counted_as_if_alone() -> None:
    network = from_layers([np.ones((4, 4)), np.ones((4, 4))])
    order = np.arange(network.connection_count, dtype=np.int64)
    memories = (Memory(3), Memory(6, "lru"))
    assert count_levels(network, order, memories) == tuple(
        count_transfers(network, order, memory) for memory in memories
    )


def test_a_strided_order_is_counted_like_a_copy() -> None:
    network = random_layers([9] * 3, 0.4, np.random.default_rng(0))
    strided = np.repeat(pull_order(network), 2)[::2]
    assert count_transfers(network, strided, Memory(4)) == count_transfers(network, strided.copy(), Memory(4))


def test_what_studies_begin_with_is_imported_from_the_theory() -> None:
    names: dict[str, object] = {}
    exec("from redpebble.theory import *", names)
    assert {*theory.__all__} <= {*names}
    assert names["count_transfers"] is count_transfers


@pytest.mark.parametrize("order", [[0, 1, 2], (1, 0, 2), np.array([0, 1, 2], dtype=np.int32)])
def test_an_order_is_any_sequence_of_integers(order: ArrayLike) -> None:
    network = from_layers([np.ones((2, 1)), np.ones((1, 1))])
    assert theory.count_transfers(network, order, theory.Memory(3)) == count_transfers(
        network, id_array([0, 1, 2]), Memory(3)
    )
    with pytest.raises(ValueError, match="got float64 of shape"):
        count_transfers(network, np.asarray(order, dtype=np.float64), Memory(3))


@pytest.mark.parametrize(
    "order, message",
    [
        ([0, 2, 1], r"connection 2 \(2 -> 3\) runs at step 1, but neuron 2 is final only after step 2"),
        ([0, 0, 1], "connection 0 occurs 2 times in the order"),
        ([0, 1, 3], "connection 2 occurs 0 times in the order"),
        ([0, -1, 2], "connection 1 occurs 0 times in the order"),
        ([0, 1], r"expected an order of integers of shape \(3,\), got int64 of shape \(2,\)"),
    ],
)
def test_orders_that_cannot_run_are_refused(order: list[int], message: str) -> None:
    network = from_layers([np.ones((2, 1)), np.ones((1, 1))])
    with pytest.raises(ValueError, match=message):
        count_transfers(network, id_array(order), Memory(3))
