"""Random networks to test and measure with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from redpebble.sparse.neuron_graph import NeuronGraph, from_layers


def random_layers(widths: Sequence[int], density: float, rng: np.random.Generator) -> NeuronGraph:
    """A layered network in which each possible connection exists with probability `density`, independently.

    Args:
        widths: neurons of each layer, inputs first.
        density: in [0, 1].
        rng: source of randomness.
    """
    return from_layers([(rng.random(shape) < density).astype(np.float64) for shape in pairwise(widths)])


def random_dag(neuron_count: int, density: float, rng: np.random.Generator) -> NeuronGraph:
    """A random acyclic network with skip connections and shuffled ids.

    Inputs are the neurons without incoming connections, one in four of them left as a hidden neuron with only a bias;
    outputs are those without outgoing connections and about one in five of the others.
    """
    upper = np.triu(rng.random((neuron_count, neuron_count)) < density, k=1)
    numbering = rng.permutation(neuron_count).astype(np.int64)
    rows, columns = np.nonzero(upper)
    has_in, has_out = upper.any(axis=0), upper.any(axis=1)
    is_input = ~has_in & has_out & (rng.random(neuron_count) < 0.75)
    is_output = ~is_input & (~has_out | (rng.random(neuron_count) < 0.2))
    return NeuronGraph(
        neuron_count=neuron_count,
        sources=numbering[rows],
        targets=numbering[columns],
        inputs=np.sort(numbering[is_input]),
        outputs=np.sort(numbering[is_output]),
    )


def random_banded(neuron_count: int, bandwidth: int, density: float, rng: np.random.Generator) -> NeuronGraph:
    """A network whose neurons are numbered topologically with |source - target| <= bandwidth on every connection.

    Neurons without incoming connections are inputs, those without outgoing ones outputs; without either they have only
    a bias.
    """
    offsets = np.arange(neuron_count)[None, :] - np.arange(neuron_count)[:, None]
    banded = (offsets >= 1) & (offsets <= bandwidth) & (rng.random((neuron_count, neuron_count)) < density)
    rows, columns = np.nonzero(banded)
    is_input = ~banded.any(axis=0) & banded.any(axis=1)
    return NeuronGraph(
        neuron_count=neuron_count,
        sources=rows.astype(np.int64),
        targets=columns.astype(np.int64),
        inputs=np.flatnonzero(is_input).astype(np.int64),
        outputs=np.flatnonzero(~banded.any(axis=1)).astype(np.int64),
    )


def shuffled(network: NeuronGraph, rng: np.random.Generator) -> NeuronGraph:
    """The same network with its neurons renumbered at random."""
    numbers = rng.permutation(network.neuron_count).astype(np.int64)
    ends = (numbers[ids] for ids in (network.sources, network.targets, network.inputs, network.outputs))
    return NeuronGraph(network.neuron_count, *ends)
