"""Optima of small networks: equal to Dijkstra's, and what the search and the bounds are held against."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.sparse.neuron_graph import NeuronGraph, from_layers
from redpebble.theory.pebbling.bounds.bounds import instance_bounds, lower_bound
from redpebble.theory.pebbling.exact_optimum import Excess, exact_excess, exact_optimum
from redpebble.theory.pebbling.machine import Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.theory.pebbling.search.search import EXACT, SearchRequest, search_order
from tests.support.exhaustive_optimum import fewest_transfers
from tests.support.network_strategies import tiny_networks
from tests.support.neuron_graphs import random_layers
from tests.support.plain_machine import fewest_by_any_eviction

KINDS = (((4, 4), 0.5, 4), ((6, 6), 0.4, 5), ((4, 4, 4), 0.5, 4), ((5, 5, 5), 0.35, 5), ((4, 4, 4, 4), 0.4, 5))


@settings(max_examples=60, deadline=None)
@given(tiny_networks(), st.integers(3, 5))
def test_the_optimum_is_that_of_dijkstra(network: NeuronGraph, capacity: int) -> None:
    exact = exact_optimum(network, capacity)
    if exact is not None:
        assert exact.total == fewest_transfers(network, capacity)
        assert fewest_by_any_eviction(network, exact.order, capacity) == exact.total
        assert lower_bound(network).total + exact_excess(network, capacity).values == exact.total
        assert instance_bounds(network, [capacity])[0].total == exact.total


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 44), marks=pytest.mark.slow)])
@pytest.mark.parametrize("widths, density, capacity", KINDS)
def test_the_search_finds_the_optimum_and_the_bound_is_equal_to_it(
    widths: tuple[int, ...], density: float, capacity: int, seeds: range
) -> None:
    solved = 0
    for seed in seeds:
        network = random_layers(list(widths), density, np.random.default_rng(seed))
        exact = exact_optimum(network, capacity)
        if exact is None:
            continue
        solved += 1
        found = search_order(network, SearchRequest(capacity, "writeback", 4_000), np.random.default_rng(0))
        moved = count_transfers(network, found.order, Memory(capacity, "writeback"))
        assert found.counts.total == exact.total == moved.total
        assert instance_bounds(network, [capacity])[0].total == exact.total
    assert 2 * solved >= len(seeds)


def test_parts_are_solved_one_by_one() -> None:
    one = random_layers([5, 5], 0.5, np.random.default_rng(3))
    mask = np.zeros((5, 5), dtype=bool)
    mask[one.sources, one.targets - 5] = True
    twelve = from_layers([np.kron(np.eye(12), mask)])
    alone, together = exact_optimum(one, 4), exact_optimum(twelve, 4)
    assert alone is not None
    assert together is not None
    assert together.total == 12 * alone.total > lower_bound(twelve).total
    bound = instance_bounds(twelve, [4])[0]
    assert (bound.total, bound.argument) == (together.total, "all orders of small parts")
    found = search_order(twelve, SearchRequest(4, proposals=0), np.random.default_rng(0))
    assert (found.counts.total, found.start) == (together.total, EXACT)


def test_a_large_part_is_left_to_the_search() -> None:
    network = random_layers([20, 20], 0.3, np.random.default_rng(0))
    assert exact_optimum(network, 5) is None
    assert exact_excess(network, 5) == Excess(0, 0)


def test_once_it_is_late_no_part_is_solved() -> None:
    network = random_layers([4, 4, 4], 0.5, np.random.default_rng(3))
    assert exact_excess(network, 4).rows > 0
    assert exact_excess(network, 4, lambda: True) == Excess(0, 0)
    assert exact_optimum(network, 4, lambda: True) is None


def test_a_value_that_is_its_bias_counts_where_a_row_is_one_value() -> None:
    """Three neurons of four targets each with room for one of them: a batch may read the bias again instead."""
    sources, targets = np.divmod(np.arange(12), 4)
    inputs, outputs = np.array([0, 1], dtype=np.int64), np.arange(3, 7)
    network = NeuronGraph(7, sources.astype(np.int64), targets.astype(np.int64) + 3, inputs, outputs)
    excess, bound = exact_excess(network, 4), instance_bounds(network, [4])[0]
    assert excess.rows == 0
    assert bound.total == lower_bound(network).total + excess.values == fewest_transfers(network, 4)
    assert bound.batched_total(1) == bound.total > bound.least.total
    assert (
        bound.batched_total(8) == bound.least.batched_reads(8) + bound.least.batched_writes(8) + 8 * bound.excess_rows
    )
