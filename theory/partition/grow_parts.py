"""Start partitions of a layer, compiled: each part grows by the row group that shares most inputs with it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from redpebble.sparse.csr import CsrPattern
from redpebble.theory.annealing.jit import compiled
from redpebble.theory.partition.balance import dealt_by_weight
from redpebble.theory.partition.hypergraph import LayerHypergraph
from redpebble.theory.partition.partition import Owners

_MOST_COMPARED = 16384
"""Groups compared for each that is added: all of them, except in layers so wide that this would take minutes."""


def grow_parts(layer: LayerHypergraph, part_count: int, most_connections: int) -> Owners:
    """Return the part of each group: grown part by part, or dealt by weight where that would be too uneven."""
    count = layer.group_count
    parts = np.full(count, -1, dtype=np.int32)
    loads = np.zeros(part_count, dtype=np.int64)
    sizes = np.zeros(count, dtype=np.int64)
    np.add.at(sizes, layer.group_nets.rows, layer.net_sizes[layer.group_nets.indices])
    waiting, scores = np.arange(count, dtype=np.int32), np.zeros((2, count), dtype=np.float64)
    entered = np.full(layer.net_count, -1, dtype=np.int32)
    work = (waiting, scores, entered, np.maximum(sizes, 1))
    _grow(
        (layer.group_nets, layer.net_groups), (layer.weights, layer.net_sizes), work, (parts, loads, most_connections)
    )
    left = np.flatnonzero(parts < 0)
    for group in left[np.argsort(-layer.weights[left], kind="stable")]:
        part = int(np.argmin(loads))
        parts[group] = part
        loads[part] += layer.weights[group]
    # few heavy groups can leave none of the parts enough room for the last ones
    return parts if loads.max() <= most_connections else dealt_by_weight(layer.weights, part_count)


@compiled
def _grow(
    lists: tuple[CsrPattern[np.int32], CsrPattern[np.int32]],
    sizes: tuple[NDArray[np.int64], NDArray[np.int64]],
    work: tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int32], NDArray[np.int64]],
    result: tuple[Owners, NDArray[np.int64], int],
) -> None:
    """Fill the parts; scores are the inputs that a group shares with the part that grows, and with all before."""
    weights, _ = sizes
    waiting, scores, _, group_sizes = work
    parts, loads, most = result
    left, remaining = len(waiting), np.sum(weights)
    for part in range(len(loads)):
        scores[0, :] = 0.0
        # what is left is dealt to the parts that are left: neither the first nor the last may starve
        aim = remaining / (len(loads) - part)
        first = True
        while left > 0:
            best, best_score = -1, -1.0
            for place in range(min(left, _MOST_COMPARED)):
                group = waiting[place]
                load = loads[part] + weights[group]
                if load > most or (loads[part] > 0 and load - aim > aim - loads[part]):
                    continue
                score = (scores[1, group] if first else scores[0, group]) / group_sizes[group]
                if score > best_score:
                    best, best_score = place, score
            if best < 0:
                break
            group = waiting[best]
            left -= 1
            waiting[best] = waiting[left]
            parts[group] = part
            loads[part] += weights[group]
            remaining -= weights[group]
            first = False
            _enter(lists, sizes[1], work, (group, part))


@compiled
def _enter(
    lists: tuple[CsrPattern[np.int32], CsrPattern[np.int32]],
    net_sizes: NDArray[np.int64],
    work: tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int32], NDArray[np.int64]],
    what: tuple[int, int],
) -> None:
    """Note that the nets of a group are in a part now: groups that share them gain."""
    group_nets, net_groups = lists
    _, scores, entered, _ = work
    group, part = what
    for place in range(group_nets.pointers[group], group_nets.pointers[group + 1]):
        net = group_nets.indices[place]
        if entered[net] == part:
            continue
        is_new = entered[net] < 0
        entered[net] = part
        for pin in range(net_groups.pointers[net], net_groups.pointers[net + 1]):
            other = net_groups.indices[pin]
            scores[0, other] += net_sizes[net]
            if is_new:
                scores[1, other] += net_sizes[net]
