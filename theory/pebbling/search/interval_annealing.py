"""Annealing of the orders in which targets open and close, compiled: 10^5 to 10^6 proposals a second.

A move swaps two targets in the opening order, the closing order, or both. It changes the intervals of these two only,
so that the exact cost is that of their sources again, and of the two as sources if they close at another time. The
plain version that this equals, draw by draw, is the tests' `oracles/interval_annealing.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph
from ...annealing.annealing import DRAWS
from ...compiled import compiled, is_ready, one_connection
from ..orders.interval_stabbing import TargetOrders, check_target_orders, fixed_cost, natural_orders

# The intervals of all targets as arrays, and what a changed interval does to the loads of one source.
#
# Each source has a run of slots, one a target, by the time at which the target closes; the slot before them stands for
# the source itself. A slot holds its target's interval and the latest load of the source that the greedy stabbing has
# made when it is past this target. A changed target changes no load before its slot, and none behind the slot where the
# latest load is the same as it was: that is what makes a proposal cheap. The functions `*_change` only look; those that
# begin with `put` write.


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


@dataclass(frozen=True)
class StabbingMoves:
    """Largest distance of swapped targets, in positions, and the share of proposals that aim.

    An aimed move swaps a target with the neighbour, in both orders, of another target of one of its sources. The other
    proposals swap openings, closings, and both, a third each.
    """

    window: int = 200
    aimed_share: float = 0.0


class StabbingBlocks:
    """Orders of targets under swaps, a block of proposals at a time.

    Raises:
        ValueError: the start cannot be carried out.
    """

    def __init__(self, network: NeuronGraph, start: TargetOrders, moves: StabbingMoves) -> None:
        check_target_orders(network, start)
        self._network = network
        self._reach = Reach(moves.window, moves.aimed_share)
        self._intervals = intervals_of(network, start)
        self._kept = kept_of(self._intervals, fixed_cost(network) + settle(self._intervals))
        self._costs = self._kept.costs

    @property
    def cost(self) -> int:
        """Transfers of the current orders, in values."""
        return int(self._costs[0])

    @property
    def best_cost(self) -> int:
        """Transfers of the best orders, in values."""
        return int(self._costs[1])

    def run(self, draws: NDArray[np.float64], temperature: float) -> None:
        """Make one proposal for each row of draws, shape [proposals, 5]."""
        if self._kept.orders.shape[1] > 1:
            run_swaps(self._intervals, self._kept, self._reach, temperature, draws)

    def current(self) -> TargetOrders:
        """The current orders."""
        return self._as_orders(self._intervals.orders)

    def best(self) -> TargetOrders:
        """The best orders."""
        return self._as_orders(self._kept.orders)

    def go_back(self) -> None:
        """Continue from the best orders."""
        self._intervals = intervals_of(self._network, self.best())
        settle(self._intervals)
        self._costs[0] = self._costs[1]
        self._kept.noted[0] = 0

    def _as_orders(self, orders: NDArray[np.int32]) -> TargetOrders:
        opening, closing = orders.astype(np.int64)
        return TargetOrders(opening, closing, int(self._intervals.shifts[0]) + 1)


class Kept(NamedTuple):
    """The best orders [2, targets], the current and the best cost [2], and what the current orders did since the best.

    The first `noted` [1] of `exchanges` [rows, 3] say which order exchanged which two places: a new best costs what
    was exchanged, not a copy of all targets. `noted` is -1 once there were not enough rows.
    """

    orders: Ints
    costs: NDArray[np.int64]
    exchanges: Ints
    noted: NDArray[np.int64]


def kept_of(intervals: Intervals, cost: int) -> Kept:
    """The best orders before any swap."""
    orders = intervals.orders.copy()
    exchanges = np.zeros((orders.shape[1] + 2, 3), dtype=np.int32)
    return Kept(orders, np.array([cost, cost], dtype=np.int64), exchanges, np.zeros(1, dtype=np.int64))


def swaps_are_ready(is_late: Callable[[], bool]) -> bool:
    """Whether all loops of a state are compiled, if need be now, before it is late; one connection stands for all."""
    one = one_connection()
    intervals = intervals_of(one, natural_orders(one, 1))
    draws = np.zeros((1, DRAWS))
    return is_ready(settle, is_late, intervals) and is_ready(
        run_swaps, is_late, intervals, kept_of(intervals, 0), Reach(1, 0.0), 1.0, draws
    )


@compiled
def run_swaps(intervals: Intervals, kept: Kept, reach: Reach, temperature: float, draws: NDArray[np.float64]) -> None:
    """Make the proposals of draws [proposals, 5] at one temperature."""
    costs = kept.costs
    for number in range(len(draws)):
        row = draws[number]
        swap = choose_swap(intervals, reach, row)
        if swap.kind == NOTHING:
            continue
        times = times_after(intervals, swap)
        if not is_allowed(intervals, swap, times):
            continue
        # Above this no draw accepts; the one more is for rounding.
        limit = int(min(-temperature * np.log(max(row[4], 1e-300)), 1e9)) + 1
        change = change_of(intervals, swap, times, limit)
        if change > 0 and row[4] >= np.exp(-change / temperature):
            continue
        _note(intervals, kept, swap)
        put_swap(intervals, swap, times)
        costs[0] += change
        if costs[0] < costs[1]:
            costs[1] = costs[0]
            _keep(intervals.orders, kept)


@compiled
def _note(intervals: Intervals, kept: Kept, swap: Swap) -> None:
    """Note what a swap is about to exchange."""
    if kept.noted[0] + 2 > len(kept.exchanges):
        kept.noted[0] = -1
    for which in range(2):
        if swap.kind in (which, BOTH) and kept.noted[0] >= 0:
            row, positions = kept.exchanges[kept.noted[0]], intervals.positions[which]
            row[0], row[1], row[2] = which, positions[swap.first], positions[swap.second]
            kept.noted[0] += 1


@compiled
def _keep(orders: Ints, kept: Kept) -> None:
    """Make the current orders [2, targets] the best ones."""
    best = kept.orders
    if kept.noted[0] < 0:
        for position in range(orders.shape[1]):
            best[0, position], best[1, position] = orders[0, position], orders[1, position]
    for number in range(kept.noted[0]):
        row = kept.exchanges[number]
        order = best[row[0]]
        order[row[1]], order[row[2]] = order[row[2]], order[row[1]]
    kept.noted[0] = 0


# Swaps of two targets in the opening order, the closing order, or both: choosing, weighing and carrying out.

OPENINGS, CLOSINGS, BOTH, NOTHING = 0, 1, 2, -1
# The mark of a source of both targets whose change is known; other marks are slots.
SHARED = -1


class Swap(NamedTuple):
    """A kind and two targets, the first of which closes first before the swap."""

    kind: int
    first: int
    second: int


class Reach(NamedTuple):
    """Rules by which swaps are chosen: see `theory.pebbling.search.interval_annealing.StabbingMoves`."""

    window: int
    aimed_share: float


class Interval(NamedTuple):
    """Positions at which a target opens and closes."""

    opens: int
    closes: int


class Times(NamedTuple):
    """The intervals of both targets of a swap when it is carried out."""

    first_opens: int
    first_closes: int
    second_opens: int
    second_closes: int


@compiled
def choose_swap(intervals: Intervals, reach: Reach, draws: NDArray[np.float64]) -> Swap:
    """The swap that a row of draws [DRAWS] chooses."""
    if draws[0] < reach.aimed_share:
        return _aimed_swap(intervals, draws)
    kind = int(3 * (draws[0] - reach.aimed_share) / (1 - reach.aimed_share))
    order = intervals.orders[min(kind, 1)]
    position = int(draws[1] * len(order))
    offset = 1 + int(draws[2] * reach.window)
    other = position + (offset if draws[3] < 0.5 else -offset)
    if not 0 <= other < len(order):
        return Swap(NOTHING, 0, 0)
    return _ordered(intervals, Swap(kind, wide(order[position]), wide(order[other])))


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
    position = intervals.positions[1, near] + (1 if scaled % 1.0 < 0.5 else -1)
    if near == one or not 0 <= position < len(closing) or closing[position] == one:
        return Swap(NOTHING, 0, 0)
    return _ordered(intervals, Swap(BOTH, wide(one), wide(closing[position])))


@compiled
def _ordered(intervals: Intervals, swap: Swap) -> Swap:
    closed = intervals.positions[1]
    if closed[swap.first] < closed[swap.second]:
        return swap
    return Swap(swap.kind, swap.second, swap.first)


@compiled
def times_after(intervals: Intervals, swap: Swap) -> Times:
    """Positions at which both targets open and close after the swap."""
    opened, closed, shift = intervals.positions[0], intervals.positions[1], intervals.shifts[0]
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
    closed, entries = intervals.positions[1], intervals.entries
    for entry in range(in_starts[swap.second], in_starts[swap.second + 1]):
        if closed[entries[entry, SOURCE]] >= times.second_closes:
            return False
    return True


@compiled
def change_of(intervals: Intervals, swap: Swap, times: Times, limit: int) -> int:
    """The change of cost, over all sources of both targets and both as sources; a part of it if above the limit.

    A target that is no reason for a load of a source can leave that source's targets without a change; what its new
    interval then adds is 0 or 1, and 0 if it holds the old one. So those come last, as long as the limit allows.
    """
    marks, entries, in_starts = intervals.marks, intervals.entries, intervals.in_starts
    change = 0
    if swap.kind != OPENINGS:
        change += _source_change(intervals, swap.first, times.first_closes, False)
        change += _source_change(intervals, swap.second, times.second_closes, False)
    for entry in range(in_starts[swap.first], in_starts[swap.first + 1]):
        marks[entries[entry, SOURCE]] = entries[entry, SLOT]
    for entry in range(in_starts[swap.second], in_starts[swap.second + 1]):
        source = entries[entry, SOURCE]
        if marks[source] != 0:
            spans = _both_spans(intervals, source, entry, times)
            change += _shared_change(intervals, spans[0], spans[1], swap.kind, False)
            marks[source] = SHARED
    first = Interval(times.first_opens, times.first_closes)
    second = Interval(times.second_opens, times.second_closes)
    change += _part_change(intervals, swap.second, second, True, limit)
    change += _part_change(intervals, swap.first, first, True, limit)
    if change <= limit:
        change += _part_change(intervals, swap.second, second, False, limit - change)
    if change <= limit:
        change += _part_change(intervals, swap.first, first, False, limit - change)
    for entry in range(in_starts[swap.first], in_starts[swap.first + 1]):
        marks[entries[entry, SOURCE]] = 0
    return change


@compiled
def _part_change(intervals: Intervals, target: int, interval: Interval, defines: bool, limit: int) -> int:
    """Change of loads at the sources of one target: those that it is a reason for a load of, or others to a limit."""
    opens, closes = interval.opens, interval.closes
    entries, marks, out_starts = intervals.entries, intervals.marks, intervals.out_starts
    opened, closed = intervals.positions[0, target], intervals.positions[1, target]
    change = 0
    if not defines and opens <= max(0, opened - intervals.shifts[0]) and closes >= closed:
        return 0
    for entry in range(intervals.in_starts[target], intervals.in_starts[target + 1]):
        source = entries[entry, SOURCE]
        if (entries[entry, DEFINES] != 0) == defines and marks[source] != SHARED:
            span = Span(wide(entries[entry, SLOT]), wide(out_starts[source + 1]), opens, closes)
            change += _single_change(intervals, source, span, False)
            if not defines and change > limit:
                return change
    return change


@compiled
def _both_spans(intervals: Intervals, source: int, entry: int, times: Times) -> tuple[Span, Span]:
    """Return the spans of a source of both targets; its mark is the slot of the first, the entry that of the second."""
    end = wide(intervals.out_starts[source + 1])
    first = Span(wide(intervals.marks[source]), end, times.first_opens, times.first_closes)
    return first, Span(wide(intervals.entries[entry, SLOT]), end, times.second_opens, times.second_closes)


@compiled
def _put_changes(intervals: Intervals, swap: Swap, times: Times) -> None:
    """Write the changes of all sources to their slots."""
    marks, entries = intervals.marks, intervals.entries
    in_starts, out_starts = intervals.in_starts, intervals.out_starts
    for entry in range(in_starts[swap.first], in_starts[swap.first + 1]):
        marks[entries[entry, SOURCE]] = entries[entry, SLOT]
    for entry in range(in_starts[swap.second], in_starts[swap.second + 1]):
        source = entries[entry, SOURCE]
        spans = _both_spans(intervals, source, entry, times)
        if marks[source] == 0:
            _single_change(intervals, source, spans[1], True)
        else:
            _shared_change(intervals, spans[0], spans[1], swap.kind, True)
            marks[source] = 0
    for entry in range(in_starts[swap.first], in_starts[swap.first + 1]):
        source = entries[entry, SOURCE]
        if marks[source] != 0:
            marks[source] = 0
            span = Span(wide(entries[entry, SLOT]), wide(out_starts[source + 1]), times.first_opens, times.first_closes)
            _single_change(intervals, source, span, True)
    if swap.kind != OPENINGS:
        _source_change(intervals, swap.first, times.first_closes, True)
        _source_change(intervals, swap.second, times.second_closes, True)


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
def _shared_change(intervals: Intervals, one: Span, other: Span, kind: int, puts: bool) -> int:
    """Both targets belong to the source: their slots exchange openings, or everything; then no load changes."""
    source = intervals.entries[intervals.slots[one.slot, ENTRY], SOURCE]
    first, second = one, other
    if kind != OPENINGS:
        first = Span(one.slot, one.end, other.opens, other.closes)
        second = Span(other.slot, other.end, one.opens, one.closes)
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
        put_points(intervals, first, first, end)
    return _cost_change(intervals, source, loads, puts)


@compiled
def _cost_change(intervals: Intervals, source: int, change: int, puts: bool) -> int:
    """Cost with the write that makes loads of a hidden value possible."""
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
    _put_changes(intervals, swap, times)
    for which in range(2):
        if swap.kind in (which, BOTH):
            positions, order = intervals.positions[which], intervals.orders[which]
            positions[swap.first], positions[swap.second] = positions[swap.second], positions[swap.first]
            order[positions[swap.first]], order[positions[swap.second]] = swap.first, swap.second
