"""Compiled greedy rolling against the plain one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.pebbling.machine import Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.theory.pebbling.orders import rolling_orders
from redpebble.theory.pebbling.orders.interval_stabbing import check_target_orders, decode
from redpebble.theory.pebbling.orders.rolling_orders import greedy_target_orders
from redpebble.theory.pebbling.orders.simple_orders import pull_order
from tests.oracles import greedy_rolling as reference
from tests.support.network_strategies import networks
from tests.support.neuron_graphs import random_layers


@settings(max_examples=80, deadline=None)
@given(networks(), st.integers(1, 12), st.sampled_from((2.0, 3.0, 6.0)))
def test_targets_open_and_close_as_in_the_plain_search(network: NeuronGraph, open_count: int, exponent: float) -> None:
    expected = reference.greedy_target_orders(network, open_count, exponent)
    found = greedy_target_orders(network, open_count, exponent)
    assert np.array_equal(found.opening, expected.opening)
    assert np.array_equal(found.closing, expected.closing)
    assert found.open_count == open_count


def test_a_larger_network_rolls_as_in_the_plain_search() -> None:
    network = random_layers([100] * 4, 0.1, np.random.default_rng(0))
    expected = reference.greedy_target_orders(network, 28, 6.0)
    assert np.array_equal(greedy_target_orders(network, 28, 6.0).closing, expected.closing)


def test_no_open_target_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 1 open target or more, got 0"):
        greedy_target_orders(random_layers([2, 2], 1.0, np.random.default_rng(0)), 0, 2.0)


@pytest.mark.parametrize("layers", [4, 2])
def test_few_looks_find_orders_that_are_nearly_as_good(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    network, memory = random_layers([300] * layers, 0.05, np.random.default_rng(0)), Memory(60)

    def rows_moved(order: NDArray[np.int64]) -> int:
        counts = count_transfers(network, order, memory)
        return counts.row_reads + counts.row_writes

    with_all = rows_moved(decode(network, greedy_target_orders(network, 58, 6.0)))
    monkeypatch.setattr(rolling_orders, "LOOKS", 0)
    found = greedy_target_orders(network, 58, 6.0)
    check_target_orders(network, found)
    assert rows_moved(decode(network, found)) < 1.1 * with_all < 0.7 * rows_moved(pull_order(network))
