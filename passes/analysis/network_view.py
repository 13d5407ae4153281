"""Between `pebble.network` and the theory: the same graph, without weights, biases and activations."""

import numpy as np

from redpebble.dialect.ops.network import NetworkOp
from redpebble.sparse.neuron_graph import NeuronGraph


def network_of_op(op: NetworkOp) -> NeuronGraph:
    """Return the graph of an op; neurons and connections keep their numbers."""
    arrays = op.arrays
    return NeuronGraph(
        neuron_count=op.input_count + len(arrays.biases),
        sources=arrays.sources,
        targets=arrays.targets,
        inputs=np.arange(op.input_count, dtype=np.int64),
        outputs=arrays.outputs,
    )
