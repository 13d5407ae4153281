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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sparse.csr import CsrPattern, Indices
from ...sparse.neuron_graph import NEIGHBOURS, NeuronGraph
from ..compiled import compiled
from ..neuron_order.graph_orders import bandwidth_numbers

MOST_GROWTH = 1.1
FEW_SLOTS = 128
"""Growth of the slots that runs of neighbours may cost: so many times as many, and so many more."""

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
    inputs_grouped: bool = False
    """Whether slots are free for inputs that arrive with the first of their `NEIGHBOURS`."""
    outputs_grouped: bool = False
    """Whether slots are kept for outputs that leave with the last of theirs."""


class PositionedGraph(NamedTuple):
    """A graph whose neurons have positions in an order: what orders with blocks of any size are made from."""

    incoming: CsrPattern
    """The sources of each neuron, in the order of their positions [neurons, neurons]."""
    positions: Indices
    """[neurons]."""
    outputs: Indices
    """Outputs in the order of their positions."""
    is_input: NDArray[np.bool_]
    """[neurons]."""


class Blocks(NamedTuple):
    """Step of the order: so many outputs, in the order of the network or in one of its own."""

    size: int = BLOCK
    order: Sequence[int] = ()
    levels: int = 0
    """Levels that run part by part, if several: parts that read nothing of each other fit a nearer cache."""
    rows_come_in: bool = False
    """Whether inputs are rows of the batch, which come in many at a time: the first levels are then one part."""


def order_neurons(graph: PositionedGraph, blocks: Blocks) -> DepthFirstOrder:
    """Return the order, runs and slots for blocks of outputs."""
    order, runs = _blocks_of_levels(graph, blocks)
    run_of = np.repeat(np.arange(len(runs)), np.diff(np.append(runs, len(order))))
    leaders, reader = np.arange(len(order)), np.full(len(graph.positions), -1, dtype=np.int64)
    _apart(order, np.append(runs, len(order)), graph.incoming, leaders, reader)
    return _with_slots(order[np.lexsort((leaders, run_of))], runs, run_of, graph)


def positioned_graph(network: NeuronGraph) -> PositionedGraph:
    """Return a graph with its neurons in reverse Cuthill-McKee order."""
    from scipy.sparse import csr_array

    count = network.neuron_count
    positions = bandwidth_numbers(network.sources, network.targets, count)
    weights = np.ones(len(network.sources), dtype=np.int8)
    # counting sorts, which are faster than comparing
    by_position = csr_array((weights, (network.targets, positions[network.sources])), shape=(count, count))
    by_position.sort_indices()
    sources = np.argsort(positions)[by_position.indices]
    outputs = network.outputs[np.argsort(positions[network.outputs], kind="stable")]
    incoming = CsrPattern(by_position.indptr.astype(np.int64), sources, count)
    return PositionedGraph(incoming, positions, outputs, network.is_input)


def _blocks_of_levels(graph: PositionedGraph, blocks: Blocks) -> tuple[Indices, Indices]:
    """Return the order in blocks of outputs, each level by level, and the places where levels begin."""
    count, wanted = len(graph.positions), graph.outputs
    levels, found = np.zeros(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    walk = _Walk(found, np.empty(count + 1, dtype=np.int64), graph.incoming.pointers[:-1].copy(), levels)
    marks = _Marks(np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64))
    orders: list[Indices] = [np.zeros(0, dtype=np.int64)]
    runs: list[Indices] = [np.zeros(0, dtype=np.int64)]
    done = 0
    for number in blocks.order or range(-(-len(wanted) // blocks.size)):
        chosen = wanted[number * blocks.size : (number + 1) * blocks.size]
        computed = _sources_first(chosen, graph.incoming, graph.is_input, walk)
        if not computed:
            continue
        neurons = found[:computed].copy()
        neurons = neurons[np.lexsort((graph.positions[neurons], levels[neurons]))]
        part = np.zeros(computed, dtype=np.int64)
        if blocks.levels:
            storeys = (levels[neurons] - 1) // blocks.levels
            part = _parts(graph.incoming, neurons, storeys, blocks.rows_come_in, marks)
            sequence = np.argsort(part, kind="stable")
            neurons, part = neurons[sequence], part[sequence]
        changes = np.flatnonzero(np.diff(levels[neurons]) | np.diff(part)) + 1
        orders.append(neurons)
        runs.append(done + np.append(0, changes))
        done += computed
    return np.concatenate(orders), np.concatenate(runs)


class _Marks(NamedTuple):
    """Positions of each neuron and of its last reader in a block; -1 between blocks, [neurons]."""

    positions: Indices
    readers: Indices


def _parts(incoming: CsrPattern, neurons: Indices, storeys: Indices, whole: bool, marks: _Marks) -> Indices:
    """Return the part of each neuron: connected neurons of a storey are one part, and small parts are joined.

    Parts are numbered by the storeys, and there by their first neuron. The first storey may be one whole part.
    """
    leaders = np.arange(len(neurons))
    _join_storeys(neurons, storeys, incoming, leaders, marks)
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


def _with_slots(order: Indices, runs: Indices, run_of: Indices, graph: PositionedGraph) -> DepthFirstOrder:
    alive = _Lifetimes(*(np.full(len(graph.positions), -1, dtype=np.int64) for _ in range(3)))
    _find_lifetimes(order, run_of, graph.incoming, alive)
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
    return slots, int(_assign(runs, _Events(appear, first), _Events(leave, last), slots, free))


class _Walk(NamedTuple):
    """A walk against the connections: neurons found, the path, the next connection of each neuron, and levels.

    A negative position marks a neuron that is done; a level is one more than the highest of the sources.
    """

    found: Indices
    stack: Indices
    position: Indices
    levels: Indices


@compiled
def _sources_first(wanted: Indices, incoming: CsrPattern, is_input: NDArray[np.bool_], walk: _Walk) -> int:
    """Write the neurons that `wanted` depends on, each after its sources; return their number."""
    pointers, sources = incoming.pointers, incoming.indices
    order, stack, position, levels = walk.found, walk.stack, walk.position, walk.levels
    count = 0
    for output in wanted:
        if position[output] < 0:
            continue
        depth = 0
        stack[0] = output
        while depth >= 0:
            neuron = stack[depth]
            end = pointers[neuron + 1]
            connection = position[neuron]
            while connection < end and (is_input[sources[connection]] or position[sources[connection]] < 0):
                connection += 1
            if connection < end:
                position[neuron] = connection + 1
                depth += 1
                stack[depth] = sources[connection]
            else:
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
def _apart(order: Indices, ends: Indices, incoming: CsrPattern, leaders: Indices, reader: Indices) -> None:
    """Write for each place the first place of its run that shares values with it, directly or through others.

    `leaders` is each place itself so far, `reader` -1 for every neuron.
    """
    pointers, sources = incoming.pointers, incoming.indices
    for run in range(len(ends) - 1):
        begin = ends[run]
        for connection in range(begin, ends[run + 1]):
            neuron = order[connection]
            for entry in range(pointers[neuron], pointers[neuron + 1]):
                source = int(sources[entry])
                other = reader[source]
                reader[source] = connection
                if other >= begin:
                    _join(leaders, connection, other)
    for connection in range(len(order)):
        # a leader comes before those it leads, so its own leader is final
        leaders[connection] = leaders[leaders[connection]]


@compiled
def _join_storeys(neurons: Indices, storeys: Indices, incoming: CsrPattern, leaders: Indices, marks: _Marks) -> None:
    """Write for each place the first place of its storey whose neuron reads the same, directly or through others.

    `leaders` is each place itself so far.
    """
    pointers, sources = incoming.pointers, incoming.indices
    places, readers = marks.positions, marks.readers
    for connection in range(len(neurons)):
        neuron = neurons[connection]
        places[neuron] = connection
        for entry in range(pointers[neuron], pointers[neuron + 1]):
            source = int(sources[entry])
            for other in (places[source], readers[source]):
                if other >= 0 and storeys[other] == storeys[connection]:
                    _join(leaders, connection, other)
            readers[source] = connection
    for connection in range(len(neurons)):
        leaders[connection] = leaders[leaders[connection]]
        neuron = neurons[connection]
        places[neuron] = -1
        for entry in range(pointers[neuron], pointers[neuron + 1]):
            readers[sources[entry]] = -1


@compiled
def _find_lifetimes(order: Indices, run_of: Indices, incoming: CsrPattern, alive: _Lifetimes) -> None:
    """Write the first and last run in which each value is alive, and the place from which on it is."""
    pointers, sources = incoming.pointers, incoming.indices
    first, last, used = alive.first, alive.last, alive.used
    for connection in range(len(order)):
        neuron, now = order[connection], run_of[connection]
        first[neuron] = now
        used[neuron] = connection
        last[neuron] = max(last[neuron], now)
        for entry in range(pointers[neuron], pointers[neuron + 1]):
            source = sources[entry]
            if first[source] < 0:
                first[source] = now
                used[source] = connection
            last[source] = max(last[source], now)


class _Events(NamedTuple):
    """Values in the order in which they appear or leave, and the run in which each neuron's value does."""

    values: Indices
    run_of: Indices


@compiled
def _assign(runs: int, arrivals: _Events, departures: _Events, slots: Indices, ring: Indices) -> int:
    """Write the slot of every value; `ring` is room for the free ones. Return the number of slots."""
    appear, first = arrivals.values, arrivals.run_of
    leave, last = departures.values, departures.run_of
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
