"""An order of blocks of outputs in which each needs the fewest values that are not there yet.

What a block computes for itself alone is as much in any order; what it shares with blocks before is there, and may go
when the last that reads it is over. This is the growth of `redpebble.theory.pebbling.orders.compact_growth` by blocks
instead of neurons, for schedules with slots. It looks at neurons once for each block that depends on them.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from redpebble.theory.annealing.jit import compiled
from redpebble.theory.depth_first.depth_first_order import PlacedGraph

Indices = NDArray[np.int64]

MOST_DEPENDENCES: Final = 24
"""Blocks that a neuron has an effect on, in the mean, up to which an order is looked for."""


def nearest_next(graph: PlacedGraph, block: int, first: int) -> tuple[int, ...] | None:
    """Return the order of blocks of so many outputs that begins with one; None where all depend on everything.

    Of blocks that need equally few, the one nearest behind the last one is next.
    """
    neurons, outputs = len(graph.places), graph.outputs
    count, room = -(-len(outputs) // block), MOST_DEPENDENCES * neurons
    cones, ends = np.empty(room, dtype=np.int32), np.zeros(count + 1, dtype=np.int64)
    seen, stack = np.full(neurons, -1, dtype=np.int64), np.empty(neurons + 1, dtype=np.int64)
    if not _find_cones((outputs, block), (graph.pointers, graph.sources), (cones, ends), (seen, stack)):
        return None
    cones = cones[: ends[-1]]
    blocks = np.repeat(np.arange(count), np.diff(ends))[np.argsort(cones, kind="stable")]
    starts = np.concatenate([[0], np.cumsum(np.bincount(cones, minlength=neurons))])
    order = np.empty(count, dtype=np.int64)
    _take_nearest((cones, ends), (blocks, starts), (np.diff(ends), np.zeros(neurons, dtype=np.bool_)), (order, first))
    return tuple(order.tolist())


@compiled
def _find_cones(
    wanted: tuple[Indices, int],
    incoming: tuple[Indices, Indices],
    found: tuple[NDArray[np.int32], Indices],
    room: tuple[Indices, Indices],
) -> bool:
    """Write the neurons that each block depends on, and where the next block's begin; return whether there is room."""
    outputs, block = wanted
    pointers, sources = incoming
    cones, ends = found
    seen, stack = room
    done = 0
    for number in range(len(ends) - 1):
        depth = 0
        for place in range(number * block, min((number + 1) * block, len(outputs))):
            output = outputs[place]
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
    cones: tuple[NDArray[np.int32], Indices],
    dependent: tuple[Indices, Indices],
    room: tuple[Indices, NDArray[np.bool_]],
    result: tuple[Indices, int],
) -> None:
    """Write the order to result[0], which begins with result[1]; room is what each block misses, and what is there."""
    neurons, ends = cones
    blocks, starts = dependent
    missing, there = room
    order, chosen = result
    count = len(order)
    for place in range(count):
        if place > 0:
            last, best = chosen, -1
            for step in range(1, count):
                number = (last + step) % count
                if missing[number] >= 0 and (best < 0 or missing[number] < missing[best]):
                    best = number
            chosen = best
        order[place] = chosen
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
