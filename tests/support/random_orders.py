"""Connection orders without a plan."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph


def random_order(network: NeuronGraph, rng: np.random.Generator) -> NDArray[np.int64]:
    """A topological connection order, shape [W]; every one can be drawn."""
    waiting = network.in_degrees.copy()
    ready = [c for c in range(network.connection_count) if waiting[network.sources[c]] == 0]
    order: list[int] = []
    while ready:
        c = ready.pop(int(rng.integers(len(ready))))
        order.append(c)
        waiting[network.targets[c]] -= 1
        if waiting[network.targets[c]] == 0:
            ready += network.outgoing.of(int(network.targets[c])).tolist()
    return np.array(order, dtype=np.int64)
