"""An order of blocks of outputs in which each needs the fewest values that are not there yet.

Work for one block alone is the same in any order; a value shared with earlier blocks is there, and may leave after
its last reader. This is the growth of `redpebble.theory.pebbling.orders.compact_growth` by blocks
instead of neurons, for schedules with slots. It looks at neurons once for each block that depends on them.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sparse.csr import CsrPattern, Indices
from ..compiled import compiled
from .depth_first_order import PositionedGraph

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
