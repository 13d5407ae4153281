"""Traffic of schedules of a chain of layers between the caches: groups depth first, the other layers one by one.

Accesses to rows are counted one by one, for tiles of several widths at once; counts are cached by group, so that a
schedule that differs from another in one group only counts that group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.tile_costs import TileTraffic
from ...sparse.csr import CsrPattern, Indices
from ...sparse.neuron_graph import NEIGHBOURS, chain_graph
from ..compiled import compiled
from .depth_first_order import Blocks, DepthFirstOrder, PositionedGraph, order_neurons, positioned_graph

# An order of blocks of outputs in which each needs the fewest values that are not there yet.
#
# Work for one block alone is the same in any order; a value shared with earlier blocks is there, and may leave after
# its last reader. This is the growth of `redpebble.theory.pebbling.orders.compact_growth` by blocks
# instead of neurons, for schedules with slots. It looks at neurons once for each block that depends on them.


MOST_DEPENDENCES: Final = 24
"""Blocks that a neuron has an effect on, in the mean, up to which an order is looked for."""


def nearest_next(graph: PositionedGraph, block: int, first: int) -> tuple[int, ...] | None:
    """Return the order of blocks of so many outputs that begins with one; None where all depend on everything.

    Of blocks that need equally few, the one nearest behind the last one is next.
    """
    neurons, outputs = len(graph.positions), graph.outputs
    count, room = -(-len(outputs) // block), MOST_DEPENDENCES * neurons
    cones, ends = np.empty(room, dtype=np.int32), np.zeros(count + 1, dtype=np.int64)
    marks = _Marks(np.full(neurons, -1, dtype=np.int64), np.empty(neurons + 1, dtype=np.int64))
    if not _find_cones(outputs, block, graph.incoming, CsrPattern(ends, cones, neurons), marks):
        return None
    found = CsrPattern(ends, cones[: ends[-1]], neurons)
    order, there = np.empty(count, dtype=np.int64), np.zeros(neurons, dtype=np.bool_)
    order[0] = first
    _take_nearest(found, found.transposed(), found.lengths, there, order)
    return tuple(order.tolist())


class _Marks(NamedTuple):
    """The last block that has seen each neuron, -1 for none, and a stack of neurons."""

    seen: Indices
    stack: Indices


@compiled
def _find_cones(outputs: Indices, block: int, incoming: CsrPattern, found: CsrPattern[np.int32], marks: _Marks) -> bool:
    """Write the neurons that each block depends on [blocks, neurons]; return whether there is room."""
    pointers, sources = incoming.pointers, incoming.indices
    cones, ends = found.indices, found.pointers
    seen, stack = marks.seen, marks.stack
    done = 0
    for number in range(len(ends) - 1):
        depth = 0
        for rank in range(number * block, min((number + 1) * block, len(outputs))):
            output = outputs[rank]
            if seen[output] != number:
                seen[output] = number
                stack[depth] = output
                depth += 1
        while depth > 0:
            depth -= 1
            neuron = stack[depth]
            if done == len(cones):
                return False
            cones[done] = neuron
            done += 1
            for entry in range(pointers[neuron], pointers[neuron + 1]):
                source = sources[entry]
                if seen[source] != number:
                    seen[source] = number
                    stack[depth] = source
                    depth += 1
        ends[number + 1] = done
    return True


@compiled
def _take_nearest(
    cones: CsrPattern[np.int32],
    readers: CsrPattern[np.int32],
    missing: Indices,
    there: NDArray[np.bool_],
    order: Indices,
) -> None:
    """Write the order that begins with order[0]; `missing` is the number of values each block lacks."""
    neurons, ends = cones.indices, cones.pointers
    blocks, starts = readers.indices, readers.pointers
    count, chosen = len(order), order[0]
    for rank in range(count):
        if rank > 0:
            last, best = chosen, -1
            for step in range(1, count):
                number = (last + step) % count
                if missing[number] >= 0 and (best < 0 or missing[number] < missing[best]):
                    best = number
            chosen = best
        order[rank] = chosen
        missing[chosen] = -1
        for entry in range(ends[chosen], ends[chosen + 1]):
            neuron = neurons[entry]
            if there[neuron]:
                continue
            there[neuron] = True
            for other in range(starts[neuron], starts[neuron + 1]):
                number = blocks[other]
                if missing[number] >= 0:
                    missing[number] -= 1


NEAR_SHARE: Final = 0.85
"""Share of the first-level cache that holds rows: lines are in the way of others."""

FAR_SHARE: Final = 0.65
"""Share of the second-level cache that holds rows: weights, and rows on their way in and out, pass through it."""

POSITIONS_NS: Final = 250.0
ORDER_NS: Final = 300.0
TRAFFIC_NS: Final = 30.0
NEAREST_NS: Final = 300.0
"""A connection, of finding positions, an order, what moves at one width, and an order of blocks."""

FIXED_NS: Final = 1e6
"""Time of every counting."""


class Caches(NamedTuple):
    """Bytes of the caches of a core."""

    l1_bytes: int
    l2_bytes: int


class Group(NamedTuple):
    """Layers from one number up to another, excluded, that run depth first in blocks of so many outputs.

    `blocks` is the order of these; where it is empty, as their outputs follow each other along the network. With
    `levels`, so many levels of a block run part by part.
    """

    first: int
    end: int
    block: int
    blocks: tuple[int, ...] = ()
    levels: int = 0


class TransposedEnds(NamedTuple):
    """Whether a group transposes the rows that come in, and those that leave, by itself."""

    inputs: bool
    outputs: bool


class GroupCost(NamedTuple):
    """The slots that a group needs, what it moves by the width of the tile, and which rows it transposes."""

    slots: int
    traffic: Mapping[int, TileTraffic]
    transposed: TransposedEnds


@dataclass(eq=False)
class ScheduleCosts:
    """The costs of groups of layers of a chain, for caches and tiles of some widths in batch columns."""

    layers: Sequence[CsrPattern]
    caches: Caches
    widths: Sequence[int]
    value_bytes: int = 4
    """Bytes of a value: of a float, or of a code."""
    counted_ns: float = 0.0
    """Nanoseconds that the counting so far takes, about."""
    _slots: dict[Group, int] = field(default_factory=dict[Group, int])
    _groups: dict[Group, GroupCost] = field(default_factory=dict[Group, GroupCost])
    _one_by_one: dict[tuple[int, int], Mapping[int, TileTraffic]] = field(
        default_factory=dict[tuple[int, int], Mapping[int, TileTraffic]]
    )
    _graph: tuple[tuple[int, int], PositionedGraph] | None = None
    """The last one: the next group often has the same layers."""

    _found: tuple[Group, DepthFirstOrder] | None = None
    """Order of the group asked for last: what the group moves is often asked for next."""

    def found(self, group: Group) -> DepthFirstOrder:
        """Return the order and the slots of a group."""
        if self._found is None or self._found[0] != group:
            blocks = Blocks(group.block, group.blocks, group.levels, group.first == 0)
            self._found = group, order_neurons(self._positioned(group.first, group.end), blocks)
        return self._found[1]

    def nearest_next(self, group: Group, first: int) -> tuple[int, ...] | None:
        """Return the order of a group's blocks in which each needs the fewest new values; None where there is none."""
        graph = self._positioned(group.first, group.end)
        self.counted_ns += NEAREST_NS * len(graph.incoming.indices)
        return nearest_next(graph, group.block, first)

    def block_count(self, group: Group) -> int:
        """Return the number of blocks of a group."""
        return -(-self.layers[group.end - 1].row_count // group.block)

    def slots(self, group: Group) -> int:
        """Return the slots that a group needs, which is known sooner than what it moves."""
        if group not in self._slots:
            self.counted_ns += ORDER_NS * sum(len(layer.indices) for layer in self.layers[group.first : group.end])
            self._slots[group] = self.found(group).slot_count
        return self._slots[group]

    def group(self, group: Group) -> GroupCost:
        """Return the traffic of a group."""
        if group not in self._groups:
            graph, found = self._positioned(group.first, group.end), self.found(group)
            accesses = _slot_accesses(graph, found)
            transposed = self._transposed(group, found)
            moved = _moved(transposed, graph, found)
            self._groups[group] = GroupCost(found.slot_count, self._traffic(accesses, moved), transposed)
            self.counted_ns += ORDER_NS * len(graph.incoming.indices)
        return self._groups[group]

    def _transposed(self, group: Group, found: DepthFirstOrder) -> TransposedEnds:
        first, last = self.layers[group.first], self.layers[group.end - 1]
        if self.value_bytes < 4:
            return TransposedEnds(inputs=False, outputs=False)  # bytes are transposed as words, all at once
        return TransposedEnds(
            found.inputs_grouped and group.first == 0 and first.column_count % NEIGHBOURS == 0,
            found.outputs_grouped and group.end == len(self.layers) and last.row_count % NEIGHBOURS == 0,
        )

    def one_by_one(self, first: int, end: int) -> Mapping[int, TileTraffic]:
        """Return the traffic of layers that run one by one, by the width of the tile."""
        if (first, end) not in self._one_by_one:
            self._one_by_one[first, end] = self._traffic(_layer_accesses(self.layers[first:end]), 0)
        return self._one_by_one[first, end]

    def _traffic(self, accesses: _Accesses, moved: int) -> Mapping[int, TileTraffic]:
        self.counted_ns += FIXED_NS + TRAFFIC_NS * len(accesses.rows) * len(self.widths)
        return {width: self._traffic_at(accesses, moved, width) for width in self.widths}

    def _traffic_at(self, accesses: _Accesses, moved: int, width: int) -> TileTraffic:
        row, neurons = self.value_bytes * width, int(accesses.changed.sum())
        near, far = (
            row_traffic(accesses.rows, accesses.changed, int(share * size) // row).total
            for share, size in ((NEAR_SHARE, self.caches.l1_bytes), (FAR_SHARE, self.caches.l2_bytes))
        )
        scattered = row * far if accesses.are_slots else 0
        return TileTraffic(len(accesses.rows) - neurons, row * near, row * (far + moved), neurons, scattered)

    def _positioned(self, first: int, end: int) -> PositionedGraph:
        if self._graph is None or self._graph[0] != (first, end):
            self._graph = (first, end), positioned_graph(chain_graph(self.layers[first:end]))
            self.counted_ns += POSITIONS_NS * len(self._graph[1].incoming.indices)
        return self._graph[1]


class _Accesses(NamedTuple):
    """The rows that a schedule touches one after the other, and where it changes them."""

    rows: NDArray[np.int32]
    changed: NDArray[np.bool_]
    are_slots: bool = False
    """Whether rows are where there was room, not one behind the other."""


def _moved(transposed: TransposedEnds, graph: PositionedGraph, found: DepthFirstOrder) -> int:
    """Return the rows that arrive from beyond the cache, or leave for there; rows of the batch are none."""
    into = 0 if transposed.inputs else int((found.slots[graph.is_input] >= 0).sum())
    out = 0 if transposed.outputs else len(graph.outputs)
    return into + 2 * out  # a line that leaves replaces one that is read before


def _layer_accesses(layers: Sequence[CsrPattern]) -> _Accesses:
    """Return the rows of the values of all neurons, in the order in which layers run: sources, then the target.

    Values are where those of the layer before the last one were.
    """
    sizes, whole = [layers[0].column_count, *(layer.row_count for layer in layers)], chain_graph(layers)
    rows = np.concatenate([level % 2 * max(sizes) + np.arange(size) for level, size in enumerate(sizes)])
    targets = np.arange(len(whole.inputs), whole.neuron_count)
    # the connections of a chain are listed by their targets
    pointers = np.append(0, np.cumsum(whole.in_degrees))
    return _accesses(targets, CsrPattern(pointers, whole.sources, whole.neuron_count), rows)


def _slot_accesses(graph: PositionedGraph, found: DepthFirstOrder) -> _Accesses:
    return _accesses(found.order, graph.incoming, found.slots)._replace(are_slots=True)


def _accesses(order: Indices, incoming: CsrPattern, rows: Indices) -> _Accesses:
    count = len(order) + int(incoming.lengths[order].sum())
    touched, changed = np.empty(count, dtype=np.int32), np.zeros(count, dtype=np.bool_)
    _write_accesses(order, incoming, rows.astype(np.int32), touched, changed)
    return _Accesses(touched, changed)


@compiled
def _write_accesses(
    order: Indices,
    incoming: CsrPattern,
    rows: NDArray[np.int32],
    touched: NDArray[np.int32],
    changed: NDArray[np.bool_],
) -> None:
    """Write the rows of the sources of each neuron, then its own, which changes."""
    pointers, sources = incoming.pointers, incoming.indices
    count = 0
    for neuron in order:
        for entry in range(pointers[neuron], pointers[neuron + 1]):
            touched[count] = rows[sources[entry]]
            count += 1
        touched[count] = rows[neuron]
        changed[count] = True
        count += 1


# Traffic of caches for accesses to rows: least recently used rows leave, changed ones are written back.

Rows = NDArray[np.int32]


class RowTraffic(NamedTuple):
    """Rows that a cache takes in, and rows that it writes back."""

    missed: int
    written: int

    @property
    def total(self) -> int:
        """Rows moved."""
        return self.missed + self.written


def row_traffic(accesses: Rows, changed: NDArray[np.bool_], capacity: int) -> RowTraffic:
    """Return the traffic of accesses to rows [accesses], `changed` by some, with a cache of `capacity` rows.

    Rows that are still in the cache at the end are not counted as written back.
    """
    count = int(accesses.max(initial=-1)) + 1
    # links to the row used after and before; `count` is the anchor of the ring, -1 says that a row is not there
    after, before = np.full(count + 1, -1, dtype=np.int32), np.full(count + 1, -1, dtype=np.int32)
    after[count] = before[count] = count
    dirty, counts = np.zeros(count + 1, dtype=np.bool_), np.zeros(2, dtype=np.int64)
    _count(accesses, changed, _Cache(after, before, dirty), max(1, capacity), counts)
    return RowTraffic(int(counts[0]), int(counts[1]))


class _Cache(NamedTuple):
    """The rows of a cache as a ring [rows + 1], the one used longest ago first, and which of them changed."""

    after: Rows
    before: Rows
    dirty: NDArray[np.bool_]


@compiled
def _count(accesses: Rows, changed: NDArray[np.bool_], cache: _Cache, capacity: int, counts: NDArray[np.int64]) -> None:
    """Add the rows missed to counts[0], those written back to counts[1]."""
    after, before, dirty = cache.after, cache.before, cache.dirty
    anchor, held = len(after) - 1, 0
    for number in range(len(accesses)):
        row = accesses[number]
        if after[row] >= 0:
            after[before[row]] = after[row]
            before[after[row]] = before[row]
        else:
            counts[0] += 1
            if held == capacity:
                oldest = after[anchor]
                after[anchor] = after[oldest]
                before[after[oldest]] = anchor
                after[oldest] = -1
                counts[1] += dirty[oldest]
                dirty[oldest] = False
            else:
                held += 1
        newest = before[anchor]
        after[newest] = row
        before[row] = newest
        after[row] = anchor
        before[anchor] = row
        if changed[number]:
            dirty[row] = True
