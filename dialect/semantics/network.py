"""What `pebble.network` computes, on numpy arrays of any float dtype, depth by depth."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from redpebble.dialect.ops.network import NetworkArrays
from redpebble.dialect.semantics.activations import Floats, activate


def run_network(arrays: NetworkArrays, inputs: Sequence[Floats]) -> Floats:
    """Return the output neurons [..., outputs] for inputs [..., features] each."""
    first = np.concatenate(inputs, axis=-1)
    input_count, rows = first.shape[-1], first.reshape(-1, first.shape[-1]).T
    neuron_count = input_count + len(arrays.biases)
    values = np.zeros((neuron_count, rows.shape[1]), dtype=first.dtype)
    values[:input_count] = rows
    depths = neuron_depths(arrays, neuron_count)
    by_target = np.argsort(arrays.targets, kind="stable")
    for depth in range(int(depths.max(initial=-1)) + 1):
        neurons = np.flatnonzero(depths == depth)
        neurons = neurons[neurons >= input_count]
        values[neurons] = arrays.biases[neurons - input_count, None].astype(first.dtype)
        incoming = by_target[depths[arrays.targets[by_target]] == depth]
        if len(incoming):
            products = arrays.weights[incoming, None].astype(first.dtype) * values[arrays.sources[incoming]]
            targets, starts = np.unique(arrays.targets[incoming], return_index=True)
            values[targets] += np.add.reduceat(products, starts, axis=0)
        numbers = arrays.activation_of[neurons - input_count]
        for number, activation in enumerate(arrays.activations):
            values[neurons[numbers == number]] = activate(activation, values[neurons[numbers == number]])
    return values[arrays.outputs].T.reshape(*first.shape[:-1], len(arrays.outputs))


def neuron_depths(arrays: NetworkArrays, neuron_count: int) -> NDArray[np.int64]:
    """Return the number of connections on the longest way to each neuron, [N]."""
    depths = np.zeros(neuron_count, dtype=np.int64)
    while True:
        least = depths.copy()
        np.maximum.at(least, arrays.targets, depths[arrays.sources] + 1)
        if np.array_equal(least, depths):
            return depths
        depths = least
