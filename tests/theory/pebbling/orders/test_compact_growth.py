"""Grown networks meet the lower bound, by counting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.theory.pebbling.bounds.bounds import lower_bound
from redpebble.theory.pebbling.machine import POLICIES, Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.theory.pebbling.orders.compact_growth import GrownNetwork, grow_layers
from tests.support.network_strategies import SEEDS


def assert_meets_lower_bound(grown: GrownNetwork, capacity: int) -> None:
    bound = lower_bound(grown.network)
    for more in (0, 1, 7, 1000):
        for policy in POLICIES:
            assert count_transfers(grown.network, grown.order, Memory(capacity + more, policy)) == bound


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=5), st.floats(0.01, 1.0), st.integers(3, 70), SEEDS)
def test_a_grown_perceptron_meets_the_lower_bound_or_is_refused(
    widths: list[int], density: float, capacity: int, seed: int
) -> None:
    try:
        grown = grow_layers(widths, density, capacity, np.random.default_rng(seed))
    except ValueError as error:
        assert "need a memory of" in str(error)  # noqa: PT017 - both outcomes are right, for different draws
        return
    network = grown.network
    assert np.bincount(network.depths).tolist() == widths
    assert np.all(network.out_degrees[: -widths[-1]] > 0)
    assert_meets_lower_bound(grown, capacity)


def test_a_grown_perceptron_is_as_dense_as_asked() -> None:
    grown = grow_layers([300, 300, 300, 300], 0.1, 102, np.random.default_rng(0))
    assert grown.network.connection_count == 3 * 300 * 30
    assert_meets_lower_bound(grown, 102)


def test_equal_seeds_grow_equal_networks() -> None:
    one, two = (grow_layers([9, 20, 20], 0.3, 18, np.random.default_rng(5)).network for _ in range(2))
    assert np.array_equal(one.sources, two.sources)
    assert np.array_equal(one.targets, two.targets)


def test_impossible_plans_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="expected a fast memory of 3 values or more, got 2"):
        grow_layers([1, 1], 0.5, 2, rng)
    with pytest.raises(ValueError, match=r"expected a density above 0, at most 1, got 0"):
        grow_layers([1, 1], 0, 3, rng)
    with pytest.raises(ValueError, match=r"windows of \[50\] neurons need a memory of 52 values, not 30"):
        grow_layers([100, 100], 0.5, 30, rng)
    with pytest.raises(ValueError, match=r"widths \[4\] need two layers and a neuron in each"):
        grow_layers([4], 0.5, 30, rng)
