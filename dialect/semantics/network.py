"""Reference of `pebble.network` on numpy arrays of any float dtype, depth by depth."""

from collections.abc import Sequence

import numpy as np

from ..attributes.activations import Floats, activate
from ..attributes.weighted_graph import WeightedGraph


def run_network(network: WeightedGraph, inputs: Sequence[Floats]) -> Floats:
    """Return the output neurons [..., outputs] for inputs [..., features] each."""
    first = np.concatenate(inputs, axis=-1)
    graph, input_count, rows = network.graph, first.shape[-1], first.reshape(-1, first.shape[-1]).T
    values = np.zeros((graph.neuron_count, rows.shape[1]), dtype=first.dtype)
    values[:input_count] = rows
    depths, by_target = graph.depths, graph.incoming.indices
    for depth in range(int(depths.max(initial=-1)) + 1):
        neurons = np.flatnonzero(depths == depth)
        neurons = neurons[neurons >= input_count]
        values[neurons] = network.biases[neurons - input_count, None].astype(first.dtype)
        incoming = by_target[depths[graph.targets[by_target]] == depth]
        if len(incoming):
            products = network.weights[incoming, None].astype(first.dtype) * values[graph.sources[incoming]]
            targets, starts = np.unique(graph.targets[incoming], return_index=True)
            values[targets] += np.add.reduceat(products, starts, axis=0)
        numbers = network.activation_of[neurons - input_count]
        for number, activation in enumerate(network.activations):
            values[neurons[numbers == number]] = activate(activation, values[neurons[numbers == number]])
    return values[graph.outputs].T.reshape(*first.shape[:-1], len(graph.outputs))
