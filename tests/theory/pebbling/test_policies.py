"""Evictions, against a machine that looks at all residents, and against the best eviction of an order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.pebbling.machine import POLICIES, Memory, Policy
from redpebble.theory.pebbling.machine_compiled import WRITE_WEIGHTS, count_transfers
from redpebble.theory.pebbling.search.search import SearchRequest, search_order
from tests.support.network_strategies import SEEDS, layered, networks
from tests.support.neuron_graphs import random_layers
from tests.support.plain_machine import PlainMachine, fewest_by_any_eviction
from tests.support.random_orders import random_order


@settings(max_examples=100, deadline=None)
@given(networks(), st.integers(3, 12), st.sampled_from(POLICIES), SEEDS)
def test_a_policy_moves_what_a_plain_machine_counts(
    network: NeuronGraph, capacity: int, policy: Policy, seed: int
) -> None:
    order, memory = random_order(network, np.random.default_rng(seed)), Memory(capacity, policy)
    weights = WRITE_WEIGHTS if policy == "writeback" else (1.0,)
    moved = min(PlainMachine(network, order, memory, weight).run() for weight in weights)
    isolated = int(np.sum(network.is_output & (network.in_degrees + network.out_degrees == 0)))
    assert count_transfers(network, order, memory).total == moved + network.connection_count + 2 * isolated


@settings(max_examples=40, deadline=None)
@given(layered(most_width=4), st.integers(3, 5), SEEDS)
def test_no_policy_moves_less_than_the_best_eviction(network: NeuronGraph, capacity: int, seed: int) -> None:
    order = random_order(network, np.random.default_rng(seed))
    best = fewest_by_any_eviction(network, order, capacity)
    totals = {policy: count_transfers(network, order, Memory(capacity, policy)).total for policy in POLICIES}
    assert best <= min(totals.values())
    assert totals["writeback"] <= totals["min"]


def test_weighing_writes_leaves_a_third_of_what_the_fewest_reads_move_too_much() -> None:
    """MIN moves more than the best eviction in two of five such orders."""
    rng = np.random.default_rng(1)
    excess: dict[Policy, int] = {"min": 0, "writeback": 0}
    for _ in range(40):
        network = random_layers([5, 5], 0.6, rng)
        order = random_order(network, rng)
        best = fewest_by_any_eviction(network, order, 4)
        for policy in excess:
            excess[policy] += count_transfers(network, order, Memory(4, policy)).total - best
    assert 0 < 3 * excess["writeback"] <= excess["min"]


@pytest.mark.parametrize("policy", ["rr", "writeback"])
def test_an_order_is_searched_for_every_policy(policy: Policy) -> None:
    network = random_layers([40] * 4, 0.1, np.random.default_rng(0))
    found = search_order(network, SearchRequest(12, policy, proposals=8_000), np.random.default_rng(0))
    assert found.counts == count_transfers(network, found.order, Memory(12, policy))
    assert found.counts.total < min(count.total for count in found.starts.values())
