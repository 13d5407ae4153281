"""The memory machine, compiled: what an order moves, counted at some 50 million steps a second.

MIN knows the step of every next use, and at most two values have theirs at one step: the resident values are sets of
steps, one of clean and one of dirty values, and the victim is the largest member of one of them.
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


WRITE_WEIGHTS = (1.0, 1.5, 2.0, 3.0)
"""Weights of a write: so many times as far away as that of a clean value is the next use of a dirty one that leaves."""


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


class NextUses(NamedTuple):
    """The residents that may be evicted, by their next uses: `clean` ones, and `dirty` ones that slow memory lacks.

    A dirty one leaves where its next use is more than `weight` times as many steps away as that of any clean one.
    """

    clean: MaxTree
    dirty: MaxTree
    weight: float


class Slots(NamedTuple):
    """Slots of round robin: `neurons` [slots] in them, `of` [N] their slots, `free` [slots] a stack of empty ones.

    `counters` are the number of empty slots, and the hand: the slot that is looked at next for a victim.
    """

    neurons: Ids
    of: Ids
    free: Ids
    counters: Ids


class Residents(NamedTuple):
    """The knowledge that a policy has of the residents: one of three, the others are None, and take no code.

    MIN and `writeback` know their next uses, 0 .. 2 W - 1, round robin their slots. LRU has them in a ring by last use,
    shape [2, N + 1]: the neighbours before and after each. The last entry of the ring stands between the latest and the
    oldest; at first all are the last entry.
    """

    uses: NextUses | None = None
    ring: Ids | None = None
    slots: Slots | None = None


class Setting(NamedTuple):
    """An order, and the slots it runs in; `values` [N] begin as `initial_values` says, and nothing is resident."""

    uses: Uses
    values: Ids
    slot_count: int


@compiled
def run(setting: Setting, next_uses: NextUses | None, ring: Ids | None, slots: Slots | None) -> Moved:
    """Run an order under the policy that knows one of the three, see `Residents`."""
    neurons, nexts, values = setting.uses.neurons, setting.uses.nexts, setting.values
    end, free = len(neurons), setting.slot_count
    bias_reads = row_reads = row_writes = 0
    for step in range(0, end, 2):
        for use in (step, step + 1):
            if values[neurons[use]] & _RESIDENT:
                _pin(next_uses, ring, use, _held(values, neurons[use]))
        for use in (step, step + 1):
            neuron: int = neurons[use]
            value: int = values[neuron]
            if not value & _RESIDENT:
                if free == 0:
                    row_writes += _forget(values, _evict(next_uses, ring, slots, Step(neurons, step)), False)
                    free += 1
                free -= 1
                bias_reads += (value & _BIAS_NEXT) >> 3
                row_reads += 1 - ((value & _BIAS_NEXT) >> 3)
                values[neuron] = _loaded(value)
                _place(slots, neuron)
        values[neurons[step + 1]] |= _DIRTY
        for use in (step, step + 1):
            if nexts[use] == end:
                _leave(slots, neurons[use])
                row_writes += _forget(values, neurons[use], True)
                free += 1
            else:
                _keep(next_uses, ring, nexts[use], _held(values, neurons[use]))
    return Moved(bias_reads, row_reads, row_writes)


class Step(NamedTuple):
    """The neurons of all uses, and the first use of the connection that runs."""

    neurons: Ids
    use: int


class Held(NamedTuple):
    """A resident neuron and what is known of its value."""

    neuron: int
    value: int


@compiled
def _held(values: Ids, neuron: int) -> Held:
    value: int = values[neuron]
    return Held(neuron, value)


@compiled
def _pin(next_uses: NextUses | None, ring: Ids | None, use: int, held: Held) -> None:
    """Take a resident whose next use is now from those that may be evicted."""
    if next_uses is not None:
        clear(next_uses.dirty if held.value & _DIRTY else next_uses.clean, use)
    if ring is not None:
        _unlink(ring, held.neuron)


@compiled
def _keep(next_uses: NextUses | None, ring: Ids | None, next_use: int, held: Held) -> None:
    """Put a neuron that has just been used among those that may be evicted."""
    if next_uses is not None:
        mark(next_uses.dirty if held.value & _DIRTY else next_uses.clean, next_use)
    if ring is not None:
        last = ring.shape[1] - 1
        latest = ring[0, last]
        ring[1, latest], ring[0, held.neuron] = held.neuron, latest
        ring[1, held.neuron], ring[0, last] = last, held.neuron


@compiled
def _place(slots: Slots | None, neuron: int) -> None:
    """Load a neuron into the slot that was freed last."""
    if slots is not None:
        slots.counters[0] -= 1
        slot = slots.free[slots.counters[0]]
        slots.neurons[slot], slots.of[neuron] = neuron, slot


@compiled
def _leave(slots: Slots | None, neuron: int) -> None:
    """Free the slot of a neuron that is dead or evicted."""
    if slots is not None:
        slots.free[slots.counters[0]] = slots.of[neuron]
        slots.counters[0] += 1


@compiled
def _evict(next_uses: NextUses | None, ring: Ids | None, slots: Slots | None, step: Step) -> int:
    """Choose the neuron that leaves, and take it from those that may be evicted."""
    neuron = 0
    if next_uses is not None:
        neuron = step.neurons[_least_worth(next_uses, step)]
    if ring is not None:
        neuron = ring[1, ring.shape[1] - 1]
        _unlink(ring, neuron)
    if slots is not None:
        neuron = _at_hand(slots, step.neurons[step.use], step.neurons[step.use + 1])
        _leave(slots, neuron)
    return neuron


@compiled
def _least_worth(next_uses: NextUses, step: Step) -> int:
    """The farthest next use, a write weighed; of both ends of one step that of a clean value, then the smaller id."""
    clean, dirty = _farthest(next_uses.clean, step.neurons), _farthest(next_uses.dirty, step.neurons)
    now = step.use >> 1
    if clean < 0 or (dirty >= 0 and (dirty >> 1) - now > next_uses.weight * ((clean >> 1) - now)):
        clear(next_uses.dirty, dirty)
        return dirty
    clear(next_uses.clean, clean)
    return clean


@compiled
def _farthest(uses: MaxTree, neurons: Ids) -> int:
    """The farthest use of a set, -1 for an empty one; of both ends of one step that of the smaller id."""
    if is_empty(uses):
        return -1
    use = largest(uses)
    if use & 1 and is_marked(uses, use - 1) and neurons[use - 1] < neurons[use]:
        return use - 1
    return use


@compiled
def _at_hand(slots: Slots, source: int, target: int) -> int:
    """The neuron in the slot at the hand, which goes on; those of the connection that runs are passed over."""
    while True:
        neuron = int(slots.neurons[slots.counters[1]])
        slots.counters[1] = (slots.counters[1] + 1) % len(slots.neurons)
        if neuron not in (source, target):
            return neuron


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
    slot_count = memory.capacity - 1
    runs = [run(Setting(uses, initial_values(network), slot_count), *known) for known in _residents(network, memory)]
    moved = min(runs, key=lambda one: one.row_reads + one.bias_reads + one.row_writes)
    isolated = int(np.sum(network.is_output & (network.in_degrees + network.out_degrees == 0)))
    return TransferCount(
        network.connection_count, moved.bias_reads + isolated, moved.row_reads, moved.row_writes + isolated
    )


def _residents(network: NeuronGraph, memory: Memory) -> list[Residents]:
    """The knowledge before the first step; `writeback` tries several weights, of which the best counts."""
    neuron_count, use_count = network.neuron_count, 2 * network.connection_count
    if memory.policy == "lru":
        return [Residents(ring=np.full((2, neuron_count + 1), neuron_count, dtype=np.int64))]
    if memory.policy == "rr":
        slots = np.arange(min(memory.capacity - 1, neuron_count), dtype=np.int64)
        of, counters = np.zeros(neuron_count, dtype=np.int64), np.array([len(slots), 0], dtype=np.int64)
        return [Residents(slots=Slots(slots.copy(), of, slots[::-1].copy(), counters))]
    weights = WRITE_WEIGHTS if memory.policy == "writeback" else (1.0,)
    return [Residents(uses=NextUses(empty_set(use_count), empty_set(use_count), weight)) for weight in weights]


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
def is_empty(tree: MaxTree) -> bool:
    """Whether there is no member: the last level is one word."""
    return tree.words[len(tree.words) - 1] == 0


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
