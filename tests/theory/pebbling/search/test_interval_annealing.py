"""The compiled annealer of target orders against the plain one, move by move."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.annealing.annealing import AnnealingPlan
from redpebble.theory.annealing.compiled_states import anneal_blocks
from redpebble.theory.pebbling.orders.interval_stabbing import (
    TargetOrders,
    check_target_orders,
    natural_orders,
)
from redpebble.theory.pebbling.search.interval_annealing import StabbingBlocks, StabbingMoves
from tests.oracles import interval_annealing as reference
from tests.oracles.interval_annealing import StabbingState
from tests.oracles.stabbing_cost import stabbing_cost
from tests.support.network_strategies import SEEDS, networks
from tests.support.neuron_graphs import random_layers


def is_same(orders: TargetOrders, others: TargetOrders) -> bool:
    return np.array_equal(orders.opening, others.opening) and np.array_equal(orders.closing, others.closing)


def run_plainly(state: StabbingState, draws: NDArray[np.float64], temperature: float) -> None:
    for row in draws.tolist():
        change = state.propose(row)
        if change is not None and change > 0 and row[-1] >= np.exp(-change / temperature):
            state.reject()


@settings(max_examples=60, deadline=None)
@given(networks(), st.integers(1, 8), st.sampled_from((0.0, 0.3)), SEEDS)
def test_the_same_draws_lead_to_the_same_orders_at_the_same_cost(
    network: NeuronGraph, open_count: int, aimed_share: float, seed: int
) -> None:
    start, moves = natural_orders(network, open_count), StabbingMoves(6, aimed_share)
    plain, compiled = StabbingState(network, start, moves), StabbingBlocks(network, start, moves)
    assert compiled.cost == plain.cost
    rng = np.random.default_rng(seed)
    for temperature in (3.0, 1.0, 0.2):
        for size in (1, 1, 1, 1, 40):
            draws = rng.random((size, 5))
            run_plainly(plain, draws, temperature)
            compiled.run(draws, temperature)
            assert compiled.cost == plain.cost
            assert is_same(compiled.current(), plain.snapshot())
    check_target_orders(network, compiled.best())
    assert compiled.best_cost == stabbing_cost(network, compiled.best()) <= compiled.cost


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [1, 3])
def test_a_plan_ends_at_the_orders_that_the_plain_annealer_finds(restarts: int) -> None:
    network = random_layers([40] * 4, 0.2, np.random.default_rng(0))
    start = natural_orders(network, 10)
    plan = AnnealingPlan(hottest=1.0, coldest=0.1, proposals=3000, restarts=restarts)
    expected = reference.anneal_intervals(network, start, plan, np.random.default_rng(1))
    state = StabbingBlocks(network, start, reference.usual_moves(start))
    result = anneal_blocks(state, plan, np.random.default_rng(1))
    assert result.trace == expected.trace
    assert is_same(result.best, expected.best)


def test_a_spent_time_budget_ends_the_search() -> None:
    network = random_layers([20] * 3, 0.3, np.random.default_rng(0))
    shares = iter((0.0, 0.4, 0.8, 1.0))
    plan = AnnealingPlan(1.0, 0.1, proposals=10**9, block=100, elapsed=lambda: next(shares))
    start = natural_orders(network, 5)
    result = anneal_blocks(StabbingBlocks(network, start, reference.usual_moves(start)), plan, np.random.default_rng(0))
    assert [point.proposals for point in result.trace] == [0, 100, 200, 300]


def test_orders_that_cannot_be_carried_out_are_refused() -> None:
    network = random_layers([5] * 3, 0.5, np.random.default_rng(0))
    start = natural_orders(network, 2)
    with pytest.raises(ValueError, match="closes at time"):
        StabbingBlocks(network, TargetOrders(start.opening, start.closing[::-1].copy(), 2), StabbingMoves())
