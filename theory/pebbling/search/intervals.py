"""The intervals of all targets as arrays, and what a changed interval does to the loads of one source.

Each source has a run of slots, one a target, by the time at which the target closes; the slot before them stands for
the source itself. A slot holds its target's interval and the latest load of the source that the greedy stabbing has
made when it is past this target. A changed target changes no load before its slot, and none behind the slot where the
latest load is the same as it was: that is what makes a proposal cheap. The functions `*_change` only look; those that
begin with `put` write.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph
from ...compiled import compiled
from ..orders.interval_stabbing import TargetOrders

Ints = NDArray[np.int32]

# Columns of a slot: its target's interval, the latest load past it, and its entry.
START, END, POINT, ENTRY = 0, 1, 2, 3
# Columns of an entry: the source of a connection, its slot there, whether its target is the reason for a load: the load
# comes when this target closes. The entries of a target follow each other.
SOURCE, SLOT, DEFINES = 0, 1, 2


class Intervals(NamedTuple):
    """The state of a search over target orders.

    `orders` and `positions` [2, targets], [2, N] hold opening and closing; the slots of source n begin behind
    `out_starts[n]`, the entries of target n at `in_starts[n]`; `targets` are those of each source by connection id;
    `loads` are those of each source, `write_costs` what any of them cost it once; `marks` are zero between proposals;
    `shifts` is open_count - 1.
    """

    orders: Ints
    positions: Ints
    slots: Ints
    out_starts: Ints
    entries: Ints
    in_starts: Ints
    targets: Ints
    loads: Ints
    write_costs: Ints
    marks: Ints
    shifts: Ints


def intervals_of(network: NeuronGraph, orders: TargetOrders) -> Intervals:
    """The state of orders that can be carried out; loads are not counted yet."""
    starts, ends = orders.interval_starts(network.neuron_count), orders.interval_ends(network.neuron_count)
    opened = np.full(network.neuron_count, -2, dtype=np.int32)
    opened[orders.opening] = np.arange(len(orders.opening))
    incoming, outgoing = network.incoming, network.outgoing
    neurons = np.arange(network.neuron_count + 1)
    out_starts = outgoing.pointers + neurons
    by_end = np.lexsort((ends[network.targets], network.sources))
    slots = np.zeros((network.connection_count + network.neuron_count, 4), dtype=np.int32)
    slots[out_starts[:-1], END] = -1
    slots[out_starts[:-1], POINT] = ends + 1
    of_sorted = np.arange(network.connection_count) + network.sources[by_end] + 1
    slots[of_sorted, START], slots[of_sorted, END] = starts[network.targets[by_end]], ends[network.targets[by_end]]
    slot_of_connection = np.empty(network.connection_count, dtype=np.int64)
    slot_of_connection[by_end] = of_sorted
    entries = np.zeros((network.connection_count, 3), dtype=np.int32)
    entries[:, SOURCE] = network.sources[incoming.indices]
    entries[:, SLOT] = slot_of_connection[incoming.indices]
    slots[entries[:, SLOT], ENTRY] = np.arange(network.connection_count)
    is_target = network.in_degrees > 0
    return Intervals(
        orders=np.stack((orders.opening, orders.closing)).astype(np.int32),
        positions=np.stack((opened, ends)).astype(np.int32),
        slots=slots,
        out_starts=out_starts.astype(np.int32),
        entries=entries,
        in_starts=incoming.pointers.astype(np.int32),
        targets=network.targets[outgoing.indices].astype(np.int32),
        loads=np.zeros(network.neuron_count, dtype=np.int32),
        write_costs=(is_target & ~network.is_output).astype(np.int32),
        marks=np.zeros(network.neuron_count, dtype=np.int32),
        shifts=np.array([orders.open_count - 1], dtype=np.int32),
    )


@compiled
def wide(number: int | Ints) -> int:
    """A 32-bit number in 64 bits: tuples of both would be of different types."""
    return int(number) + 0


class Span(NamedTuple):
    """A new interval for the target at a slot of a source whose last slot is before `end`."""

    slot: int
    end: int
    opens: int
    closes: int


@compiled
def settle(intervals: Intervals) -> int:
    """Count the loads of all sources from nothing; their cost."""
    slots, cost = intervals.slots, 0
    for source in range(len(intervals.loads)):
        first, end = intervals.out_starts[source] + 1, intervals.out_starts[source + 1]
        point = slots[first - 1, POINT]
        loads = 0
        for slot in range(first, end):
            defines = slots[slot, START] > point
            if defines:
                point = slots[slot, END]
                loads += 1
            slots[slot, POINT] = point
            intervals.entries[slots[slot, ENTRY], DEFINES] = defines
        intervals.loads[source] = loads
        cost += loads + (intervals.write_costs[source] if loads > 0 else 0)
    return cost


@compiled
def rest_change(slots: Ints, slot: int, end: int, point: int) -> int:
    """Change of loads from a slot on, if the latest load before it is at `point`."""
    change = 0
    before = slots[slot - 1, POINT]
    while slot < end and before != point:
        if slots[slot, START] > point:
            point = slots[slot, END]
            change += 1
        after = slots[slot, POINT]
        change -= int(after != before)
        before = after
        slot += 1
    return change


@compiled
def start_change(slots: Ints, span: Span) -> int:
    """Change of loads if a target opens at another time."""
    before, after = slots[span.slot - 1, POINT], slots[span.slot, POINT]
    loads = span.opens > before
    if loads == (after != before):
        return 0
    if loads:
        return 1 + rest_change(slots, span.slot + 1, span.end, span.closes)
    return rest_change(slots, span.slot + 1, span.end, before) - 1


@compiled
def later_change(slots: Ints, span: Span) -> int:
    """Change of loads if a target closes later, and opens at another time."""
    slot, point = span.slot + 1, slots[span.slot - 1, POINT]
    before = slots[span.slot, POINT]
    change = -int(before != point)
    while slot < span.end and slots[slot, END] < span.closes:
        if slots[slot, START] > point:
            point = slots[slot, END]
            change += 1
        after = slots[slot, POINT]
        change -= int(after != before)
        before = after
        slot += 1
    if span.opens > point:
        point = span.closes
        change += 1
    return change + rest_change(slots, slot, span.end, point)


@compiled
def earlier_change(slots: Ints, span: Span) -> int:
    """Change of loads if a target closes earlier, and opens at another time."""
    slot = span.slot
    while slots[slot - 1, END] > span.closes:
        slot -= 1
    before = point = slots[slot - 1, POINT]
    change = 0
    if span.opens > point:
        point = span.closes
        change += 1
    while slot < span.slot:
        if slots[slot, START] > point:
            point = slots[slot, END]
            change += 1
        after = slots[slot, POINT]
        change -= int(after != before)
        before = after
        slot += 1
    change -= int(slots[slot, POINT] != before)
    return change + rest_change(slots, slot + 1, span.end, point)


@compiled
def both_change(slots: Ints, first: Span, second: Span) -> int:
    """Change of loads if the targets at two slots of one source open at other times."""
    before = point = slots[first.slot - 1, POINT]
    change = 0
    for slot in range(first.slot, second.slot + 1):
        start = slots[slot, START]
        if slot == first.slot:
            start = first.opens
        elif slot == second.slot:
            start = second.opens
        if start > point:
            point = slots[slot, END]
            change += 1
        after = slots[slot, POINT]
        change -= int(after != before)
        before = after
    return change + rest_change(slots, second.slot + 1, second.end, point)


@compiled
def put_points(intervals: Intervals, first: int, last: int, end: int) -> None:
    """Write the loads from one slot to another, and on while they differ from what was there."""
    slots, entries = intervals.slots, intervals.entries
    point = slots[first - 1, POINT]
    for slot in range(first, end):
        defines = slots[slot, START] > point
        if defines:
            point = slots[slot, END]
        entries[slots[slot, ENTRY], DEFINES] = defines
        if slot > last and slots[slot, POINT] == point:
            return
        slots[slot, POINT] = point


@compiled
def put_slot(intervals: Intervals, span: Span) -> None:
    """Give the target at a slot another interval: its slot moves to where its closing time belongs."""
    slots, entries = intervals.slots, intervals.entries
    slot, entry = span.slot, slots[span.slot, ENTRY]
    while slot + 1 < span.end and slots[slot + 1, END] < span.closes:
        _move_slot(slots, entries, slot + 1, slot)
        slot += 1
    while slots[slot - 1, END] > span.closes:
        _move_slot(slots, entries, slot - 1, slot)
        slot -= 1
    slots[slot, START], slots[slot, END], slots[slot, ENTRY] = span.opens, span.closes, entry
    entries[entry, SLOT] = slot
    put_points(intervals, min(slot, span.slot), max(slot, span.slot), span.end)


@compiled
def put_both(intervals: Intervals, first: Span, second: Span, exchanges: bool) -> None:
    """Open the targets at two slots of one source at other times; if asked, they exchange their slots before."""
    slots, entries = intervals.slots, intervals.entries
    if exchanges:
        one, other = slots[first.slot, ENTRY], slots[second.slot, ENTRY]
        slots[first.slot, ENTRY], slots[second.slot, ENTRY] = other, one
        entries[one, SLOT], entries[other, SLOT] = second.slot, first.slot
    slots[first.slot, START], slots[second.slot, START] = first.opens, second.opens
    put_points(intervals, first.slot, second.slot, second.end)


@compiled
def _move_slot(slots: Ints, entries: Ints, slot: int, to: int) -> None:
    """Interval without the point, which is that of the slot."""
    slots[to, START], slots[to, END], slots[to, ENTRY] = slots[slot, START], slots[slot, END], slots[slot, ENTRY]
    entries[slots[slot, ENTRY], SLOT] = to
