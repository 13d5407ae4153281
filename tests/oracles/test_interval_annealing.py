"""The cost that moves keep is the cost counted anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.annealing.annealing import AnnealingPlan
from redpebble.theory.pebbling.machine import Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.theory.pebbling.orders.interval_stabbing import (
    check_target_orders,
    decode,
    natural_orders,
)
from redpebble.theory.pebbling.orders.rolling_orders import greedy_target_orders
from redpebble.theory.pebbling.search.interval_annealing import StabbingMoves
from tests.oracles.interval_annealing import StabbingState, anneal_intervals
from tests.oracles.stabbing_cost import stabbing_cost
from tests.support.network_strategies import SEEDS, networks
from tests.support.neuron_graphs import random_layers


@settings(max_examples=60, deadline=None)
@given(networks(), st.integers(1, 8), st.sampled_from((0.0, 0.3)), SEEDS)
def test_the_cost_after_moves_is_the_cost_counted_anew(
    network: NeuronGraph, open_count: int, aimed_share: float, seed: int
) -> None:
    state = StabbingState(network, natural_orders(network, open_count), StabbingMoves(6, aimed_share))
    for number, row in enumerate(np.random.default_rng(seed).random((40, 5)).tolist()):
        before = state.cost
        change = state.propose(row)
        assert state.cost == before + (change or 0)
        if change is not None and number % 2:
            state.reject()
            assert state.cost == before
        check_target_orders(network, state.snapshot())
        assert state.cost == stabbing_cost(network, state.snapshot())


@settings(max_examples=15, deadline=None)
@given(networks(), st.integers(1, 6), SEEDS)
def test_annealing_is_never_worse_than_its_start(network: NeuronGraph, open_count: int, seed: int) -> None:
    start = natural_orders(network, open_count)
    plan = AnnealingPlan(hottest=2.0, coldest=0.1, proposals=300, restarts=2)
    result = anneal_intervals(network, start, plan, np.random.default_rng(seed))
    assert result.cost == stabbing_cost(network, result.best) <= stabbing_cost(network, start)


@pytest.mark.slow
def test_annealing_gains_on_a_random_network() -> None:
    network, memory = random_layers([100] * 4, 0.1, np.random.default_rng(0)), Memory(30)
    start = greedy_target_orders(network, memory.capacity - 2, 6.0)
    result = anneal_intervals(network, start, AnnealingPlan(0.35, 0.1, 4000), np.random.default_rng(0))
    gain = stabbing_cost(network, start) - result.cost
    assert gain >= 10
    assert count_transfers(network, decode(network, result.best), memory).total <= result.cost
