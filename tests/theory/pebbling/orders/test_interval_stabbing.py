"""Target orders, their exact cost, and the connection order that reaches it."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.sparse.neuron_graph import NeuronGraph, check_order, from_layers, id_array
from redpebble.theory.pebbling.bounds.bounds import lower_bound
from redpebble.theory.pebbling.machine import Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.theory.pebbling.orders.interval_stabbing import (
    TargetOrders,
    check_target_orders,
    decode,
    load_times,
    natural_orders,
)
from redpebble.theory.pebbling.orders.rolling_orders import greedy_target_orders
from redpebble.theory.pebbling.search.interval_annealing import StabbingMoves
from tests.oracles.interval_annealing import StabbingState
from tests.oracles.stabbing_cost import stabbing_cost
from tests.support.exhaustive_optimum import fewest_transfers
from tests.support.network_strategies import SEEDS, networks, tiny_networks


def some_orders(network: NeuronGraph, open_count: int, seed: int) -> TargetOrders:
    """Feasible target orders that are not special: random swaps from the natural ones, all accepted."""
    state = StabbingState(network, natural_orders(network, open_count), StabbingMoves(window=5, aimed_share=0.2))
    for row in np.random.default_rng(seed).random((50, 5)).tolist():
        state.propose(row)
    return state.snapshot()


def transfers_of_execution(network: NeuronGraph, orders: TargetOrders) -> int:
    """Carry the orders out with open targets, one passing source and nothing else, and count."""
    times, order = load_times(network, orders), decode(network, orders)
    reads, writes = len(orders.opening), 0
    stored: set[int] = set(np.flatnonzero(network.in_degrees == 0).tolist())
    running = {int(time): list(group) for time, group in groupby(order.tolist(), key=lambda c: times[c])}
    kept = -1
    for time, closes in enumerate(orders.closing.tolist()):
        held = set(orders.opening[: time + orders.open_count].tolist()) - set(orders.closing[:time].tolist())
        passing = kept
        for c in running.get(time, []):
            source = int(network.sources[c])
            assert int(network.targets[c]) in held
            if source != passing:
                assert source in stored
                reads += 1
            passing = source
        # A value that is final is written at its closing if it is an output or will be loaded again.
        later = any(times[c] > time + 1 for c in network.outgoing.of(closes).tolist())
        if network.is_output[closes] or later:
            stored.add(closes)
            writes += 1
        kept = closes
    lone = network.is_output & (network.in_degrees == 0)
    isolated = int(np.sum(lone & (network.out_degrees == 0)))
    return network.connection_count + reads + isolated + writes + int(lone.sum())


@settings(max_examples=80, deadline=None)
@given(networks(), st.integers(1, 8), SEEDS)
def test_the_cost_is_that_of_an_execution_with_open_targets_and_one_source(
    network: NeuronGraph, open_count: int, seed: int
) -> None:
    orders = some_orders(network, open_count, seed)
    check_order(network, decode(network, orders))
    assert stabbing_cost(network, orders) == transfers_of_execution(network, orders)


@settings(max_examples=80, deadline=None)
@given(networks(), st.integers(1, 8), SEEDS)
def test_min_reads_the_decoded_order_at_most_as_often(network: NeuronGraph, open_count: int, seed: int) -> None:
    orders = some_orders(network, open_count, seed)
    count = count_transfers(network, decode(network, orders), Memory(open_count + 2))
    assert count.reads <= stabbing_cost(network, orders) - len(network.outputs)


@settings(max_examples=40, deadline=None)
@given(tiny_networks(), st.integers(1, 3), SEEDS)
def test_the_cost_is_never_below_the_exhaustive_optimum(network: NeuronGraph, open_count: int, seed: int) -> None:
    orders = some_orders(network, open_count, seed)
    assert stabbing_cost(network, orders) >= fewest_transfers(network, open_count + 2)


@settings(max_examples=40, deadline=None)
@given(networks(), st.integers(1, 8))
def test_greedy_target_orders_can_be_carried_out(network: NeuronGraph, open_count: int) -> None:
    check_target_orders(network, greedy_target_orders(network, open_count, 3.0))


@given(networks())
def test_with_room_for_all_targets_nothing_moves_twice(network: NeuronGraph) -> None:
    orders = natural_orders(network, network.neuron_count + 1)
    assert stabbing_cost(network, orders) == lower_bound(network).total


def test_orders_that_cannot_be_carried_out_are_refused() -> None:
    """Inputs 0 and 1, hidden 2 and 3, output 4."""
    network = from_layers([np.ones((2, 2)), np.ones((2, 1))])
    natural = id_array([2, 3, 4])
    with pytest.raises(ValueError, match="expected 1 open target or more, got 0"):
        check_target_orders(network, TargetOrders(natural, natural, 0))
    with pytest.raises(ValueError, match="the closing order is no permutation of the 3 targets"):
        check_target_orders(network, TargetOrders(natural, id_array([2, 3, 3]), 1))
    with pytest.raises(ValueError, match="target 3 closes at time 0 and opens at time 1"):
        check_target_orders(network, TargetOrders(natural, id_array([3, 2, 4]), 1))
    with pytest.raises(ValueError, match="target 4 closes at time 1, its source 3 at 2"):
        check_target_orders(network, TargetOrders(natural, id_array([2, 4, 3]), 3))
