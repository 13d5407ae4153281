"""Searching a partition of a chain of layers: start, name the parts, anneal over the exact cost.

Layers start one by one: row groups that share inputs form parts, and the parts get the names with which they own most
of their inputs. Then groups are moved and swapped. Random rows are the fallback, where nothing is cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sparse.csr import CsrPattern
from ..compiled import compiled
from .hypergraph import LayerHypergraph, dealt_by_weight, layer_hypergraph, most_connections
from .partition import (
    FREE,
    LayerPattern,
    Owners,
    Partition,
    owners_of_inputs,
    random_rows,
    slices,
    traffic,
)
from .refine_partition import AnnealedPartition, Chain, Cooling

MOST_PARTS = 10_000
"""Parts up to which what each pair of them sends is counted within a gigabyte."""

_MOST_ENTRIES = 1 << 29
"""Entries of the tables of nets and parts that annealing needs, 8 bytes each; networks beyond keep their best start."""

_MOST_STEPS = 5_000_000_000
"""Nets and outputs that all proposals visit; a few minutes."""

_MOST_MESSAGE_STEPS = 1_000_000_000
"""The same where messages are counted, for each part: every visit looks at all parts."""

_FALLS = (1.0, 0.1), (0.5, 0.05)
"""Hottest and coldest temperature of each fall, in values; a fall starts with the best of the one before."""


@dataclass(frozen=True)
class PartitionRequest:
    """The request of a search: number of parts, their balance, and its length.

    Raises:
        ValueError: a number is out of its range.
    """

    part_count: int
    imbalance: float = 0.03
    """Share by which a part may exceed the mean connections of a layer."""
    seed: int = 0
    proposals: int = 1000
    """Proposals for each group, fewer in networks that would take too long."""
    message_values: float = 0.0
    """Values that a message costs as much as."""
    threads: int = 2
    """The result does not depend on it."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.part_count < 1:
            raise ValueError(f"expected 1 part or more, got {self.part_count}")
        if self.part_count > MOST_PARTS:
            raise ValueError(f"expected up to {MOST_PARTS} parts, got {self.part_count}")
        if not 0 <= self.imbalance < float("inf"):
            raise ValueError(f"expected an imbalance of 0 or more, got {self.imbalance:g}")
        if self.proposals < 0:
            raise ValueError(f"expected 0 or more proposals, got {self.proposals}")


def find_partition(
    patterns: Sequence[LayerPattern], request: PartitionRequest, input_owners: Owners | None = None
) -> Partition:
    """Return a partition of a chain; the inputs are contiguous slices unless their owners are given.

    Where these are `FREE`, for all inputs, they are chosen in the end, see `owners_of_inputs`.

    Raises:
        ValueError: no layer, a layer whose inputs are not the outputs before it, or owners of other inputs.
    """
    _check_chain(patterns)
    count = request.part_count
    owners = slices(patterns[0].column_count, count) if input_owners is None else input_owners
    if len(owners) != patterns[0].column_count:
        raise ValueError(f"owners of {len(owners)} inputs for a network of {patterns[0].column_count}")
    if count == 1:
        widths = [patterns[0].column_count, *(pattern.row_count for pattern in patterns)]
        return Partition(1, tuple(np.zeros(width, dtype=np.int32) for width in widths))
    limits = [most_connections(pattern.lengths, count, request.imbalance) for pattern in patterns]
    with ThreadPoolExecutor(request.threads) as pool:
        layers = list(pool.map(layer_hypergraph, patterns, repeat(count), limits))
    chain = Chain(layers, owners, count, limits)
    parts = _best_parts(chain, request)
    outputs = [layer.owners_of(layer_parts) for layer, layer_parts in zip(layers, parts, strict=True)]
    found = Partition(count, (_chosen(owners, patterns[0], outputs[0], count), *outputs))
    return _cheaper(patterns, found, request, chain)


def _chosen(owners: Owners, pattern: LayerPattern, output_owners: Owners, part_count: int) -> Owners:
    return owners_of_inputs(pattern, output_owners, part_count) if np.all(owners == FREE) else owners


def _named_parts(chain: Chain, parts: Sequence[Owners]) -> list[Owners]:
    """Return parts with the names that suit the owners of the inputs, layer after layer."""
    owners = chain.input_owners
    named: list[Owners] = []
    for layer, layer_parts in zip(chain.layers, parts, strict=True):
        named.append(match_parts(layer, layer_parts, owners, chain.part_count))
        owners = layer.owners_of(named[-1])
    return named


def _check_chain(patterns: Sequence[LayerPattern]) -> None:
    if not patterns:
        raise ValueError("expected a chain of one layer or more, got none")
    for pattern in patterns:
        pattern.check()
    for number in range(1, len(patterns)):
        before, here = patterns[number - 1].row_count, patterns[number].column_count
        if before != here:
            raise ValueError(f"layer {number} takes {here} values, the layer before it gives {before}")


def _best_parts(chain: Chain, request: PartitionRequest) -> list[Owners]:
    """Return the parts of all layers: each layer is grown by itself, named after its inputs, then all are annealed."""
    with ThreadPoolExecutor(request.threads) as pool:
        grown = list(pool.map(grow_parts, chain.layers, repeat(chain.part_count), chain.most_connections))
    return _annealed(chain, _named_parts(chain, grown), request)


def _steps(chain: Chain) -> int:
    """Return the nets and outputs that one proposal for each group visits."""
    return sum(len(layer.group_nets.indices) + len(layer.members.indices) for layer in chain.layers)


def _annealed(chain: Chain, start: list[Owners], request: PartitionRequest) -> list[Owners]:
    entries = sum(layer.net_count for layer in chain.layers) * chain.part_count
    steps = _steps(chain)
    proposals = min(request.proposals, _MOST_STEPS // max(steps, 1)) // len(_FALLS)
    if proposals == 0 or entries > _MOST_ENTRIES:
        return start
    coolings = [Cooling(proposals, hottest, coldest) for hottest, coldest in _FALLS]
    if request.message_values:
        # volume first: messages make steps in the cost that only get in the way of a search far from its end
        fewer = min(proposals, _MOST_MESSAGE_STEPS // max(steps * chain.part_count, 1))
        coolings.append(Cooling(max(1, fewer), *_FALLS[-1], message_values=request.message_values))
    for cooling in coolings:
        start = AnnealedPartition(chain, start, cooling).anneal(request.seed, request.threads)
    return start


def _cheaper(patterns: Sequence[LayerPattern], found: Partition, request: PartitionRequest, chain: Chain) -> Partition:
    """Return random rows instead where they are cheaper, and no part of them is too full."""
    owners, limits, count = chain.input_owners, chain.most_connections, request.part_count
    random = random_rows(patterns, count, np.random.default_rng(request.seed))
    rows = Partition(count, (_chosen(owners, patterns[0], random.owners[1], count), *random.owners[1:]))
    dealt = traffic(patterns, rows)
    if any(layer.most_connections > most for layer, most in zip(dealt, limits, strict=True)):
        return found
    costs = [
        sum(layer.volume + request.message_values * layer.messages for layer in layers)
        for layers in (traffic(patterns, found), dealt)
    ]
    return rows if costs[1] < costs[0] else found


# Naming the parts of a layer such that a part owns as many of the inputs it uses as greedily possible.
#
# How a layer's parts are named changes nothing but that: the naming of one layer is chosen after that of the layer
# before, and never has to be taken back.


def match_parts(layer: LayerHypergraph, parts: Owners, input_owners: Owners, part_count: int) -> Owners:
    """Return the parts of the groups, renamed for the given owners of the inputs."""
    uses = (layer.users(parts, part_count) > 0).astype(np.float32)
    gains = uses.T @ layer.owned(input_owners, part_count).astype(np.float32)
    return greedy_names(gains.astype(np.int64))[parts]


def greedy_names(gains: NDArray[np.int64]) -> Owners:
    """Return a name [rows] for each row of `gains` [rows, rows], each column once: largest gain first, ties by number.

    Afterwards rows swap names while that gains something.
    """
    count = len(gains)
    names = np.full(count, -1, dtype=np.int32)
    free = np.ones(count, dtype=np.bool_)
    for number in np.argsort(-gains, axis=None, kind="stable").tolist():
        row, name = divmod(number, count)
        if names[row] < 0 and free[name]:
            names[row] = name
            free[name] = False
    return _swapped(gains, names)


def _swapped(gains: NDArray[np.int64], names: Owners) -> Owners:
    rows = np.arange(len(names))
    for _ in range(4 * len(names)):
        now = gains[rows, names]
        crossed = gains[:, names]
        benefit = crossed + crossed.T - now[:, None] - now[None, :]
        number = int(np.argmax(benefit))
        if benefit.reshape(-1)[number] <= 0:
            break
        first, second = divmod(number, len(names))
        names[first], names[second] = names[second], names[first]
    return names


# Start partitions of a layer, compiled: each part grows by the row group that shares most inputs with it.

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
