"""The memory machine, compiled: what an order moves, counted at some 50 million steps a second.

MIN knows the step of every next use, and at most two values have theirs at one step: the resident values are a set of
steps, and the victim is its largest member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...sparse.neuron_graph import NeuronGraph, check_order, connection_ids
from ..compiled import compiled
from .machine import Memory, TransferCount

Ids = NDArray[np.int64]

# What is known of a value, in one word a neuron: one read tells all.
_RESIDENT, _DIRTY, _IS_OUTPUT, _BIAS_NEXT, _ONLY_BIAS = 1, 2, 4, 8, 16


class Uses(NamedTuple):
    """An order as uses of neurons, shape [2 W]: use 2 s is that of the source of step s, use 2 s + 1 of its target.

    `nexts` is the next use of the same neuron, 2 W if there is none.
    """

    neurons: Ids
    nexts: Ids


class Ends(NamedTuple):
    """Sources and targets of the connections, [W] each."""

    sources: Ids
    targets: Ids


class Moved(NamedTuple):
    """Rows and biases moved."""

    bias_reads: int
    row_reads: int
    row_writes: int


def count_transfers(network: NeuronGraph, order: ArrayLike, memory: Memory) -> TransferCount:
    """Run the order, connection ids of shape [W], and count what is moved.

    Raises:
        ValueError: the order is not a permutation, or runs a connection before its source is final.
    """
    return count_levels(network, order, (memory,))[0]


def count_levels(network: NeuronGraph, order: ArrayLike, memories: Sequence[Memory]) -> tuple[TransferCount, ...]:
    """Count an order [W] for several memories, each as if it were the only one; the order is prepared once.

    Raises:
        ValueError: as `count_transfers`.
    """
    order = connection_ids(order)
    if order.dtype != np.int64 or order.shape != (network.connection_count,):
        check_order(network, order)
    order = np.ascontiguousarray(order)
    # read-only arrays would be compiled for anew
    ends = Ends(*(np.require(ids, requirements="W") for ids in (network.sources, network.targets)))
    if not is_runnable(order, ends, network.in_degrees.copy(), np.zeros(len(order), dtype=np.bool_)):
        check_order(network, order)
    uses = Uses(np.empty(2 * len(order), dtype=np.int64), np.empty(2 * len(order), dtype=np.int64))
    put_uses(order, ends, uses, np.full(network.neuron_count, 2 * len(order), dtype=np.int64))
    return tuple(_count(network, uses, memory) for memory in memories)


@compiled
def is_runnable(order: Ids, ends: Ends, waiting: Ids, has_run: NDArray[np.bool_]) -> bool:
    """Whether an order is a permutation that runs no connection before its source is final.

    `waiting` [N] are the connections into each neuron that have not run, `has_run` [W] is False; both change.
    """
    for connection in order:
        if connection < 0 or connection >= len(order) or has_run[connection] or waiting[ends.sources[connection]] > 0:
            return False
        has_run[connection] = True
        waiting[ends.targets[connection]] -= 1
    return True


@compiled
def put_uses(order: Ids, ends: Ends, uses: Uses, upcoming: Ids) -> None:
    """Fill in the uses of an order; `upcoming` [N] is the use at the end of it, 2 W, and changes."""
    for step in range(len(order) - 1, -1, -1):
        source, target = ends.sources[order[step]], ends.targets[order[step]]
        uses.neurons[2 * step], uses.neurons[2 * step + 1] = source, target
        uses.nexts[2 * step], uses.nexts[2 * step + 1] = upcoming[source], upcoming[target]
        upcoming[source], upcoming[target] = 2 * step, 2 * step + 1


@compiled
def run(uses: Uses, values: Ids, next_uses: MaxTree | None, ring: Ids | None, slots: int) -> Moved:
    """Run in so many slots; `values` [N] begin as `initial_values` says, and nothing is resident.

    The neurons that may be evicted are known by their next uses, 0 .. 2 W - 1, for MIN; for LRU they are in a ring by
    their last use, shape [2, N + 1]: the neighbours before and after each. Its last entry stands between the latest and
    the oldest; at first all are the last entry. The policy that is not meant has None, and no code.
    """
    neurons, nexts = uses.neurons, uses.nexts
    end, free = len(neurons), slots
    bias_reads = row_reads = row_writes = 0
    for step in range(0, end, 2):
        for use in (step, step + 1):
            if values[neurons[use]] & _RESIDENT:
                _pin(next_uses, ring, use, neurons[use])
        for use in (step, step + 1):
            neuron: int = neurons[use]
            value: int = values[neuron]
            if not value & _RESIDENT:
                if free == 0:
                    row_writes += _forget(values, _evict(next_uses, ring, uses, values), False)
                    free += 1
                free -= 1
                bias_reads += (value & _BIAS_NEXT) >> 3
                row_reads += 1 - ((value & _BIAS_NEXT) >> 3)
                values[neuron] = _loaded(value)
        values[neurons[step + 1]] |= _DIRTY
        for use in (step, step + 1):
            if nexts[use] == end:
                row_writes += _forget(values, neurons[use], True)
                free += 1
            else:
                _keep(next_uses, ring, nexts[use], neurons[use])
    return Moved(bias_reads, row_reads, row_writes)


@compiled
def _pin(next_uses: MaxTree | None, ring: Ids | None, use: int, neuron: int) -> None:
    """Take a resident whose next use is now from those that may be evicted."""
    if next_uses is not None:
        clear(next_uses, use)
    if ring is not None:
        _unlink(ring, neuron)


@compiled
def _keep(next_uses: MaxTree | None, ring: Ids | None, next_use: int, neuron: int) -> None:
    """Put a neuron that has just been used among those that may be evicted."""
    if next_uses is not None:
        mark(next_uses, next_use)
    if ring is not None:
        last = ring.shape[1] - 1
        latest = ring[0, last]
        ring[1, latest], ring[0, neuron] = neuron, latest
        ring[1, neuron], ring[0, last] = last, neuron


@compiled
def _evict(next_uses: MaxTree | None, ring: Ids | None, uses: Uses, values: Ids) -> int:
    """Choose the neuron that leaves, and take it from those that may be evicted."""
    neuron = 0
    if next_uses is not None:
        use = _farthest(next_uses, uses.neurons, values)
        clear(next_uses, use)
        neuron = uses.neurons[use]
    if ring is not None:
        neuron = ring[1, ring.shape[1] - 1]
        _unlink(ring, neuron)
    return neuron


@compiled
def _farthest(next_uses: MaxTree, neurons: Ids, values: Ids) -> int:
    """The farthest next use; of both ends of one step that of a clean value, then of the smaller id."""
    use = largest(next_uses)
    if use & 1 and is_marked(next_uses, use - 1):
        source, target = neurons[use - 1], neurons[use]
        dirty_source, dirty_target = values[source] & _DIRTY, values[target] & _DIRTY
        if dirty_source < dirty_target or (dirty_source == dirty_target and source < target):
            return use - 1
    return use


@compiled
def _unlink(ring: Ids, neuron: int) -> None:
    before, after = ring[0, neuron], ring[1, neuron]
    ring[1, before], ring[0, after] = after, before


@compiled
def _loaded(value: int) -> int:
    """A bias is read once, unless it is all there is of the value."""
    return (value if value & _ONLY_BIAS else value & ~_BIAS_NEXT) | _RESIDENT


@compiled
def _forget(values: Ids, neuron: int, is_dead: bool) -> int:
    """No longer resident; 1 if that takes a write: slow memory lacks a value that is an output or still needed."""
    value = values[neuron]
    values[neuron] = value & ~(_RESIDENT | _DIRTY)
    return int(value & _DIRTY != 0 and (not is_dead or value & _IS_OUTPUT != 0))


def initial_values(network: NeuronGraph) -> Ids:
    """Content of slow memory for each neuron before the first step, shape [N]."""
    without_incoming = network.in_degrees == 0
    values = np.where(network.is_output, _IS_OUTPUT, 0)
    values |= np.where(without_incoming & network.is_output, _DIRTY, 0)
    values |= np.where(network.is_input, 0, _BIAS_NEXT)
    values |= np.where(without_incoming & ~network.is_input, _ONLY_BIAS, 0)
    return values.astype(np.int64)


def _count(network: NeuronGraph, uses: Uses, memory: Memory) -> TransferCount:
    values, slots, neuron_count = initial_values(network), memory.capacity - 1, network.neuron_count
    if memory.policy == "min":
        moved = run(uses, values, empty_set(2 * network.connection_count), None, slots)
    else:
        moved = run(uses, values, None, np.full((2, neuron_count + 1), neuron_count, dtype=np.int64), slots)
    isolated = int(np.sum(network.is_output & (network.in_degrees + network.out_degrees == 0)))
    return TransferCount(
        network.connection_count, moved.bias_reads + isolated, moved.row_reads, moved.row_writes + isolated
    )


# A set of integers 0 .. n - 1 that gives its largest member in a few steps: a tree of 32-bit words.
#
# Bit i of a word says whether word (or member) i below it has a member. Marking and clearing rarely go beyond the first
# level, since parents change only when a word becomes empty or stops being so.


class MaxTree(NamedTuple):
    """Words of all levels, lowest level first, and where each level begins; the last level is one word."""

    words: NDArray[np.int64]
    starts: NDArray[np.int64]


def empty_set(count: int) -> MaxTree:
    """No member yet, room for 0 .. count - 1."""
    sizes: list[int] = []
    while not sizes or sizes[-1] > 1:
        sizes.append(max(1, ((sizes[-1] if sizes else count) + 31) >> 5))
    starts = np.cumsum([0, *sizes]).astype(np.int64)
    return MaxTree(np.zeros(starts[-1], dtype=np.int64), starts[:-1])


@compiled
def mark(tree: MaxTree, member: int) -> None:
    """Add a member."""
    for start in tree.starts:
        word = start + (member >> 5)
        before = tree.words[word]
        tree.words[word] = before | (1 << (member & 31))
        if before != 0:
            return
        member >>= 5


@compiled
def clear(tree: MaxTree, member: int) -> None:
    """Remove a member."""
    for start in tree.starts:
        word = start + (member >> 5)
        after = tree.words[word] & ~(1 << (member & 31))
        tree.words[word] = after
        if after != 0:
            return
        member >>= 5


@compiled
def is_marked(tree: MaxTree, member: int) -> bool:
    """Whether a number is a member."""
    return (tree.words[member >> 5] >> (member & 31)) & 1 == 1


@compiled
def largest(tree: MaxTree) -> int:
    """The largest member of a set that has one."""
    member = 0
    for level in range(len(tree.starts) - 1, -1, -1):
        start: int = tree.starts[level]
        word: int = tree.words[start + member]
        member = (member << 5) + _highest_bit(word)
    return member


@compiled
def _highest_bit(word: int) -> int:
    """Without branches: they would be as good as random."""
    bit = 0
    for shift in (4, 3, 2, 1, 0):
        step = int(word >> (1 << shift) != 0) << shift
        word >>= step
        bit += step
    return bit
