"""The attribute that holds a depth-first order of a network's neurons and the slots that their values share."""

from typing import Final, NamedTuple

import numpy as np
from xdsl.utils.exceptions import VerifyException

from ...sparse.csr import Indices
from ...sparse.neuron_graph import NEIGHBOURS, NeuronGraph
from ..record import Record
from ..tensors import IndexArray

MOST_SLOTS = (1 << 16) - 1
"""Slots are numbered by 16 bits in the code."""


class DepthFirstOrderAttr(Record, text="runs {runs}, order {order}, slots {slots}"):
    """Neurons in runs, each neuron after its sources, and a slot for every value.

    ```mlir
    runs dense<[0, 1]> : tensor<2xi64>, order dense<[2, 3]> : tensor<2xi64>, slots dense<[0, 1, 2, 0]> : tensor<4xi64>
    ```

    `order` lists the neurons that are computed, no inputs; `runs` says where in it each run starts. `slots` has an
    entry for every neuron, -1 where its value is not needed. A value keeps its slot from the run that computes it, or
    reads it first if it is an input, until the last run that reads it is over.
    """

    name = "pebble.depth_first_order"

    runs: IndexArray
    order: IndexArray
    slots: IndexArray

    @property
    def slot_count(self) -> int:
        """The number of slots."""
        return int(self.slots.max(initial=-1)) + 1

    @property
    def run_of(self) -> Indices:
        """The number of the run of each place in the order."""
        starts, count = self.runs, len(self.order)
        return np.repeat(np.arange(len(starts)), np.diff(np.append(starts, count)))

    def verify(self) -> None:
        starts, count = self.runs, len(self.order)
        within = len(starts) == 0 or (starts[0] == 0 and starts[-1] < count)
        if not within or np.any(np.diff(starts) < 1) or (count > 0 and len(starts) == 0):
            raise VerifyException(f"runs that do not start at 0 and ascend below {count}, the neurons in the order")


class Transposed(NamedTuple):
    """Whether the inputs of an order come straight from rows of the batch, and its outputs go straight there.

    The inputs 0 to 15 then all arrive where the first of them is read, the next 16 likewise; the outputs leave where
    the last of 16 is computed.
    """

    inputs: bool = False
    outputs: bool = False


NOT_TRANSPOSED: Final = Transposed()


class Lifetimes(NamedTuple):
    """The first and last run in which each value is alive, [neurons]; -1 where it never is."""

    first: Indices
    last: Indices

    def transposed(self, input_count: int, outputs: Indices, transposed: Transposed) -> "Lifetimes":
        """Return the lifetimes of values that come from rows, or go there, with their neighbours."""
        first, last = self.first.copy(), self.last.copy()
        if transposed.inputs:
            never = np.iinfo(np.int64).max
            own = np.where(first[:input_count] < 0, never, first[:input_count]).reshape(-1, NEIGHBOURS)
            together = np.repeat(own.min(axis=1), NEIGHBOURS)
            first[:input_count] = np.where(first[:input_count] < 0, -1, together)
        if transposed.outputs:
            last[outputs] = np.repeat(last[outputs].reshape(-1, NEIGHBOURS).max(axis=1), NEIGHBOURS)
        return Lifetimes(first, last)


def lifetimes_of(graph: NeuronGraph, found: DepthFirstOrderAttr) -> Lifetimes:
    """Return when values are alive: neurons from the run that computes them on, inputs from their first reader's."""
    order = found.order
    run_of_neuron = np.full(graph.neuron_count, -1, dtype=np.int64)
    run_of_neuron[order] = found.run_of
    used = run_of_neuron[graph.targets] >= 0
    sources, readers = graph.sources[used], run_of_neuron[graph.targets[used]]
    last = run_of_neuron.copy()
    np.maximum.at(last, sources, readers)
    never = np.iinfo(np.int64).max
    first = np.where(run_of_neuron >= 0, run_of_neuron, never)
    np.minimum.at(first, sources, np.where(graph.is_input[sources], readers, never))
    return Lifetimes(np.where(first == never, -1, first), last)


def verify_depth_first_order(
    graph: NeuronGraph, found: DepthFirstOrderAttr, transposed: Transposed = NOT_TRANSPOSED
) -> None:
    """Check that each neuron comes after its sources, that outputs are computed, and that no slot is needed twice.

    Raises:
        VerifyException: something is wrong; names a neuron or a slot.
    """
    neuron_count, input_count = graph.neuron_count, len(graph.inputs)
    order, slots = found.order, found.slots
    if len(slots) != neuron_count:
        raise VerifyException(f"expected a slot for each of {neuron_count} neurons, got {len(slots)}")
    if len(np.unique(order)) != len(order) or np.any((order < input_count) | (order >= neuron_count)):
        raise VerifyException("the order names a neuron twice, an input, or a neuron that does not exist")
    level = np.full(neuron_count, neuron_count, dtype=np.int64)
    level[order] = np.arange(len(order))
    level[:input_count] = -1
    missing = graph.outputs[level[graph.outputs] == neuron_count]
    if len(missing):
        raise VerifyException(f"output {missing[0]} is not in the order")
    computed = level[graph.targets] < neuron_count
    early = np.flatnonzero(computed & (level[graph.sources] >= level[graph.targets]))
    if len(early):
        source, target = graph.sources[early[0]], graph.targets[early[0]]
        raise VerifyException(f"neuron {target} is computed before its source {source}")
    for ends, word, count in (
        (transposed.inputs, "inputs", input_count),
        (transposed.outputs, "outputs", len(graph.outputs)),
    ):
        if ends and count % NEIGHBOURS:
            raise VerifyException(
                f"expected a multiple of {NEIGHBOURS} {word} that come from rows or go there, got {count}"
            )
    _verify_slots(lifetimes_of(graph, found).transposed(input_count, graph.outputs, transposed), slots)


def _verify_slots(lifetimes: Lifetimes, slots: Indices) -> None:
    alive = np.flatnonzero(lifetimes.first >= 0)
    homeless = alive[slots[alive] < 0]
    if len(homeless):
        raise VerifyException(f"neuron {homeless[0]} has no slot")
    ordered = alive[np.lexsort((lifetimes.first[alive], slots[alive]))]
    before, after = ordered[:-1], ordered[1:]
    clash = np.flatnonzero((slots[before] == slots[after]) & (lifetimes.first[after] <= lifetimes.last[before]))
    if len(clash):
        one, other = before[clash[0]], after[clash[0]]
        raise VerifyException(f"neurons {one} and {other} are alive in slot {slots[one]} at the same time")
