"""The entry point: never worse than a start, reproducible, optimal where the optimum is known."""

from __future__ import annotations

from itertools import count
from typing import Literal, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.sparse.neuron_graph import NeuronGraph, check_order, from_layers
from redpebble.theory.pebbling.bounds.bounds import lower_bound
from redpebble.theory.pebbling.machine import Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.theory.pebbling.orders.rolling_orders import greedy_target_orders, rolled_in_time
from redpebble.theory.pebbling.search.search import SearchRequest, search_order
from redpebble.theory.pebbling.search.starts import SLOWER, rolling_targets, start_orders
from tests.support.exhaustive_optimum import fewest_transfers
from tests.support.network_strategies import SEEDS, networks
from tests.support.neuron_graphs import random_banded, random_dag, random_layers, shuffled

SearchedPolicy = Literal["min", "lru"]
SEARCHED: tuple[SearchedPolicy, ...] = ("min", "lru")


@settings(max_examples=10, deadline=None)
@given(networks(), st.integers(3, 12), st.sampled_from(SEARCHED), SEEDS)
def test_what_is_found_runs_as_counted_and_is_no_worse_than_any_start(
    network: NeuronGraph, capacity: int, policy: SearchedPolicy, seed: int
) -> None:
    request = SearchRequest(capacity, policy, proposals=300)
    found = search_order(network, request, np.random.default_rng(seed))
    check_order(network, found.order)
    assert found.counts == count_transfers(network, found.order, Memory(capacity, policy))
    assert found.counts.total <= min(start.total for start in found.starts.values())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("policy", SEARCHED)
def test_the_same_seed_and_proposals_find_the_same_order(policy: SearchedPolicy, threads: int) -> None:
    network = random_layers([40] * 4, 0.2, np.random.default_rng(0))
    request = SearchRequest(12, policy, proposals=4000, threads=threads, restarts=2)
    found, again = (search_order(network, request, np.random.default_rng(7)) for _ in range(2))
    assert np.array_equal(found.order, again.order)
    assert np.array_equal(found.trace.best_costs, again.trace.best_costs)


@pytest.mark.parametrize("policy", SEARCHED)
def test_a_search_gains_and_its_trace_ends_at_the_order_found(policy: SearchedPolicy) -> None:
    network = random_layers([60] * 4, 0.2, np.random.default_rng(0))
    found = search_order(network, SearchRequest(15, policy, proposals=20000), np.random.default_rng(0))
    best_start = min(start.total for start in found.starts.values())
    assert found.counts.total < 0.997 * best_start
    assert np.all(np.diff(found.trace.proposals) >= 0)
    assert np.all(np.diff(found.trace.best_costs) <= 0)
    assert found.trace.best_costs[-1] <= found.counts.total


def test_a_time_budget_ends_the_search() -> None:
    network = random_layers([40] * 4, 0.2, np.random.default_rng(0))
    # what is compiled now takes none of the ticks
    search_order(network, SearchRequest(12, proposals=50), np.random.default_rng(0))
    ticks = count(30, -1)
    found = search_order(network, SearchRequest(12, remaining=lambda: next(ticks)), np.random.default_rng(0))
    assert next(ticks) <= 0
    assert found.counts.total < min(start.total for start in found.starts.values())


def test_starts_that_take_long_are_left_out_once_it_is_late() -> None:
    network = random_layers([40] * 4, 0.2, np.random.default_rng(0))
    every = start_orders(network, 12)
    assert [*every] == [*start_orders(network, 12, lambda: False)]
    cheap = start_orders(network, 12, lambda: True)
    assert {*every} - {*cheap} == {*SLOWER, *(name for name in every if name.startswith("greedy"))}
    assert all(np.array_equal(order, every[name]) for name, order in cheap.items())
    assert len(rolling_targets(network, 10, lambda: True)) == 1


def test_a_start_that_takes_longer_than_there_is_time_for_is_given_up() -> None:
    network = random_layers([400, 400], 0.02, np.random.default_rng(0))
    asked = count()
    assert rolled_in_time(network, 10, 2.0, lambda: next(asked) >= 2) is None
    assert next(asked) == 3
    whole = rolled_in_time(network, 10, 2.0, lambda: False)
    assert whole is not None
    assert np.array_equal(whole.closing, greedy_target_orders(network, 10, 2.0).closing)


@pytest.mark.parametrize("policy", SEARCHED)
def test_a_search_with_no_time_left_makes_no_slow_start(policy: SearchedPolicy) -> None:
    network = random_layers([40] * 4, 0.2, np.random.default_rng(0))
    left = iter([1.0])
    request = SearchRequest(12, policy, remaining=lambda: next(left, 0.0))
    found = search_order(network, request, np.random.default_rng(0))
    assert {*found.starts} == {*start_orders(network, 12, lambda: True)}
    check_order(network, found.order)


@pytest.mark.parametrize("request_", [SearchRequest(5, proposals=0), SearchRequest(5, remaining=lambda: 0.0)])
def test_without_a_budget_the_best_start_is_taken(request_: SearchRequest) -> None:
    network = random_layers([20] * 3, 0.2, np.random.default_rng(0))
    found = search_order(network, request_, np.random.default_rng(0))
    # a start whose targets are put in order is one that nobody searched for, too
    assert found.counts.total <= min(start.total for start in found.starts.values())


@pytest.mark.parametrize("weights", [np.zeros((2, 3)), np.ones((1, 1))])
def test_networks_without_choice_are_searched_too(weights: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> None:
    found = search_order(from_layers([weights]), SearchRequest(3, proposals=10), np.random.default_rng(0))
    assert len(found.order) == int(np.count_nonzero(weights))


def tiny_networks(amount: int) -> list[NeuronGraph]:
    rng = np.random.default_rng(0)
    drawn: list[NeuronGraph] = []
    while len(drawn) < amount:
        network = random_dag(int(rng.integers(4, 9)), float(rng.uniform(0.2, 0.7)), rng)
        if 4 <= network.connection_count <= 10:
            drawn.append(network)
    return drawn


def optimum_is_met(amount: int) -> float:
    met = 0
    networks_ = tiny_networks(amount)
    for number, network in enumerate(networks_):
        capacity = 3 + number % 4
        found = search_order(network, SearchRequest(capacity, proposals=4000), np.random.default_rng(number))
        optimum = fewest_transfers(network, capacity)
        assert found.counts.total >= optimum
        met += found.counts.total == optimum
    return met / amount


def test_the_optimum_of_tiny_networks_is_met() -> None:
    assert optimum_is_met(40) >= 0.99


@pytest.mark.slow
def test_the_optimum_of_two_hundred_tiny_networks_is_met() -> None:
    assert optimum_is_met(200) >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("density", [1.0, 0.5])
@pytest.mark.parametrize("bandwidth", [2, 5])
def test_a_narrow_network_meets_the_lower_bound_though_its_neurons_are_shuffled(bandwidth: int, density: float) -> None:
    network = shuffled(random_banded(60, bandwidth, density, np.random.default_rng(3)), np.random.default_rng(4))
    found = search_order(network, SearchRequest(bandwidth + 2, proposals=200_000), np.random.default_rng(0))
    assert found.counts == lower_bound(network)


def test_of_both_budgets_the_first_ends_the_search_and_time_that_is_left_changes_nothing() -> None:
    network = shuffled(random_banded(40, 5, 0.5, np.random.default_rng(3)), np.random.default_rng(4))
    alone, beside, ended = (
        search_order(network, SearchRequest(4, proposals=5_000, remaining=remaining), np.random.default_rng(0))
        for remaining in (None, lambda: 1.0, iter([1.0, *[0.0] * 1_000]).__next__)
    )
    np.testing.assert_array_equal(alone.order, beside.order)
    assert [*alone.trace.proposals] == [*beside.trace.proposals]
    assert max(alone.trace.proposals) > max(ended.trace.proposals, default=0)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"capacity": 2, "proposals": 1}, "expected a fast memory of 3 values or more, got 2"),
        (
            {"capacity": 3, "policy": "random", "proposals": 1},
            "expected a policy of min, lru, rr, writeback, got 'random'",
        ),
        ({"capacity": 3}, "expected a number of proposals or a time budget of the search, got neither"),
        ({"capacity": 3, "proposals": -1}, "expected 0 proposals or more, got -1"),
        ({"capacity": 3, "proposals": 1, "threads": 0}, "expected 1 thread and 1 restart or more, got 0 and 1"),
    ],
)
def test_requests_that_make_no_sense_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cast("type", SearchRequest)(**arguments)
