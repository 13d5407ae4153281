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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from redpebble.theory.partition.balance import dealt_by_weight
from redpebble.theory.partition.partition import Owners, Pattern


class Lists(NamedTuple):
    """Lists of numbers, ascending: list n is `items[pointers[n]:pointers[n + 1]]`."""

    pointers: NDArray[np.int64]
    items: NDArray[np.int32]

    @property
    def owners(self) -> NDArray[np.int64]:
        """The list of each item."""
        return np.repeat(np.arange(len(self.pointers) - 1), np.diff(self.pointers))


@dataclass(frozen=True, eq=False)
class LayerHypergraph:
    """The groups and nets of a layer; an input without a connection is in no net."""

    members: Lists
    """The outputs of each group."""
    weights: NDArray[np.int64]
    """Connections of each group."""
    group_nets: Lists
    """The nets of each group."""
    net_groups: Lists
    """The groups of each net."""
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
        owners = np.zeros(len(self.members.items), dtype=np.int32)
        owners[self.members.items] = parts[self.members.owners]
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
        np.add.at(table, (self.group_nets.items, parts[self.group_nets.owners]), 1)
        return table


def layer_hypergraph(pattern: Pattern, part_count: int, most_connections: int) -> LayerHypergraph:
    """Return the hypergraph of a layer, whose groups can be dealt to the parts with `most_connections` for each.

    Groups of outputs that are all alike are cut in two until this is so, or each is a single output.
    """
    outputs = _lists(pattern)
    members, chosen = _balanced_groups(pattern, identical_lists(outputs), (part_count, most_connections))
    group_inputs = _selected(outputs, chosen)
    input_groups = transposed(group_inputs, pattern.input_count)
    net_of, first_inputs = identical_lists(input_groups)
    used = np.diff(input_groups.pointers)[first_inputs] > 0
    numbers = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
    net_groups = _selected(input_groups, first_inputs[used])
    nets = numbers[net_of]
    return LayerHypergraph(
        members=members,
        weights=pattern.connection_counts[chosen] * np.diff(members.pointers),
        group_nets=transposed(net_groups, len(chosen)),
        net_groups=net_groups,
        net_of=nets,
        net_sizes=np.bincount(nets[nets >= 0], minlength=int(used.sum())).astype(np.int64),
    )


def identical_lists(lists: Lists) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the class of each list, lists in a class being equal, and the first list of each class."""
    pointers, items = lists
    # sums of random numbers: equal lists have equal sums, and what has equal sums is compared afterwards
    largest = int(items.max(initial=0))
    keys = np.random.default_rng(0).integers(0, 2**63, largest + 2, dtype=np.uint64)
    sums = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(keys[items], dtype=np.uint64)))
    hashes = sums[pointers[1:]] - sums[pointers[:-1]]
    _, firsts, classes = np.unique(hashes, return_index=True, return_inverse=True)
    by_first = np.argsort(firsts)
    rank = np.empty(len(firsts), dtype=np.int64)
    rank[by_first] = np.arange(len(firsts))
    firsts, classes = firsts[by_first], rank[classes]
    different = _differs(lists, firsts[classes])
    classes[different] = len(firsts) + np.arange(len(different))
    return classes, np.concatenate((firsts, different))


def transposed(lists: Lists, item_count: int) -> Lists:
    """Return for each item the lists that hold it, ascending."""
    pointers = np.zeros(item_count + 1, dtype=np.int64)
    np.cumsum(np.bincount(lists.items, minlength=item_count), out=pointers[1:])
    order = np.argsort(lists.items, kind="stable")
    return Lists(pointers, lists.owners[order].astype(np.int32))


def _lists(pattern: Pattern) -> Lists:
    return Lists(pattern.pointers, pattern.inputs.astype(np.int32, copy=False))


def _selected(lists: Lists, chosen: NDArray[np.int64]) -> Lists:
    lengths = np.diff(lists.pointers)[chosen]
    pointers = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
    within = np.arange(int(pointers[-1])) - np.repeat(pointers[:-1], lengths)
    return Lists(pointers, lists.items[np.repeat(lists.pointers[:-1][chosen], lengths) + within])


def _differs(lists: Lists, like: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the lists that are not equal to the one given for each."""
    lengths = np.diff(lists.pointers)
    wrong = lengths != lengths[like]
    starts = np.where(wrong, lists.pointers[:-1], lists.pointers[:-1][like])
    within = np.arange(len(lists.items)) - np.repeat(lists.pointers[:-1], lengths)
    unequal = lists.items != lists.items[np.repeat(starts, lengths) + within]
    wrong[lists.owners[unequal]] = True
    return np.flatnonzero(wrong)


def _balanced_groups(
    pattern: Pattern, grouped: tuple[NDArray[np.int64], NDArray[np.int64]], balance: tuple[int, int]
) -> tuple[Lists, NDArray[np.int64]]:
    """Return the outputs of each group, and one output of each; `balance` is (parts, most connections of a part)."""
    classes, firsts = grouped
    part_count, most_connections = balance
    counts = pattern.connection_counts
    class_members = transposed(Lists(np.arange(len(classes) + 1), classes.astype(np.int32)), len(firsts))
    sizes = np.diff(class_members.pointers)
    largest = int(sizes.max(initial=1))
    while True:
        cuts = -(-sizes // largest)
        # pieces of a class differ by one output at most
        pieces = np.repeat(np.arange(len(firsts)), cuts)
        turn = np.arange(len(pieces)) - np.repeat(np.cumsum(cuts) - cuts, cuts)
        ends = class_members.pointers[pieces] + sizes[pieces] * (turn + 1) // cuts[pieces]
        pointers = np.concatenate((np.zeros(1, dtype=np.int64), ends))
        weights = counts[firsts[pieces]] * np.diff(pointers)
        loads = np.bincount(dealt_by_weight(weights, part_count), weights=weights, minlength=part_count)
        if largest == 1 or loads.max(initial=0) <= most_connections:
            return Lists(pointers, class_members.items), class_members.items[pointers[:-1]].astype(np.int64)
        largest = (largest + 1) // 2
