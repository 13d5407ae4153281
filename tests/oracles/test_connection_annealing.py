"""Connection moves keep the order topological and the cost exact."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.sparse.neuron_graph import NeuronGraph, check_order, from_layers, id_array
from redpebble.theory.annealing.annealing import AnnealingPlan
from redpebble.theory.pebbling.machine import Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.theory.pebbling.orders.simple_orders import pull_order
from tests.oracles.connection_annealing import ConnectionState, anneal_connections
from tests.support.network_strategies import SEEDS, networks
from tests.support.neuron_graphs import random_layers


@settings(max_examples=30, deadline=None)
@given(networks(), st.sampled_from(("min", "lru")), st.integers(1, 30), SEEDS)
def test_moves_keep_the_order_topological_and_the_cost_exact(
    network: NeuronGraph, policy: Literal["min", "lru"], window: int, seed: int
) -> None:
    memory = Memory(4, policy)
    state = ConnectionState(network, pull_order(network), memory, window)
    for number, row in enumerate(np.random.default_rng(seed).random((12, 5)).tolist()):
        before = state.snapshot()
        change = state.propose(row)
        if change is not None and number % 2:
            state.reject()
            assert np.array_equal(state.snapshot(), before)
        check_order(network, state.snapshot())
        assert state.cost == count_transfers(network, state.snapshot(), memory).total


def test_a_move_stops_at_the_connection_it_depends_on() -> None:
    """A chain of four neurons: no connection can pass another."""
    network = from_layers([np.ones((1, 1))] * 3)
    state = ConnectionState(network, id_array([0, 1, 2]), Memory(3), window=2)
    for row in np.random.default_rng(0).random((50, 5)).tolist():
        assert state.propose(row) is None


def test_annealing_connections_gains_a_little() -> None:
    network, memory = random_layers([25] * 4, 0.2, np.random.default_rng(2)), Memory(10, "lru")
    start = ConnectionState(network, pull_order(network), memory, window=60)
    before = start.cost
    result = anneal_connections(start, AnnealingPlan(0.5, 0.05, 600), np.random.default_rng(0))
    assert result.cost == count_transfers(network, result.best, memory).total < before


def test_an_empty_window_is_refused() -> None:
    network = from_layers([np.ones((2, 2))])
    with pytest.raises(ValueError, match="a window of 0 places leaves no move"):
        ConnectionState(network, pull_order(network), Memory(3), 0)
