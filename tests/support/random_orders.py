"""Connection orders without a plan, and the policies to count them under."""

from __future__ import annotations

from typing import get_args

import numpy as np
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.pebbling.machine import Policy

POLICIES: tuple[Policy, ...] = get_args(Policy)


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
