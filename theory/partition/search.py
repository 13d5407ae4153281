"""Searching a partition of a chain of layers: start, name the parts, anneal over what it really costs.

Layers start one by one: their row groups are put into parts by what inputs they share, and the parts get the names
with which they own most of what they use. Then groups are moved and swapped. What random rows would cost is known to
the end: where nothing is better, they are the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from .balance import most_connections
from .grow_parts import grow_parts
from .hypergraph import layer_hypergraph
from .match_parts import match_parts
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
            raise ValueError(f"{self.part_count} parts, at least 1 is needed")
        if self.part_count > MOST_PARTS:
            raise ValueError(f"{self.part_count} parts, accepted are up to {MOST_PARTS}")
        if not 0 <= self.imbalance < float("inf"):
            raise ValueError(f"imbalance {self.imbalance:g}, accepted are 0 and more")
        if self.proposals < 0:
            raise ValueError(f"{self.proposals} proposals, accepted are 0 and more")


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
        raise ValueError("a chain needs at least one layer")
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
