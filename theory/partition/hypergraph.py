"""A layer as a hypergraph to partition: outputs are vertices, inputs are nets, both without repetitions.

Outputs with the same inputs never gain from being apart, so they are collapsed into one *group*, as far as balance
allows; inputs used by the same groups are merged into one *net*, whose size is the number of inputs. With U the parts
that use a net and owned(p) its inputs that part p owns, the values sent are

    sum over nets of |U| size - sum of owned(p) over p in U

because an input reaches every part of U but its owner, if that is in U. Source: the multi-phase model with fixed
vertices of Demirci and Ferhatosmanoglu, arXiv 2104.11805 (abstract read); the formula is derived.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import floor

import numpy as np
from numpy.typing import NDArray

from ...sparse.csr import CsrPattern, Indices
from ...sparse.patterns.similar_rows import first_alike
from .partition import LayerPattern, Owners


@dataclass(frozen=True, eq=False)
class LayerHypergraph:
    """The groups and nets of a layer; an input without a connection is in no net."""

    members: CsrPattern[np.int32]
    """The outputs of each group, [groups, outputs]."""
    weights: NDArray[np.int64]
    """Connections of each group."""
    group_nets: CsrPattern[np.int32]
    """The nets of each group, [groups, nets]."""
    net_groups: CsrPattern[np.int32]
    """The groups of each net, [nets, groups]."""
    net_of: NDArray[np.int32]
    """The net of each input, -1 without a connection."""
    net_sizes: NDArray[np.int64]
    """Inputs of each net."""

    @property
    def group_count(self) -> int:
        """Vertices."""
        return len(self.weights)

    @property
    def net_count(self) -> int:
        """Nets."""
        return len(self.net_sizes)

    def owners_of(self, parts: Owners) -> Owners:
        """Return the owner of each output, for the part of each group."""
        owners = np.zeros(len(self.members.indices), dtype=np.int32)
        owners[self.members.indices] = parts[self.members.rows]
        return owners

    def owned(self, input_owners: Owners, part_count: int) -> NDArray[np.int32]:
        """Return how many inputs of each net each part owns, [nets, parts]; an owner below 0 is none."""
        table = np.zeros((self.net_count, part_count), dtype=np.int32)
        inputs = np.flatnonzero((self.net_of >= 0) & (input_owners >= 0))
        np.add.at(table, (self.net_of[inputs], input_owners[inputs]), 1)
        return table

    def users(self, parts: Owners, part_count: int) -> NDArray[np.int32]:
        """Return how many groups of each part use each net, [nets, parts]."""
        table = np.zeros((self.net_count, part_count), dtype=np.int32)
        np.add.at(table, (self.group_nets.indices, parts[self.group_nets.rows]), 1)
        return table


def layer_hypergraph(pattern: LayerPattern, part_count: int, most_connections: int) -> LayerHypergraph:
    """Return the hypergraph of a layer, whose groups can be dealt to the parts with `most_connections` for each.

    Groups of outputs that are all alike are cut in two until this is so, or each is a single output.
    """
    outputs = CsrPattern(pattern.pointers, pattern.indices.astype(np.int32, copy=False), pattern.column_count)
    members, chosen = _balanced_groups(outputs, part_count, most_connections)
    input_groups = outputs.taken(chosen).transposed()
    first_inputs, net_of = np.unique(first_alike(input_groups), return_inverse=True)
    used = input_groups.lengths[first_inputs] > 0
    numbers = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
    net_groups = input_groups.taken(first_inputs[used])
    nets = numbers[net_of]
    return LayerHypergraph(
        members=members,
        weights=outputs.lengths[chosen] * members.lengths,
        group_nets=net_groups.transposed(),
        net_groups=net_groups,
        net_of=nets,
        net_sizes=np.bincount(nets[nets >= 0], minlength=int(used.sum())).astype(np.int64),
    )


def _balanced_groups(
    outputs: CsrPattern[np.int32], part_count: int, most_connections: int
) -> tuple[CsrPattern[np.int32], Indices]:
    """Return the outputs of each group [groups, outputs], and one output of each [groups]."""
    firsts, classes = np.unique(first_alike(outputs), return_inverse=True)
    class_of = CsrPattern(np.arange(len(classes) + 1), classes.astype(np.int32), len(firsts))
    class_members, counts = class_of.transposed(), outputs.lengths
    sizes = class_members.lengths
    largest = int(sizes.max(initial=1))
    while True:
        cuts = -(-sizes // largest)
        # what a class is cut into differs by one output at most
        cut = np.repeat(np.arange(len(firsts)), cuts)
        number = np.arange(len(cut)) - np.repeat(np.cumsum(cuts) - cuts, cuts)
        ends = class_members.pointers[cut] + sizes[cut] * (number + 1) // cuts[cut]
        pointers = np.append(0, ends)
        weights = counts[firsts[cut]] * np.diff(pointers)
        loads = np.bincount(dealt_by_weight(weights, part_count), weights=weights, minlength=part_count)
        if largest == 1 or loads.max(initial=0) <= most_connections:
            groups = class_members._replace(pointers=pointers)
            return groups, groups.indices[pointers[:-1]].astype(np.int64)
        largest = (largest + 1) // 2


# Dealing weights to parts evenly, and how full a part may be.


def dealt_by_weight(weights: NDArray[np.int64], part_count: int) -> Owners:
    """Return a part for each weight [weights]: from the heaviest on, the part that is lightest so far."""
    loads = [(0, part) for part in range(part_count)]
    heapify(loads)
    parts = np.zeros(len(weights), dtype=np.int32)
    for item in np.argsort(-weights, kind="stable").tolist():
        load, part = loads[0]
        parts[item] = part
        heapreplace(loads, (load + int(weights[item]), part))
    return parts


def loads_of(weights: NDArray[np.int64], parts: Owners, part_count: int) -> NDArray[np.int64]:
    """Return the weight of each part [parts], given weights [items] and the part of each."""
    return np.bincount(parts, weights=weights.astype(np.float64), minlength=part_count).astype(np.int64)


def most_connections(weights: NDArray[np.int64], part_count: int, imbalance: float) -> int:
    """Return how many connections a part may have, for the connections [outputs] of each output.

    That is the mean and `imbalance` more of it; or, where outputs are too few or too heavy for that, the fullest part
    when they are dealt out by weight.
    """
    total = int(weights.sum())
    limit = floor((1 + imbalance) * total / part_count)
    # dealing ends within the heaviest weight above the mean
    if total + part_count * int(weights.max(initial=0)) <= part_count * limit:
        return limit
    return max(limit, int(loads_of(weights, dealt_by_weight(weights, part_count), part_count).max()))
