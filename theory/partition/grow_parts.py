"""Start partitions of a layer, compiled: each part grows by the row group that shares most inputs with it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sparse.csr import CsrPattern
from ..compiled import compiled
from .balance import dealt_by_weight
from .hypergraph import LayerHypergraph
from .partition import Owners

_MOST_COMPARED = 16384
"""Groups compared for each that is added: all of them, except in layers so wide that this would take minutes."""


def grow_parts(layer: LayerHypergraph, part_count: int, most_connections: int) -> Owners:
    """Return the part of each group: grown part by part, or dealt by weight where that would be too uneven."""
    count = layer.group_count
    parts = np.full(count, -1, dtype=np.int32)
    loads = np.zeros(part_count, dtype=np.int64)
    sizes = np.zeros(count, dtype=np.int64)
    np.add.at(sizes, layer.group_nets.rows, layer.net_sizes[layer.group_nets.indices])
    shared = Shared(layer.group_nets, layer.net_groups, layer.weights, layer.net_sizes, np.maximum(sizes, 1))
    entered = np.full(layer.net_count, -1, dtype=np.int32)
    growth = Growth(np.arange(count, dtype=np.int32), np.zeros((2, count)), entered, parts, loads)
    _grow(shared, growth, most_connections)
    left = np.flatnonzero(parts < 0)
    for group in left[np.argsort(-layer.weights[left], kind="stable")]:
        part = int(np.argmin(loads))
        parts[group] = part
        loads[part] += layer.weights[group]
    # few heavy groups can leave none of the parts enough room for the last ones
    return parts if loads.max() <= most_connections else dealt_by_weight(layer.weights, part_count)


class Shared(NamedTuple):
    """Nets that groups share: the hypergraph of a layer as compiled loops read it."""

    group_nets: CsrPattern[np.int32]
    net_groups: CsrPattern[np.int32]
    weights: NDArray[np.int64]
    """Connections of each group."""
    net_sizes: NDArray[np.int64]
    """Inputs of each net."""
    group_sizes: NDArray[np.int64]
    """Inputs of each group, at least 1."""


class Growth(NamedTuple):
    """State that changes while parts grow."""

    waiting: NDArray[np.int32]
    """Groups without a part, at the beginning."""
    scores: NDArray[np.float64]
    """Inputs that each group shares with the part that grows, and with all before, [2, groups]."""
    entered: NDArray[np.int32]
    """The last part that each net is in, -1 for none."""
    parts: Owners
    loads: NDArray[np.int64]


@compiled
def _grow(layer: Shared, growth: Growth, most: int) -> None:
    """Fill the parts with up to `most` connections each."""
    waiting, scores, parts, loads = growth.waiting, growth.scores, growth.parts, growth.loads
    left, remaining = len(waiting), np.sum(layer.weights)
    for part in range(len(loads)):
        scores[0, :] = 0.0
        # what is left is dealt to the parts that are left: neither the first nor the last may starve
        aim = remaining / (len(loads) - part)
        first = True
        while left > 0:
            best, best_score = -1, -1.0
            for number in range(min(left, _MOST_COMPARED)):
                group = waiting[number]
                load = loads[part] + layer.weights[group]
                if load > most or (loads[part] > 0 and load - aim > aim - loads[part]):
                    continue
                score = (scores[1, group] if first else scores[0, group]) / layer.group_sizes[group]
                if score > best_score:
                    best, best_score = number, score
            if best < 0:
                break
            group = waiting[best]
            left -= 1
            waiting[best] = waiting[left]
            parts[group] = part
            loads[part] += layer.weights[group]
            remaining -= layer.weights[group]
            first = False
            _enter(layer, growth, group, part)


@compiled
def _enter(layer: Shared, growth: Growth, group: int, part: int) -> None:
    """Note that the nets of a group are in a part now: groups that share them gain."""
    group_nets, net_groups, scores = layer.group_nets, layer.net_groups, growth.scores
    for number in range(group_nets.pointers[group], group_nets.pointers[group + 1]):
        net = group_nets.indices[number]
        if growth.entered[net] == part:
            continue
        is_new = growth.entered[net] < 0
        growth.entered[net] = part
        for pin in range(net_groups.pointers[net], net_groups.pointers[net + 1]):
            other = net_groups.indices[pin]
            scores[0, other] += layer.net_sizes[net]
            if is_new:
                scores[1, other] += layer.net_sizes[net]
