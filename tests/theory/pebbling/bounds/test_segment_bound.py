"""The segment argument, with exact and with spectral knowledge of how connections crowd."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.sparse.neuron_graph import NeuronGraph, from_layers
from redpebble.theory.pebbling.bounds.bounds import lower_bound
from redpebble.theory.pebbling.bounds.live_intervals import interval_groups
from redpebble.theory.pebbling.bounds.segment_bound import interval_crowding, segment_excess
from redpebble.theory.pebbling.machine import Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers
from tests.support.exhaustive_optimum import fewest_transfers
from tests.support.network_strategies import layered, tiny_networks
from tests.theory.pebbling.brute_force_sets import exact_crowding


@settings(max_examples=60, deadline=None)
@given(tiny_networks(8), st.integers(3, 4))
def test_the_argument_with_exact_crowding_stays_below_the_exhaustive_optimum(
    network: NeuronGraph, capacity: int
) -> None:
    excess = fewest_transfers(network, capacity) - lower_bound(network).total
    assert sum(segment_excess(exact_crowding(group), capacity - 1) for group in interval_groups(network)) <= excess


def test_the_argument_says_something_about_full_layers() -> None:
    network = from_layers([np.ones((8, 8))])
    excess = sum(segment_excess(exact_crowding(group), 2) for group in interval_groups(network))
    assert (
        1
        <= excess
        <= count_transfers(network, np.arange(64, dtype=np.int64), Memory(3)).total - lower_bound(network).total
    )


@settings(max_examples=60, deadline=None)
@given(layered(most_width=6))
def test_estimated_crowding_is_never_below_the_exact_one(network: NeuronGraph) -> None:
    for group in interval_groups(network):
        exact, estimate = exact_crowding(group), interval_crowding(group)
        s, t = np.meshgrid(np.arange(exact.source_count + 2), np.arange(exact.target_count + 2))
        assert np.all(exact.most(s, t) <= estimate.most(s, t))
        assert exact.connection_count == estimate.connection_count
