"""The few-can-stay argument, with exact and with spectral knowledge of what sets miss."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.sparse.neuron_graph import NeuronGraph, from_layers
from redpebble.theory.pebbling.bounds.bounds import lower_bound
from redpebble.theory.pebbling.bounds.live_intervals import IntervalGroup, interval_groups, joint_group
from redpebble.theory.pebbling.bounds.separator_bound import separator_excess
from redpebble.theory.pebbling.bounds.spectral_weighting import degree_weights, equalising_weights, spectral_weighting
from tests.support.exhaustive_optimum import fewest_transfers
from tests.support.network_strategies import SEEDS, networks, tiny_networks
from tests.theory.pebbling.brute_force_sets import exact_weighting


def exact_excess(group: IntervalGroup, slots: int) -> int:
    if min(group.shape) == 0:
        return 0
    transposed = group.transposed()
    return max(
        separator_excess(group, slots, exact_weighting(group)),
        separator_excess(transposed, slots, exact_weighting(transposed)),
    )


@settings(max_examples=60, deadline=None)
@given(tiny_networks(8), st.integers(3, 4))
def test_the_argument_with_exact_sets_stays_below_the_exhaustive_optimum(network: NeuronGraph, capacity: int) -> None:
    excess = fewest_transfers(network, capacity) - lower_bound(network).total
    assert sum(exact_excess(group, capacity - 1) for group in interval_groups(network)) <= excess
    assert exact_excess(joint_group(network), capacity - 1) <= excess


def test_a_long_layer_is_weighed_by_its_smaller_side() -> None:
    """A singular value decomposition of the other side up finds the same second value."""
    rows, columns = np.nonzero(np.random.default_rng(0).random((128, 20_000)) < 0.1)
    group = IntervalGroup(rows, columns, np.ones(128, dtype=np.int64), np.ones(20_000, dtype=np.int64))
    weighting = spectral_weighting(group, np.ones(len(rows)))
    half = weighting.missing(np.array([0.5]))[0]
    lefts, rights = np.bincount(rows), np.bincount(columns, minlength=20_000)
    matrix = np.zeros((20_000, 128))
    matrix[columns, rows] = 1 / np.sqrt(lefts[rows] * rights[columns])
    second = np.linalg.svd(matrix, compute_uv=False)[1]
    np.testing.assert_allclose(half / (1 - half), second**2, rtol=1e-6)


def test_the_argument_says_something_about_a_full_layer() -> None:
    network = from_layers([np.ones((3, 3))])
    excess = sum(exact_excess(group, 2) for group in interval_groups(network))
    assert 1 <= excess <= fewest_transfers(network, 3) - lower_bound(network).total


@settings(max_examples=60, deadline=None)
@given(networks(), st.sampled_from((-0.5, 0.0, 0.25, None)), SEEDS)
def test_no_set_misses_more_than_the_singular_values_allow(
    network: NeuronGraph, power: float | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    for group in interval_groups(network):
        weights = equalising_weights(group) if power is None else degree_weights(group, power)
        weighting = spectral_weighting(group, weights)
        matrix = np.zeros(group.shape, dtype=np.bool_)
        matrix[group.rows, group.columns] = True
        for _ in range(20):
            chosen = rng.random(group.shape[1]) < rng.random()
            missed = weighting.left[~matrix[:, chosen].any(axis=1)].sum()
            allowed = weighting.missing(np.array([weighting.right[chosen].sum()]))[0]
            assert missed <= allowed + 1e-9
