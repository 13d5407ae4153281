"""Incremental costs against counting anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.sparse.neuron_graph import NeuronGraph, check_order
from redpebble.theory.annealing.annealing import AnnealingPlan
from redpebble.theory.pebbling.machine import Memory, Policy
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.theory.pebbling.orders.simple_orders import pull_order
from redpebble.theory.pebbling.search.connection_moves import ConnectionBlocks, ConnectionMoves, anneal_connections
from tests.support.network_strategies import SEEDS, networks
from tests.support.neuron_graphs import random_layers
from tests.support.random_orders import random_order

SEARCHED: tuple[Policy, ...] = ("min", "lru")


@settings(max_examples=30, deadline=None)
@given(networks(), st.integers(3, 12), st.sampled_from(SEARCHED), SEEDS)
def test_the_cost_after_moves_is_the_cost_counted_anew(
    network: NeuronGraph, capacity: int, policy: Policy, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    memory = Memory(capacity, policy)
    state = ConnectionBlocks(network, random_order(network, rng), memory, ConnectionMoves(window=20, look_back=10**6))
    for size in (1, 1, 1, 1, 1, 30, 30):
        state.run(rng.random((size, 5)), 1.0)
        check_order(network, state.current())
        assert state.cost == count_transfers(network, state.current(), memory).total
    assert state.best_cost == count_transfers(network, state.best(), memory).total <= state.cost


@pytest.mark.parametrize("policy", SEARCHED)
@pytest.mark.parametrize("look_back", [0, 10**6])
def test_costs_stay_exact_over_thousands_of_moves(policy: Policy, look_back: int) -> None:
    network, memory = random_layers([60] * 4, 0.2, np.random.default_rng(0)), Memory(15, policy)
    start = pull_order(network)
    state = ConnectionBlocks(network, start, memory, ConnectionMoves(window=100, look_back=look_back))
    plan = AnnealingPlan(1.0, 0.2, 4000, restarts=2)
    result = anneal_connections(state, plan, np.random.default_rng(0))
    assert result.cost == count_transfers(network, result.best, memory).total
    assert result.cost < count_transfers(network, start, memory).total


@pytest.mark.parametrize("seed", range(6))
def test_min_looks_back_to_the_use_before_one_that_a_move_passed_over(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network, memory = random_layers([20] * 4, 0.4, rng), Memory(8, "min")
    moves = ConnectionMoves(window=100, look_back=10**6)
    state = ConnectionBlocks(network, random_order(network, rng), memory, moves)
    for _ in range(60):
        state.run(rng.random((8, 5)), 1.0)
        assert state.cost == count_transfers(network, state.current(), memory).total
