"""Steps: an order of connections as a fast memory of M rows runs it, the slots 0 to M - 2 holding neurons.

A step is a row [kind, slot, other slot, number] of i64:

* `LOAD_BIAS`: the slot holds the bias of neuron `number`, one value for all columns of the batch tile;
* `LOAD_ROW`: the slot holds the row of neuron `number` from slow memory, an input or what was stored;
* `CONNECT`: the slot's row times the weight of connection `number` is added to the other slot's row;
* `ACTIVATE`: the activation of neuron `number`, whose sum is complete, is applied to the slot's row;
* `STORE_ROW`: the slot's row is written to slow memory as the row of neuron `number`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from xdsl.utils.exceptions import VerifyException

from ...sparse.csr import Indices
from ...sparse.neuron_graph import NeuronGraph
from .weighted_graph import WeightedGraph

if TYPE_CHECKING:
    from .transfers import TransferCountAttr

LOAD_BIAS: Final = 0
LOAD_ROW: Final = 1
CONNECT: Final = 2
ACTIVATE: Final = 3
STORE_ROW: Final = 4


def verify_steps(network: WeightedGraph, order: Indices, transfers: "TransferCountAttr", steps: Indices) -> None:
    """Carry out the steps without values: check that they run `order` and transfer what was counted.

    Raises:
        VerifyException: a step is not what the order needs at its position, or the counts differ.
    """
    if steps.ndim != 2 or steps.shape[1] != 4:
        raise VerifyException(f"expected steps [steps, 4], got rank {steps.ndim}")
    kinds = steps[:, 0]
    connected = steps[kinds == CONNECT, 3]
    if not np.array_equal(connected, order):
        raise VerifyException("steps run the connections in another order")
    counts = (len(connected), *(int(np.sum(kinds == kind)) for kind in (LOAD_BIAS, LOAD_ROW, STORE_ROW)))
    if counts != transfers.counts:
        raise VerifyException(f"steps make transfers {list(counts)}, counted were {list(transfers.counts)}")
    _verify_slots(transfers.memory - 1, network.graph, steps)
    events = _Events.of(network, steps)
    wrong = events.positions[~events.are_possible()]
    if len(wrong):
        position = int(wrong.min())
        raise VerifyException(f"step {position} {steps[position].tolist()} cannot be carried out there")
    missing = events.outputs_not_stored(network.graph.outputs)
    if len(missing):
        raise VerifyException(f"output {missing[0]} is not stored at the end")


def _verify_slots(slot_count: int, graph: NeuronGraph, steps: Indices) -> None:
    """Check that kinds, slots and numbers exist."""
    numbers = np.where(steps[:, 0] == CONNECT, graph.connection_count, graph.neuron_count)
    limits = np.column_stack((np.full_like(steps[:, :3], slot_count), numbers))
    limits[:, 0] = STORE_ROW + 1
    wrong = np.flatnonzero(np.any((steps < 0) | (steps >= limits), axis=1))
    if len(wrong):
        raise VerifyException(
            f"expected less than {limits[wrong[0]].tolist()} in step {wrong[0]}, got {steps[wrong[0]].tolist()}"
        )


_ADD_TO: Final = STORE_ROW + 1
"""The second event of a `CONNECT`, at its target; the first is at its source."""


@dataclass(frozen=True)
class _Events:
    """Events of neurons, one entry a step and two for `CONNECT`: neuron by neuron, each in order of the steps.

    What is *done* of a neuron are the connections that were added to it, and one more for its activation; of a neuron
    that is only a bias, what was done since it was loaded last.
    """

    kinds: Indices
    positions: Indices
    neurons: Indices
    is_there: NDArray[np.bool_]
    """Whether the slot holds this neuron, and no other slot does."""
    done: Indices
    """Connections done before the event."""
    stored: Indices
    """Connections done when it was stored last; -1 where slow memory has nothing of it."""
    degrees: Indices
    """Connections into the neuron."""
    complete: Indices
    """Connections done in the end."""
    is_input: NDArray[np.bool_]

    @staticmethod
    def of(network: WeightedGraph, steps: Indices) -> "_Events":
        """Return the events of steps whose slots and numbers exist."""
        graph, input_count = network.graph, network.input_count
        connects = np.flatnonzero(steps[:, 0] == CONNECT)
        connections = steps[connects, 3]
        neurons = steps[:, 3].copy()
        neurons[connects] = graph.sources[connections]
        kinds = np.concatenate((steps[:, 0], np.full(len(connects), _ADD_TO)))
        neurons = np.concatenate((neurons, graph.targets[connections]))
        slots = np.concatenate((steps[:, 1], steps[connects, 2]))
        positions = np.concatenate((np.arange(len(steps)), connects))
        is_load = (kinds == LOAD_BIAS) | (kinds == LOAD_ROW)
        # where the last load of the slot and the last load of the neuron are one, the slot holds the neuron
        is_there = _last(slots, positions, is_load) == _last(neurons, positions, is_load)
        by_neuron = np.lexsort((positions, neurons))
        kinds, positions = kinds[by_neuron], positions[by_neuron]
        neurons, is_there = neurons[by_neuron], is_there[by_neuron]
        degrees = graph.in_degrees
        has_activation = np.append(np.zeros(input_count, dtype=np.int64), network.activation_of >= 0)
        starts_over = (kinds == LOAD_BIAS) & (degrees[neurons] == 0)
        changes = (kinds == _ADD_TO) | (kinds == ACTIVATE)
        done = _running_count(changes, _last_here(neurons, starts_over | _is_first(neurons)))
        last_store = _last_here(neurons, kinds == STORE_ROW)
        stored = np.where(last_store >= 0, done[last_store], np.where(neurons < input_count, 0, -1))
        degree, complete = degrees[neurons], (degrees + has_activation)[neurons]
        return _Events(kinds, positions, neurons, is_there, done, stored, degree, complete, neurons < input_count)

    def are_possible(self) -> NDArray[np.bool_]:
        """Return for each event whether it can happen where it does."""
        lone = (self.degrees == 0) & ~self.is_input
        rules = {
            LOAD_BIAS: ~self.is_input & ((self.done == 0) | lone),
            LOAD_ROW: (self.stored == self.done) & ~lone,
            CONNECT: self.done == self.complete,
            _ADD_TO: self.done < self.degrees,
            ACTIVATE: (self.done == self.degrees) & (self.complete > self.degrees),
            STORE_ROW: ~self.is_input,
        }
        allowed = np.zeros(len(self.kinds), dtype=np.bool_)
        for kind, rule in rules.items():
            allowed |= (self.kinds == kind) & rule
        return allowed & self.is_there

    def outputs_not_stored(self, outputs: Indices) -> Indices:
        """Return the outputs of which slow memory does not have the final value."""
        final = (self.kinds == STORE_ROW) & (self.done == self.complete)
        return np.setdiff1d(outputs, self.neurons[final])


def _last(keys: Indices, positions: Indices, is_mark: NDArray[np.bool_]) -> Indices:
    """Return for each event the position of the last marked one with its key, itself included; -1 where none is."""
    by_key = np.lexsort((positions, keys))
    marks = _last_here(keys[by_key], is_mark[by_key])
    result = np.empty(len(keys), dtype=np.int64)
    result[by_key] = np.where(marks >= 0, positions[by_key][marks], -1)
    return result


def _last_here(keys: Indices, is_mark: NDArray[np.bool_]) -> Indices:
    """Return the index of the last marked entry, itself included, among those of the same key, which stand together."""
    marks = np.maximum.accumulate(np.where(is_mark, np.arange(len(keys)), -1))
    first = np.maximum.accumulate(np.where(_is_first(keys), np.arange(len(keys)), 0))
    return np.where(marks >= first, marks, -1)


def _is_first(keys: Indices) -> NDArray[np.bool_]:
    return np.diff(keys, prepend=-1) != 0


def _running_count(is_counted: NDArray[np.bool_], starts: Indices) -> Indices:
    """Return how many entries are counted from `starts` on, the entry itself left out."""
    before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(is_counted)))[:-1]
    return before - before[starts]
