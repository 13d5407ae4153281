"""Depth-first orders of neurons for networks whose layers leave the cache, and the slots that their values take.

A neuron is computed right before it is needed: from each output, its sources first. Outputs that lie near each other
share sources, so few values are alive at a time if outputs, and the sources of each neuron, are taken along the
network. Where that is, reverse Cuthill-McKee on the whole unrolled network finds out: neurons with common neighbours,
in whatever layer, get nearby numbers.

Neurons run in blocks; the value of a neuron keeps its slot until the last block that reads it is over. Free slots are
taken first in, first out, so that addresses ascend as rows of a layer would.

Source: Cuthill and McKee, Reducing the bandwidth of sparse symmetric matrices; scipy's implementation.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from redpebble.search.compiled import compiled
from redpebble.theory.network import Network

Indices = NDArray[np.int64]

BLOCK = 256
"""Neurons of a block: few enough that a block's own values are a small part of those alive."""


class Wavefront(NamedTuple):
    """Neurons in the order in which they are computed, inputs left out, and where all values are kept."""

    order: Indices
    """[computed]: neurons that an output depends on, and outputs; neurons without effect are left out."""
    slots: Indices
    """[neurons]: the slot of each neuron's value, -1 where it is never alive."""
    slot_count: int
    block: int


def depth_first(network: Network, block: int = BLOCK) -> Wavefront:
    """Return the order that follows the network, and its slots.

    The same network gives the same order. Time: about 0.5 us a connection.
    """
    places = network_places(network)
    pointers, sources = _incoming(network, places)
    wanted = network.outputs[np.argsort(places[network.outputs], kind="stable")]
    order = np.empty(network.neuron_count, dtype=np.int64)
    is_input = np.zeros(network.neuron_count, dtype=np.bool_)
    is_input[network.inputs] = True
    stack, position = np.empty(network.neuron_count + 1, dtype=np.int64), pointers[:-1].copy()
    count = _sources_first(wanted, (pointers, sources), is_input, (order, stack, position))
    return _with_slots(network, order[:count].copy(), (pointers, sources), block)


def network_places(network: Network) -> Indices:
    """Return the number of each neuron in reverse Cuthill-McKee order, [neurons]."""
    count = network.neuron_count
    ends = np.concatenate((network.sources, network.targets)), np.concatenate((network.targets, network.sources))
    weights = np.ones(len(ends[0]), dtype=np.int8)
    neighbours = csr_array((weights, ends), shape=(count, count))
    order = reverse_cuthill_mckee(neighbours, symmetric_mode=True)
    places = np.empty(count, dtype=np.int64)
    places[order] = np.arange(count)
    return places


def _incoming(network: Network, places: Indices) -> tuple[Indices, Indices]:
    """Return the sources of each neuron by their places, and where those of each neuron start."""
    count = network.neuron_count
    weights = np.ones(network.connection_count, dtype=np.int8)
    # counting sorts, which are faster than comparing
    by_place = csr_array((weights, (network.targets, places[network.sources])), shape=(count, count))
    by_place.sort_indices()
    return by_place.indptr.astype(np.int64), np.argsort(places)[by_place.indices]


def _with_slots(network: Network, order: Indices, incoming: tuple[Indices, Indices], block: int) -> Wavefront:
    count = network.neuron_count
    slots = np.full(count, -1, dtype=np.int64)
    first, last = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    blocks = -(-len(order) // block)
    _lifetimes(order, incoming, block, (first, last))
    # inputs arrive in the block that reads them first, in the order of their numbers, before the block's own neurons
    appear = np.lexsort((np.where(first >= 0, np.arange(count), -1), first))
    appear = appear[first[appear] >= 0]
    leave = np.lexsort((np.arange(count), last))
    leave = leave[last[leave] >= 0]
    free = np.empty(count + 1, dtype=np.int64)
    slot_count = _assign(blocks, (appear, first), (leave, last), (slots, free))
    return Wavefront(order, slots, int(slot_count), block)


@compiled
def _sources_first(
    wanted: Indices,
    incoming: tuple[Indices, Indices],
    is_input: NDArray[np.bool_],
    room: tuple[Indices, Indices, Indices],
) -> int:
    """Write the neurons that `wanted` depends on to room[0], each after its sources; return their number."""
    pointers, sources = incoming
    order, stack, position = room
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
    return count


@compiled
def _lifetimes(order: Indices, incoming: tuple[Indices, Indices], block: int, ends: tuple[Indices, Indices]) -> None:
    """Write the first and last block in which each value is alive."""
    pointers, sources = incoming
    first, last = ends
    for place in range(len(order)):
        neuron, now = order[place], place // block
        first[neuron] = now
        last[neuron] = max(last[neuron], now)
        for entry in range(pointers[neuron], pointers[neuron + 1]):
            source = sources[entry]
            if first[source] < 0:
                first[source] = now
            last[source] = max(last[source], now)


@compiled
def _assign(
    blocks: int, arrivals: tuple[Indices, Indices], departures: tuple[Indices, Indices], room: tuple[Indices, Indices]
) -> int:
    """Write the slot of every value; room is slots and a ring of free slots. Return the number of slots."""
    appear, first = arrivals
    leave, last = departures
    slots, ring = room
    head, tail, size, used = 0, 0, len(ring), 0
    arrival, departure = 0, 0
    for block in range(blocks):
        while arrival < len(appear) and first[appear[arrival]] == block:
            if head != tail:
                slots[appear[arrival]] = ring[head]
                head = (head + 1) % size
            else:
                slots[appear[arrival]] = used
                used += 1
            arrival += 1
        while departure < len(leave) and last[leave[departure]] == block:
            ring[tail] = slots[leave[departure]]
            tail = (tail + 1) % size
            departure += 1
    return used
