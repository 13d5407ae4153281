"""Between `pebble.network` and the theory: the same graph, without weights, biases and activations."""

import numpy as np

from redpebble.dialect.ops.network import NetworkOp
from redpebble.theory.pebbling.neuron_graph import Network


def network_of_op(op: NetworkOp) -> Network:
    """Return the graph of an op; neurons and connections keep their numbers."""
    arrays = op.arrays
    return Network(
        neuron_count=op.input_count + len(arrays.biases),
        sources=arrays.sources,
        targets=arrays.targets,
        inputs=np.arange(op.input_count, dtype=np.int64),
        outputs=arrays.outputs,
    )
