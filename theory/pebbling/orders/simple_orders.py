"""Connection orders without a search: pull, push, target blocks, depth first.

All return connection ids, shape [W], and are topological.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph


def pull_order(network: NeuronGraph) -> NDArray[np.int64]:
    """Order [W] of connections target by target in topological order, each with all its sources."""
    positions = topological_positions(network)
    return np.lexsort((positions[network.sources], positions[network.targets])).astype(np.int64)


def push_order(network: NeuronGraph) -> NDArray[np.int64]:
    """Order [W] of connections source by source in topological order, each to all its targets."""
    positions = topological_positions(network)
    return np.lexsort((positions[network.targets], positions[network.sources])).astype(np.int64)


def target_block_order(network: NeuronGraph, block_size: int) -> NDArray[np.int64]:
    """Order [W] by blocks of consecutive targets in topological order; in a block source by source, to targets there.

    The sources come in the order of their first target in the block, so that targets finish one after another; a source
    that is a target of the same block comes after its own sources. With `block_size` M - 2 a block, a passing source
    and a weight fill the memory.

    Raises:
        ValueError: a block without targets.
    """
    if block_size < 1:
        raise ValueError(f"expected a block of 1 target or more, got {block_size}")
    positions = topological_positions(network)
    targets = network.topological_order[network.in_degrees[network.topological_order] > 0]
    blocks = np.zeros(network.neuron_count, dtype=np.int64)
    blocks[targets] = np.arange(len(targets)) // block_size
    visits = blocks[network.targets] * network.neuron_count + network.sources
    visited, of_connection = np.unique(visits, return_inverse=True)
    first_targets = np.full(len(visited), network.neuron_count, dtype=np.int64)
    np.minimum.at(first_targets, of_connection, positions[network.targets])
    keys = (
        positions[network.targets],
        positions[network.sources],
        first_targets[of_connection],
        blocks[network.targets],
    )
    return np.lexsort(keys).astype(np.int64)


def depth_first_order(network: NeuronGraph) -> NDArray[np.int64]:
    """Order [W] from outputs backwards: a source is computed when the first connection needs it, which then runs."""
    order: list[int] = []
    started = np.zeros(network.neuron_count, dtype=np.bool_)
    # Neurons that reach no output come last.
    roots = np.concatenate((network.outputs, network.topological_order[::-1]))
    for root in roots.tolist():
        if not started[root]:
            _compute(network, root, started, order)
    return np.array(order, dtype=np.int64)


def topological_positions(network: NeuronGraph) -> NDArray[np.int64]:
    """The position of each neuron in the topological order, shape [N]."""
    positions = np.empty(network.neuron_count, dtype=np.int64)
    positions[network.topological_order] = np.arange(network.neuron_count)
    return positions


def _compute(network: NeuronGraph, root: int, started: NDArray[np.bool_], order: list[int]) -> None:
    """Append the connections that make `root` final and have not run; a stack of what is left of each neuron."""
    started[root] = True
    stack = [network.incoming.of(root).tolist()[::-1]]
    while stack:
        if not stack[-1]:
            stack.pop()
            continue
        connection = stack[-1][-1]
        source = int(network.sources[connection])
        if started[source]:
            order.append(stack[-1].pop())
            continue
        started[source] = True
        stack.append(network.incoming.of(source).tolist()[::-1])
