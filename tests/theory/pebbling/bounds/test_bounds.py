"""Bounds hold for every order, memory and policy that was tried, and for the exhaustive optimum."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.sparse.neuron_graph import NeuronGraph, from_layers, id_array
from redpebble.theory.pebbling.bounds.bounds import instance_bound, instance_bounds, lower_bound, pull_bound
from redpebble.theory.pebbling.bounds.spectral_weighting import LARGEST_AREA
from redpebble.theory.pebbling.machine import POLICIES, Memory, TransferCount
from redpebble.theory.pebbling.machine_compiled import count_transfers
from tests.support.exhaustive_optimum import fewest_transfers
from tests.support.network_strategies import SEEDS, networks, tiny_networks
from tests.support.neuron_graphs import random_layers
from tests.support.random_orders import random_order


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(tiny_networks(), st.integers(3, 5))
def test_bounds_enclose_the_exhaustive_optimum(network: NeuronGraph, capacity: int) -> None:
    optimum = fewest_transfers(network, capacity)
    assert lower_bound(network).total <= instance_bound(network, capacity).total <= optimum
    assert optimum <= pull_bound(network).total


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(networks(), st.integers(3, 12), SEEDS)
def test_no_order_beats_the_bounds_in_any_batch(network: NeuronGraph, capacity: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    order, bound = random_order(network, rng), instance_bound(network, capacity)
    for policy in POLICIES:
        count = count_transfers(network, order, Memory(capacity, policy))
        assert count.reads >= bound.least.reads
        assert count.writes >= bound.least.writes
        for batch in (1, 16):
            assert count.batched_reads(batch) + count.batched_writes(batch) >= bound.batched_total(batch)


def test_bounds_that_are_late_leave_arguments_out_and_are_the_lower_the_earlier() -> None:
    network = random_layers([60] * 4, 0.3, np.random.default_rng(0))
    least, found = lower_bound(network).total, list[int]()
    for answers in (0, 2, 100, 10_000):
        asked = count(1)
        found.append(instance_bounds(network, [12], lambda: next(asked) > answers)[0].total)  # noqa: B023
    assert least <= found[0] < found[-1] == instance_bound(network, 12).total
    assert found == sorted(found)


def test_bounds_of_a_hand_made_network() -> None:
    """Three inputs of which one is unused, a hidden neuron, two outputs of which one has only a bias."""
    network = NeuronGraph(6, id_array([0, 1, 3]), id_array([3, 3, 4]), id_array([0, 1, 2]), id_array([4, 5]))
    assert lower_bound(network) == TransferCount(3, 3, 2, 2)
    assert pull_bound(network) == TransferCount(3, 3, 3, 3)
    assert instance_bound(network, 3).argument == "every value moves"


def test_the_accounting_does_not_charge_an_output_twice() -> None:
    """An output that feeds three more, M = 3: its final value is written once whether or not it is needed again."""
    network = NeuronGraph(
        8,
        id_array([0, 1, 2, 2, 2, 7, 7, 7]),
        id_array([2, 2, 3, 4, 5, 3, 4, 5]),
        id_array([0, 1, 7]),
        id_array([2, 3, 4, 5]),
    )
    assert instance_bound(network, 3).total <= fewest_transfers(network, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "width, density, capacity, argument",
    [
        (150, 0.03, 20, "few can stay, jointly"),
        (100, 0.1, 10, "few can stay, by layer"),
        (100, 1.0, 10, "segments"),
    ],
)
def test_each_argument_is_the_best_somewhere(width: int, density: float, capacity: int, argument: str) -> None:
    network = random_layers([width] * 4, density, np.random.default_rng(0))
    bound = instance_bound(network, capacity)
    assert bound.argument == argument
    assert bound.excess_rows > 0
    assert (
        bound.batched_total(8) == bound.least.batched_reads(8) + bound.least.batched_writes(8) + 8 * bound.excess_rows
    )


def test_a_network_too_large_for_the_solver_still_gets_a_bound() -> None:
    """A ring of connections is one group of roles."""
    width = int(np.sqrt(LARGEST_AREA)) + 1
    ring = np.arange(width, dtype=np.int64)
    sources, targets = np.concatenate((ring, ring)), np.concatenate((ring, (ring + 1) % width)) + width
    network = NeuronGraph(2 * width, sources, targets, ring, ring + width)
    assert instance_bound(network, 3).total == lower_bound(network).total


def test_parts_that_are_alike_need_what_one_of_them_does_each() -> None:
    """Two of three dense parts are the same; memory holds the third, so that nothing in it moves twice."""
    one, other = np.ones((12, 12)), np.ones((2, 3))
    alone = instance_bound(from_layers([one]), 7)
    assert alone.excess_rows > 0
    parts = np.zeros((26, 27))
    parts[:12, :12], parts[12:24, 12:24], parts[24:, 24:] = one, one, other
    assert instance_bound(from_layers([parts]), 7).excess_rows == 2 * alone.excess_rows


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a fast memory of 3 values or more, got 2"):
        instance_bound(from_layers([np.ones((1, 1))]), 2)
