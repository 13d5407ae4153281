"""The memory machine of `theory.memory`, compiled: the same counts for the same order, some 50 million steps a second.

MIN knows the step of every next use, and at most two values have theirs at one step: the resident values are a set of
steps, and the victim is its largest member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph, check_order
from redpebble.theory.compiled import compiled
from redpebble.theory.pebbling.machine import Memory, TransferCount
from redpebble.theory.pebbling.max_tree import PlaceSet, clear, empty_place_set, is_marked, largest, mark

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


def count_transfers(
    network: NeuronGraph, order: NDArray[np.int64], memory: Memory, rng: np.random.Generator | None = None
) -> TransferCount:
    """Run the order and count, as `theory.memory.count_transfers` does.

    Args:
        network: what to run.
        order: connection ids, shape [W].
        memory: size and policy.
        rng: needed by the random policy, unused by the others.

    Raises:
        ValueError: the order is not a permutation, runs a connection before its source is final, or `rng` is missing.
    """
    return count_levels(network, order, (memory,), rng)[0]


def count_levels(
    network: NeuronGraph, order: NDArray[np.int64], memories: Sequence[Memory], rng: np.random.Generator | None = None
) -> tuple[TransferCount, ...]:
    """Count for several memories, each as if it were the only one; the order is prepared once.

    Raises:
        ValueError: as `count_transfers`.
    """
    if any(memory.policy == "random" for memory in memories) and rng is None:
        raise ValueError("the random policy needs an rng")
    if order.dtype != np.int64 or order.shape != (network.connection_count,):
        check_order(network, order)
    order, ends = np.ascontiguousarray(order), Ends(network.sources, network.targets)
    if not is_runnable(order, ends, network.in_degrees.copy(), np.zeros(len(order), dtype=np.bool_)):
        check_order(network, order)
    uses = Uses(np.empty(2 * len(order), dtype=np.int64), np.empty(2 * len(order), dtype=np.int64))
    put_uses(order, ends, uses, np.full(network.neuron_count, 2 * len(order), dtype=np.int64))
    return tuple(_count(network, uses, memory, rng) for memory in memories)


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
def run_min(uses: Uses, values: Ids, residents: PlaceSet, slots: int) -> Moved:
    """Run with MIN: the residents, at first none, are known by their next uses."""
    neurons, nexts = uses.neurons, uses.nexts
    end, free = len(neurons), slots
    bias_reads = row_reads = row_writes = 0
    for step in range(0, end, 2):
        for use in (step, step + 1):
            if values[neurons[use]] & _RESIDENT:
                clear(residents, use)
        for use in (step, step + 1):
            neuron: int = neurons[use]
            value: int = values[neuron]
            if not value & _RESIDENT:
                if free == 0:
                    farthest = _farthest(residents, neurons, values)
                    clear(residents, farthest)
                    row_writes += _forget(values, neurons[farthest], False)
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
                mark(residents, nexts[use])
    return Moved(bias_reads, row_reads, row_writes)


@compiled
def run_lru(uses: Uses, values: Ids, chain: Ids, slots: int) -> Moved:
    """Run with LRU: the residents in a ring by their last use, the last place stands between the latest and the oldest.

    `chain` [2, N + 1] are the neighbours in the ring, before and after; at first all are the last place.
    """
    neurons, nexts = uses.neurons, uses.nexts
    end, free, ring = len(neurons), slots, len(values)
    before, after = chain[0], chain[1]
    bias_reads = row_reads = row_writes = 0
    for step in range(0, end, 2):
        for use in (step, step + 1):
            if values[neurons[use]] & _RESIDENT:
                _unlink(before, after, neurons[use])
        for use in (step, step + 1):
            neuron: int = neurons[use]
            value: int = values[neuron]
            if not value & _RESIDENT:
                if free == 0:
                    oldest = after[ring]
                    _unlink(before, after, oldest)
                    row_writes += _forget(values, oldest, False)
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
                _link(before, after, neurons[use])
    return Moved(bias_reads, row_reads, row_writes)


@compiled
def run_random(uses: Uses, values: Ids, listed: Ids, slots: int, rng: np.random.Generator) -> Moved:
    """Run with random eviction in so many slots.

    `listed` [2, N] lists the residents that have been used, and has the place of each in the list, at first -1.
    """
    neurons, end, free, used_count = uses.neurons, len(uses.neurons), slots, 0
    used, places = listed[0], listed[1]
    bias_reads = row_reads = row_writes = 0
    for step in range(0, end, 2):
        for use in (step, step + 1):
            neuron: int = neurons[use]
            value: int = values[neuron]
            if not value & _RESIDENT:
                if free == 0:
                    pinned = neurons[2 * step + 1 - use]
                    victim = pinned
                    while victim == pinned:
                        victim = used[int(rng.random() * used_count)]
                    used_count = _drop(used, places, used_count, victim)
                    row_writes += _forget(values, victim, False)
                    free += 1
                free -= 1
                bias_reads += (value & _BIAS_NEXT) >> 3
                row_reads += 1 - ((value & _BIAS_NEXT) >> 3)
                values[neuron] = _loaded(value)
        values[neurons[step + 1]] |= _DIRTY
        for use in (step, step + 1):
            neuron = neurons[use]
            if places[neuron] < 0:
                used[used_count], places[neuron] = neuron, used_count
                used_count += 1
            if uses.nexts[use] == end:
                used_count = _drop(used, places, used_count, neuron)
                row_writes += _forget(values, neuron, True)
                free += 1
    return Moved(bias_reads, row_reads, row_writes)


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


@compiled
def _farthest(residents: PlaceSet, neurons: Ids, values: Ids) -> int:
    """The farthest next use; of both ends of one step that of a clean value, then of the smaller id."""
    use = largest(residents)
    if use & 1 and is_marked(residents, use - 1):
        source, target = neurons[use - 1], neurons[use]
        dirty_source, dirty_target = values[source] & _DIRTY, values[target] & _DIRTY
        if dirty_source < dirty_target or (dirty_source == dirty_target and source < target):
            return use - 1
    return use


@compiled
def _unlink(before: Ids, after: Ids, neuron: int) -> None:
    before[after[neuron]], after[before[neuron]] = before[neuron], after[neuron]


@compiled
def _link(before: Ids, after: Ids, neuron: int) -> None:
    """As the latest."""
    ring = len(before) - 1
    latest = before[ring]
    after[latest], before[neuron] = neuron, latest
    after[neuron], before[ring] = ring, neuron


@compiled
def _drop(used: Ids, places: Ids, used_count: int, neuron: int) -> int:
    """Put the last of the list in the place of a neuron; the new length."""
    place, last = places[neuron], used[used_count - 1]
    used[place], places[last], places[neuron] = last, place, -1
    return used_count - 1


def initial_values(network: NeuronGraph) -> Ids:
    """What slow memory has of each neuron before the first step, shape [N]."""
    without_incoming = network.in_degrees == 0
    values = np.where(network.is_output, _IS_OUTPUT, 0)
    values |= np.where(without_incoming & network.is_output, _DIRTY, 0)
    values |= np.where(network.is_input, 0, _BIAS_NEXT)
    values |= np.where(without_incoming & ~network.is_input, _ONLY_BIAS, 0)
    return values.astype(np.int64)


def _count(network: NeuronGraph, uses: Uses, memory: Memory, rng: np.random.Generator | None) -> TransferCount:
    values, slots, neuron_count = initial_values(network), memory.capacity - 1, network.neuron_count
    match memory.policy:
        case "min":
            moved = run_min(uses, values, empty_place_set(2 * network.connection_count), slots)
        case "lru":
            moved = run_lru(uses, values, np.full((2, neuron_count + 1), neuron_count, dtype=np.int64), slots)
        case "random":
            listed = np.full((2, neuron_count), -1, dtype=np.int64)
            moved = run_random(uses, values, listed, slots, rng or np.random.default_rng())
    isolated = int(np.sum(network.is_output & (network.in_degrees + network.out_degrees == 0)))
    return TransferCount(
        network.connection_count, moved.bias_reads + isolated, moved.row_reads, moved.row_writes + isolated
    )
