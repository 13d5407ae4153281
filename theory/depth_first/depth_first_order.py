"""Depth-first orders of neurons for networks whose layers leave the cache, and the slots that their values take.

Neurons are computed right before they are needed. Outputs that lie near each other share sources, so few values are
alive at a time if outputs, and the sources of each neuron, are taken along the network. Where that is, reverse
Cuthill-McKee (`redpebble.theory.neuron_order.graph_orders`) on the whole unrolled network finds out: neurons with
common neighbours, in whatever layer, get nearby numbers.

Outputs are taken some at a time, and what they still need runs level by level: neurons of a level that read the same
values then follow each other, and these are in the nearest cache. A level of such a block is a run; its neurons stand
in the order of their numbers, those that share no value with the others apart. The value of a neuron keeps its slot
until the last run that reads it is over. Free slots are taken first in, first out, so that addresses ascend as rows of
a layer would.

Inputs that stand beside each other arrive together, and outputs leave together, where few more values are alive for it:
they come from rows of the batch and go to such, which are transposed some neighbours at a time.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from redpebble.sparse.neuron_graph import NEIGHBOURS
from redpebble.theory.annealing.jit import compiled
from redpebble.theory.neuron_order.graph_orders import bandwidth_numbers

Indices = NDArray[np.int64]


MOST_GROWTH = 1.1
FEW_SLOTS = 128
"""For that the slots may become so many times as many, and so many more."""

BLOCK = 128
"""Outputs that are taken at a time: few enough that what they read fits the nearest cache."""


LEAST_OF_PART = 128
"""Neurons of several levels that a part has at least."""


class DepthFirstOrder(NamedTuple):
    """Neurons in the order in which they are computed, inputs left out, and where all values are kept."""

    order: Indices
    """[computed]: neurons that an output depends on, and outputs; neurons without effect are left out."""
    runs: Indices
    """[runs]: where each run of the order starts, the first at 0."""
    slots: Indices
    """[neurons]: the slot of each neuron's value, -1 where it is never alive."""
    slot_count: int
    inputs_together: bool = False
    """Whether slots are free for inputs that arrive with the first of their `NEIGHBOURS`."""
    outputs_together: bool = False
    """Whether slots are kept for outputs that leave with the last of theirs."""


class Connected(Protocol):
    """What is needed of a network: `redpebble.sparse.neuron_graph.Network` has it, and checks it."""

    @property
    def neuron_count(self) -> int:
        """Neurons, inputs included."""
        ...

    @property
    def sources(self) -> Indices:
        """Sources of the connections."""
        ...

    @property
    def targets(self) -> Indices:
        """Targets of the connections."""
        ...

    @property
    def inputs(self) -> Indices:
        """Neurons that are given."""
        ...

    @property
    def outputs(self) -> Indices:
        """Neurons that are wanted."""
        ...


class PlacedGraph(NamedTuple):
    """A network whose neurons have places: what orders with blocks of any size are made from."""

    pointers: Indices
    """[neurons + 1]: where the sources of each neuron start."""
    sources: Indices
    """Sources of each neuron, in the order of their positions."""
    places: Indices
    """[neurons]"""
    outputs: Indices
    """In the order of their places."""
    is_input: NDArray[np.bool_]


class Blocks(NamedTuple):
    """What is taken at a time: so many outputs, in the order of the network or in one of its own."""

    size: int = BLOCK
    order: Sequence[int] = ()
    levels: int = 0
    """With several, so many levels run part by part: parts that read nothing of each other fit a nearer cache."""
    rows_come_in: bool = False
    """Whether inputs are rows of the batch, which come in many at a time: the first levels are then one part."""


def order_neurons(graph: PlacedGraph, blocks: Blocks) -> DepthFirstOrder:
    """Return the order, runs and slots for blocks of outputs."""
    order, runs = _blocks_of_levels(graph, blocks)
    run_of = np.repeat(np.arange(len(runs)), np.diff(np.append(runs, len(order))))
    leaders, reader = np.arange(len(order)), np.full(len(graph.places), -1, dtype=np.int64)
    _apart(order, np.append(runs, len(order)), (graph.pointers, graph.sources), (leaders, reader))
    order = order[np.lexsort((leaders, run_of))]
    return _with_slots((order, runs, run_of), graph)


def placed_graph(network: Connected) -> PlacedGraph:
    """Return a network with its neurons in reverse Cuthill-McKee order."""
    count = network.neuron_count
    places = bandwidth_numbers(network.sources, network.targets, count)
    weights = np.ones(len(network.sources), dtype=np.int8)
    # counting sorts, which are faster than comparing
    by_place = csr_array((weights, (network.targets, places[network.sources])), shape=(count, count))
    by_place.sort_indices()
    sources = np.argsort(places)[by_place.indices]
    outputs = network.outputs[np.argsort(places[network.outputs], kind="stable")]
    is_input = np.zeros(count, dtype=np.bool_)
    is_input[network.inputs] = True
    return PlacedGraph(by_place.indptr.astype(np.int64), sources, places, outputs, is_input)


def _blocks_of_levels(graph: PlacedGraph, blocks: Blocks) -> tuple[Indices, Indices]:
    """Return the order in blocks of outputs, each level by level, and the places where levels begin."""
    count, wanted = len(graph.places), graph.outputs
    levels, found = np.zeros(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    stack, position = np.empty(count + 1, dtype=np.int64), graph.pointers[:-1].copy()
    room = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    orders: list[Indices] = [np.zeros(0, dtype=np.int64)]
    runs: list[Indices] = [np.zeros(0, dtype=np.int64)]
    done = 0
    for number in blocks.order or range(-(-len(wanted) // blocks.size)):
        chosen = wanted[number * blocks.size : (number + 1) * blocks.size]
        computed = _sources_first(
            chosen, (graph.pointers, graph.sources), graph.is_input, (found, stack, position, levels)
        )
        if not computed:
            continue
        neurons = found[:computed].copy()
        neurons = neurons[np.lexsort((graph.places[neurons], levels[neurons]))]
        part = np.zeros(computed, dtype=np.int64)
        if blocks.levels:
            storeys = (levels[neurons] - 1) // blocks.levels
            part = _parts(graph, (neurons, storeys), blocks.rows_come_in, room)
            sequence = np.argsort(part, kind="stable")
            neurons, part = neurons[sequence], part[sequence]
        changes = np.flatnonzero(np.diff(levels[neurons]) | np.diff(part)) + 1
        orders.append(neurons)
        runs.append(done + np.append(0, changes))
        done += computed
    return np.concatenate(orders), np.concatenate(runs)


def _parts(graph: PlacedGraph, ordered: tuple[Indices, Indices], whole: bool, room: tuple[Indices, Indices]) -> Indices:
    """Return the part of each neuron: those of a storey that read nothing of each other's, small ones together.

    Parts are numbered by the storeys, and there by their first neuron. The first storey may be one whole part. room is
    -1 for every neuron, and is so again.
    """
    neurons, storeys = ordered
    leaders = np.arange(len(neurons))
    _join_storeys((neurons, storeys), (graph.pointers, graph.sources), (leaders, *room))
    if whole:
        leaders[storeys == 0] = 0
    _, first, part, sizes = np.unique(leaders, return_index=True, return_inverse=True, return_counts=True)
    storey = storeys[first]
    begins = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    within = begins - begins[np.searchsorted(storey, storey)]
    bins = np.flatnonzero(np.diff(np.stack([storey, within // LEAST_OF_PART]), axis=1).any(axis=0)) + 1
    numbers = np.zeros(len(first), dtype=np.int64)
    numbers[bins] = 1
    return np.cumsum(numbers)[part]


class _Lifetimes(NamedTuple):
    """The first and last run in which each value is alive, -1 where it never is, and the place from which on it is."""

    first: Indices
    last: Indices
    used: Indices

    def together(self, neurons: Indices, *, inputs: bool) -> "_Lifetimes":
        """Return the lifetimes when neighbours among the inputs begin together, or those among the outputs end so."""
        whole = neurons[: len(neurons) // NEIGHBOURS * NEIGHBOURS].reshape(-1, NEIGHBOURS)
        first, last = self.first.copy(), self.last.copy()
        if inputs:
            never = np.iinfo(np.int64).max
            earliest = np.where(first[whole] < 0, never, first[whole]).min(axis=1, keepdims=True)
            first[whole] = np.where(first[whole] < 0, -1, earliest)
        else:
            last[whole] = last[whole].max(axis=1, keepdims=True)
        return _Lifetimes(first, last, self.used)


def _with_slots(ordered: tuple[Indices, Indices, Indices], graph: PlacedGraph) -> DepthFirstOrder:
    order, runs, run_of = ordered
    alive = _Lifetimes(*(np.full(len(graph.places), -1, dtype=np.int64) for _ in range(3)))
    _find_lifetimes((order, run_of), (graph.pointers, graph.sources), alive)
    slots, count = _assigned(len(runs), alive)
    limit, together = max(int(MOST_GROWTH * count), count + FEW_SLOTS), [False, False]
    for number, neurons in enumerate((np.flatnonzero(graph.is_input), np.sort(graph.outputs))):
        longer = alive.together(neurons, inputs=number == 0)
        found, needed = _assigned(len(runs), longer)
        if needed <= limit:
            alive, slots, count, together[number] = longer, found, needed, True
    return DepthFirstOrder(order, runs, slots, count, *together)


def _assigned(runs: int, alive: _Lifetimes) -> tuple[Indices, int]:
    """Return the slot of each value, and the number of slots."""
    first, last, used = alive
    slots, free = np.full(len(first), -1, dtype=np.int64), np.empty(len(first) + 1, dtype=np.int64)
    # values arrive in the order in which they are computed, or read where they are inputs
    appear = np.lexsort((used, first))
    appear = appear[first[appear] >= 0]
    leave = np.lexsort((used, last))
    leave = leave[last[leave] >= 0]
    return slots, int(_assign(runs, (appear, first), (leave, last), (slots, free)))


@compiled
def _sources_first(
    wanted: Indices,
    incoming: tuple[Indices, Indices],
    is_input: NDArray[np.bool_],
    room: tuple[Indices, Indices, Indices, Indices],
) -> int:
    """Write the neurons that `wanted` depends on to room[0], each after its sources; return their number.

    The last of room takes their levels, one more than the highest of their sources.
    """
    pointers, sources = incoming
    order, stack, position, levels = room
    count = 0
    for output in wanted:
        if position[output] < 0:
            continue
        depth = 0
        stack[0] = output
        while depth >= 0:
            neuron = stack[depth]
            end = pointers[neuron + 1]
            place = position[neuron]
            while place < end and (is_input[sources[place]] or position[sources[place]] < 0):
                place += 1
            if place < end:
                position[neuron] = place + 1
                depth += 1
                stack[depth] = sources[place]
            else:
                # a negative position marks what is done
                position[neuron] = -1
                order[count] = neuron
                count += 1
                depth -= 1
                level = 0
                for entry in range(pointers[neuron], end):
                    level = max(level, levels[sources[entry]])
                levels[neuron] = level + 1
    return count


@compiled
def _join(leaders: Indices, here: int, other: int) -> None:
    """Give two places one leader, the first of theirs."""
    while leaders[other] != other:
        leaders[other] = leaders[leaders[other]]
        other = leaders[other]
    while leaders[here] != here:
        leaders[here] = leaders[leaders[here]]
        here = leaders[here]
    leaders[max(here, other)] = min(here, other)


@compiled
def _apart(order: Indices, ends: Indices, incoming: tuple[Indices, Indices], room: tuple[Indices, Indices]) -> None:
    """Write for each place the first place of its run that shares values with it, directly or through others.

    room is where that goes, each place itself so far, and -1 for every neuron.
    """
    pointers, sources = incoming
    leaders, reader = room
    for run in range(len(ends) - 1):
        begin = ends[run]
        for place in range(begin, ends[run + 1]):
            neuron = order[place]
            for entry in range(pointers[neuron], pointers[neuron + 1]):
                source = int(sources[entry])
                other = reader[source]
                reader[source] = place
                if other >= begin:
                    _join(leaders, place, other)
    for place in range(len(order)):
        # a leader comes before those it leads, so its own leader is final
        leaders[place] = leaders[leaders[place]]


@compiled
def _join_storeys(
    ordered: tuple[Indices, Indices], incoming: tuple[Indices, Indices], room: tuple[Indices, Indices, Indices]
) -> None:
    """Write for each place the first place of its storey whose neuron reads the same, directly or through others.

    room is where that goes, each place itself so far, and -1 for every neuron twice: where it is, and its last reader.
    """
    neurons, storeys = ordered
    pointers, sources = incoming
    leaders, places, readers = room
    for place in range(len(neurons)):
        neuron = neurons[place]
        places[neuron] = place
        for entry in range(pointers[neuron], pointers[neuron + 1]):
            source = int(sources[entry])
            for other in (places[source], readers[source]):
                if other >= 0 and storeys[other] == storeys[place]:
                    _join(leaders, place, other)
            readers[source] = place
    for place in range(len(neurons)):
        leaders[place] = leaders[leaders[place]]
        neuron = neurons[place]
        places[neuron] = -1
        for entry in range(pointers[neuron], pointers[neuron + 1]):
            readers[sources[entry]] = -1


@compiled
def _find_lifetimes(
    ordered: tuple[Indices, Indices], incoming: tuple[Indices, Indices], ends: tuple[Indices, Indices, Indices]
) -> None:
    """Write the first and last run in which each value is alive, and the place from which on it is."""
    pointers, sources = incoming
    first, last, used = ends
    order, run_of = ordered
    for place in range(len(order)):
        neuron, now = order[place], run_of[place]
        first[neuron] = now
        used[neuron] = place
        last[neuron] = max(last[neuron], now)
        for entry in range(pointers[neuron], pointers[neuron + 1]):
            source = sources[entry]
            if first[source] < 0:
                first[source] = now
                used[source] = place
            last[source] = max(last[source], now)


@compiled
def _assign(
    runs: int, arrivals: tuple[Indices, Indices], departures: tuple[Indices, Indices], room: tuple[Indices, Indices]
) -> int:
    """Write the slot of every value; room is slots and a ring of free slots. Return the number of slots."""
    appear, first = arrivals
    leave, last = departures
    slots, ring = room
    head, tail, size, used = 0, 0, len(ring), 0
    arrival, departure = 0, 0
    for run in range(runs):
        while arrival < len(appear) and first[appear[arrival]] == run:
            if head != tail:
                slots[appear[arrival]] = ring[head]
                head = (head + 1) % size
            else:
                slots[appear[arrival]] = used
                used += 1
            arrival += 1
        while departure < len(leave) and last[leave[departure]] == run:
            ring[tail] = slots[leave[departure]]
            tail = (tail + 1) % size
            departure += 1
    return used
