"""Swaps of two targets in the opening order, the closing order, or both: choosing, weighing and carrying out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from redpebble.search.compiled import compiled
from redpebble.search.intervals import (
    END,
    ENTRY,
    POINT,
    SLOT,
    SOURCE,
    Intervals,
    Span,
    both_change,
    earlier_change,
    later_change,
    put_both,
    put_points,
    put_slot,
    rest_change,
    start_change,
    wide,
)

OPENINGS, CLOSINGS, BOTH, NOTHING = 0, 1, 2, -1


class Swap(NamedTuple):
    """A kind and two targets, the first of which closes first before the swap."""

    kind: int
    first: int
    second: int


class Reach(NamedTuple):
    """How swaps are chosen: see `theory.stabbing_state.StabbingMoves`; and open_count - 1."""

    window: int
    aimed_share: float
    shift: int


class Times(NamedTuple):
    """The intervals of both targets of a swap when it is carried out."""

    first_opens: int
    first_closes: int
    second_opens: int
    second_closes: int


@compiled
def choose_swap(intervals: Intervals, reach: Reach, draws: NDArray[np.float64]) -> Swap:
    """The swap that the draws choose."""
    if draws[0] < reach.aimed_share:
        return _aimed_swap(intervals, draws)
    kind = int(3 * (draws[0] - reach.aimed_share) / (1 - reach.aimed_share))
    order = intervals.orders[min(kind, 1)]
    place = int(draws[1] * len(order))
    offset = 1 + int(draws[2] * reach.window)
    other = place + (offset if draws[3] < 0.5 else -offset)
    if not 0 <= other < len(order):
        return Swap(NOTHING, 0, 0)
    return _ordered(intervals, Swap(kind, wide(order[place]), wide(order[other])))


@compiled
def _aimed_swap(intervals: Intervals, draws: NDArray[np.float64]) -> Swap:
    """Both orders: a target and a neighbour, in the closing order, of another target of one of its sources."""
    closing, entries, in_starts = intervals.orders[1], intervals.entries, intervals.in_starts
    one = closing[int(draws[1] * len(closing))]
    degree = in_starts[one + 1] - in_starts[one]
    source = entries[in_starts[one] + int(draws[2] * degree), SOURCE]
    first, end = intervals.out_starts[source] - source, intervals.out_starts[source + 1] - source - 1
    scaled = draws[3] * (end - first)
    near = intervals.targets[first + int(scaled)]
    place = intervals.places[1, near] + (1 if scaled % 1.0 < 0.5 else -1)
    if near == one or not 0 <= place < len(closing) or closing[place] == one:
        return Swap(NOTHING, 0, 0)
    return _ordered(intervals, Swap(BOTH, wide(one), wide(closing[place])))


@compiled
def _ordered(intervals: Intervals, swap: Swap) -> Swap:
    closed = intervals.places[1]
    if closed[swap.first] < closed[swap.second]:
        return swap
    return Swap(swap.kind, swap.second, swap.first)


@compiled
def times_after(intervals: Intervals, swap: Swap, shift: int) -> Times:
    """When both targets open and close after the swap."""
    opened, closed = intervals.places[0], intervals.places[1]
    first_opens, second_opens = max(0, wide(opened[swap.first]) - shift), max(0, wide(opened[swap.second]) - shift)
    first_closes, second_closes = wide(closed[swap.first]), wide(closed[swap.second])
    if swap.kind != CLOSINGS:
        first_opens, second_opens = second_opens, first_opens
    if swap.kind != OPENINGS:
        first_closes, second_closes = second_closes, first_closes
    return Times(first_opens, first_closes, second_opens, second_closes)


@compiled
def is_allowed(intervals: Intervals, swap: Swap, times: Times) -> bool:
    """Both open before they close; the one that closes later now before its targets, the other behind its sources."""
    if times.first_opens > times.first_closes or times.second_opens > times.second_closes:
        return False
    if swap.kind == OPENINGS:
        return True
    out_starts, in_starts = intervals.out_starts, intervals.in_starts
    slot = out_starts[swap.first] + 1
    if slot < out_starts[swap.first + 1] and intervals.slots[slot, END] <= times.first_closes:
        return False
    closed, entries = intervals.places[1], intervals.entries
    for entry in range(in_starts[swap.second], in_starts[swap.second + 1]):
        if closed[entries[entry, SOURCE]] >= times.second_closes:
            return False
    return True


@compiled
def change_of(intervals: Intervals, swap: Swap, times: Times, puts: bool) -> int:
    """The change of cost, over all sources of both targets and both as sources; if asked, it is written to the slots.

    Whoever writes must change `orders` and `places` afterwards.
    """
    marks, entries, in_starts, out_starts = (
        intervals.marks,
        intervals.entries,
        intervals.in_starts,
        intervals.out_starts,
    )
    change = 0
    for entry in range(in_starts[swap.first], in_starts[swap.first + 1]):
        marks[entries[entry, SOURCE]] = entries[entry, SLOT]
    for entry in range(in_starts[swap.second], in_starts[swap.second + 1]):
        source = entries[entry, SOURCE]
        span = Span(wide(entries[entry, SLOT]), wide(out_starts[source + 1]), times.second_opens, times.second_closes)
        if marks[source] == 0:
            change += _single_change(intervals, source, span, puts)
        else:
            first = Span(wide(marks[source]), span.end, times.first_opens, times.first_closes)
            change += _shared_change(intervals, (first, span), swap.kind, puts)
            marks[source] = 0
    for entry in range(in_starts[swap.first], in_starts[swap.first + 1]):
        source = entries[entry, SOURCE]
        if marks[source] != 0:
            marks[source] = 0
            span = Span(wide(entries[entry, SLOT]), wide(out_starts[source + 1]), times.first_opens, times.first_closes)
            change += _single_change(intervals, source, span, puts)
    if swap.kind != OPENINGS:
        change += _source_change(intervals, swap.first, times.first_closes, puts)
        change += _source_change(intervals, swap.second, times.second_closes, puts)
    return change


@compiled
def _single_change(intervals: Intervals, source: int, span: Span, puts: bool) -> int:
    """Only one of both targets belongs to the source."""
    slots = intervals.slots
    closed = slots[span.slot, END]
    if closed == span.closes:
        loads = start_change(slots, span)
    elif closed < span.closes:
        loads = later_change(slots, span)
    else:
        loads = earlier_change(slots, span)
    if puts:
        put_slot(intervals, span)
    return _cost_change(intervals, source, loads, puts)


@compiled
def _shared_change(intervals: Intervals, spans: tuple[Span, Span], kind: int, puts: bool) -> int:
    """Both targets belong to the source: their slots exchange openings, or everything; then no load changes."""
    first, second = spans
    source = intervals.entries[intervals.slots[first.slot, ENTRY], SOURCE]
    if kind != OPENINGS:
        first = Span(first.slot, first.end, spans[1].opens, spans[1].closes)
        second = Span(second.slot, second.end, spans[0].opens, spans[0].closes)
    loads = 0 if kind == BOTH else both_change(intervals.slots, first, second)
    if puts:
        put_both(intervals, first, second, kind != OPENINGS)
    return _cost_change(intervals, source, loads, puts)


@compiled
def _source_change(intervals: Intervals, source: int, closes: int, puts: bool) -> int:
    """The source itself closes at another time, and its free use with it."""
    slots, first, end = intervals.slots, intervals.out_starts[source] + 1, intervals.out_starts[source + 1]
    loads = rest_change(slots, first, end, closes + 1)
    if puts:
        slots[first - 1, POINT] = closes + 1
        put_points(slots, first, first, end)
    return _cost_change(intervals, source, loads, puts)


@compiled
def _cost_change(intervals: Intervals, source: int, change: int, puts: bool) -> int:
    """With the write that makes loads of a hidden value possible."""
    if change == 0:
        return 0
    before = intervals.loads[source]
    after = before + change
    if puts:
        intervals.loads[source] = after
    return change + intervals.write_costs[source] * (int(after > 0) - int(before > 0))


@compiled
def put_swap(intervals: Intervals, swap: Swap, times: Times) -> None:
    """Carry a swap out."""
    change_of(intervals, swap, times, True)
    for which in range(2):
        if swap.kind in (which, BOTH):
            places, order = intervals.places[which], intervals.orders[which]
            places[swap.first], places[swap.second] = places[swap.second], places[swap.first]
            order[places[swap.first]], order[places[swap.second]] = swap.first, swap.second
