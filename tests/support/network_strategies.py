"""Hypothesis strategies that draw networks."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from redpebble.sparse.neuron_graph import NeuronGraph
from tests.support.neuron_graphs import random_dag, random_layers

SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def dags(draw: st.DrawFn, most_neurons: int = 24) -> NeuronGraph:
    """Networks with skip connections, shuffled ids and hidden outputs."""
    neuron_count = draw(st.integers(2, most_neurons))
    return random_dag(neuron_count, draw(st.floats(0.05, 0.6)), np.random.default_rng(draw(SEEDS)))


@st.composite
def layered(draw: st.DrawFn, most_width: int = 12) -> NeuronGraph:
    """Chains of sparse layers."""
    widths = draw(st.lists(st.integers(1, most_width), min_size=2, max_size=4))
    return random_layers(widths, draw(st.floats(0.05, 0.9)), np.random.default_rng(draw(SEEDS)))


def networks() -> st.SearchStrategy[NeuronGraph]:
    """Both kinds."""
    return st.one_of(dags(), layered())


def tiny_networks(most_connections: int = 6) -> st.SearchStrategy[NeuronGraph]:
    """Networks small enough for the exhaustive optimum."""
    kinds = st.one_of(dags(most_neurons=6), layered(most_width=3))
    return kinds.filter(lambda network: 1 <= network.connection_count <= most_connections)
