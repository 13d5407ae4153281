"""Random networks are what they say, and follow their seed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from redpebble.sparse.neuron_graph import NeuronGraph
from tests.support.network_strategies import SEEDS, networks
from tests.support.neuron_graphs import random_banded, random_dag, random_layers, shuffled


def test_random_layers_are_as_dense_as_asked() -> None:
    network = random_layers([200, 200, 200], 0.1, np.random.default_rng(0))
    assert abs(network.connection_count - 8000) < 400


@given(st.integers(2, 30), st.integers(1, 6), SEEDS)
def test_a_banded_network_has_its_bandwidth(neuron_count: int, bandwidth: int, seed: int) -> None:
    assert random_banded(neuron_count, bandwidth, 0.5, np.random.default_rng(seed)).bandwidth <= bandwidth


@given(st.integers(1, 30), st.floats(0, 1), SEEDS)
def test_every_neuron_of_a_random_graph_reaches_an_output(neuron_count: int, density: float, seed: int) -> None:
    network = random_dag(neuron_count, density, np.random.default_rng(seed))
    assert np.all((network.out_degrees > 0) | network.is_output)


@given(networks(), SEEDS)
def test_a_shuffled_network_keeps_its_shape(network: NeuronGraph, seed: int) -> None:
    other = shuffled(network, np.random.default_rng(seed))
    assert sorted(other.depths.tolist()) == sorted(network.depths.tolist())
    assert sorted(other.in_degrees.tolist()) == sorted(network.in_degrees.tolist())
    assert sorted(other.depths[other.outputs].tolist()) == sorted(network.depths[network.outputs].tolist())
