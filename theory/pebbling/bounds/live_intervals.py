"""The accounting behind every lower bound that uses M: what it costs a neuron to run in several residencies.

A *residency* is a stay of a neuron in fast memory, and begins with one read. A neuron has up to two *live intervals*:
as target (its incoming connections run) and as source (its outgoing ones run, all after the former). Let b and a be the
numbers of residencies in which connections of the target interval and of the source interval run. Counting rows, that
is neuron values and not weights, beyond the one read of every neuron and the one write of every output:

* A partial sum that changed and is needed again was written: b - 1 writes and b - 1 more reads, at least 2 (b - 1).
* An input, or an output with outgoing connections, is read at least a - 1 times more (the last residency as target can
  be the first as source; the write of an output's final value is counted already).
* A hidden neuron that is no output costs nothing more if a = 1 and its connections run in the residency that made it
  final. Else its final value is written; with a = 1 it is read once more, with a >= 2 at least a - 1 times: >= 2.

So the *excess* over W + N + S is at least the sum over target intervals of 2 (b - 1) and over source intervals of a -
1, for a hidden neuron that is no output even a - [a = 1]. An interval that runs in two residencies costs at least its
`cost` below. A neuron whose connections, of either interval, run in two residencies costs at least the smaller of its
intervals' costs, and 2 if it is hidden and no output: b >= 2 and a >= 2 cost 2, and a = b = 1 apart a write and a read.
Of a neuron with only a bias a read moves one value, not a row: connections out of these are left out of every argument,
which keeps each bound true for rows of B values.

Source: derived; a formula that charges an output with outgoing connections a - [a = 1] counts its final write twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph


@dataclass(frozen=True, eq=False)
class IntervalGroup:
    """A bipartite graph of intervals: connection c joins left interval `rows[c]` and right interval `columns[c]`.

    `left_costs` and `right_costs` hold the excess rows an interval costs at least once its connections run in two
    residencies. At any moment a resident neuron has run a part of the connections of at most one of its intervals.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    left_costs: NDArray[np.int64]
    right_costs: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int]:
        """Intervals on the left and on the right."""
        return len(self.left_costs), len(self.right_costs)

    def transposed(self) -> IntervalGroup:
        """The same group with left and right exchanged."""
        return IntervalGroup(self.columns, self.rows, self.right_costs, self.left_costs)


def counted_connections(network: NeuronGraph) -> NDArray[np.int64]:
    """Ids [counted] of connections whose source is more than a bias, ascending."""
    only_bias = (network.in_degrees == 0) & ~network.is_input
    return np.flatnonzero(~only_bias[network.sources]).astype(np.int64)


def interval_groups(network: NeuronGraph) -> list[IntervalGroup]:
    """Source intervals (left) and target intervals (right) in connected components: for a chain of layers, its pairs.

    Their costs add up, because each interval is in one group.
    """
    connections = counted_connections(network)
    sources, targets = network.sources[connections], network.targets[connections]
    hidden = ~network.is_input & ~network.is_output
    costs = np.where(hidden, 2, 1)
    labels = _component_labels(sources, targets + network.neuron_count)
    by_label = np.argsort(labels, kind="stable")
    cuts = np.flatnonzero(np.diff(labels[by_label], prepend=-1))
    groups: list[IntervalGroup] = []
    for first, end in pairwise([*cuts.tolist(), len(connections)]):
        part = by_label[first:end]
        lefts, rows = np.unique(sources[part], return_inverse=True)
        rights, columns = np.unique(targets[part], return_inverse=True)
        groups.append(
            IntervalGroup(_ids(rows), _ids(columns), _ids(costs[lefts]), np.full(len(rights), 2, dtype=np.int64))
        )
    return groups


def joint_group(network: NeuronGraph) -> IntervalGroup:
    """Whole neurons, both intervals as one: even depths left, odd depths right; connections within a side are left out.

    A neuron counts as begun with its first connection of either interval and as ended with its last.
    """
    connections = counted_connections(network)
    sources, targets = network.sources[connections], network.targets[connections]
    odd = network.depths % 2 == 1
    across = odd[sources] != odd[targets]
    sources, targets = sources[across], targets[across]
    lefts, rows = np.unique(np.where(odd[sources], targets, sources), return_inverse=True)
    rights, columns = np.unique(np.where(odd[sources], sources, targets), return_inverse=True)
    hidden = ~network.is_input & ~network.is_output
    only_target = network.is_output & (network.out_degrees == 0)
    costs = np.where(hidden | only_target, 2, 1)
    return IntervalGroup(_ids(rows), _ids(columns), _ids(costs[lefts]), _ids(costs[rights]))


def _ids(values: NDArray[np.integer]) -> NDArray[np.int64]:
    return values.astype(np.int64)


def _component_labels(ends: NDArray[np.int64], other_ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for each connection, the same for two if and only if a path of connections joins them."""
    nodes = int(max(np.max(ends, initial=-1), np.max(other_ends, initial=-1))) + 1
    labels = np.arange(nodes, dtype=np.int64)
    while True:
        lowest = np.minimum(labels[ends], labels[other_ends])
        if np.array_equal(lowest, labels[ends]) and np.array_equal(lowest, labels[other_ends]):
            return lowest
        np.minimum.at(labels, labels[ends], lowest)
        np.minimum.at(labels, labels[other_ends], lowest)
        # Labels are nodes: following them halves every chain.
        labels = labels[labels[labels]]
