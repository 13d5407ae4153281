"""Steps: an order of connections as a fast memory of M rows runs it, the slots 0 to M - 2 holding neurons.

A step is a row [kind, slot, other slot, number] of i64:

* `LOAD_BIAS`: the slot holds the bias of neuron `number`, one value for all columns of the batch tile;
* `LOAD_ROW`: the slot holds the row of neuron `number` from slow memory, an input or what was stored;
* `CONNECT`: the slot's row times the weight of connection `number` is added to the other slot's row;
* `ACTIVATE`: the activation of neuron `number`, whose sum is complete, is applied to the slot's row;
* `STORE_ROW`: the slot's row is written to slow memory as the row of neuron `number`.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from xdsl.utils.exceptions import VerifyException

if TYPE_CHECKING:
    from redpebble.dialect.network import NetworkArrays
    from redpebble.dialect.transfers import TransferCountAttr

LOAD_BIAS: Final = 0
LOAD_ROW: Final = 1
CONNECT: Final = 2
ACTIVATE: Final = 3
STORE_ROW: Final = 4

Indices = NDArray[np.int64]


def verify_steps(
    graph: "tuple[int, NetworkArrays]", order: Indices, transfers: "TransferCountAttr", steps: Indices
) -> None:
    """Carry out the steps without values: check that they run `order` and transfer what was counted.

    Raises:
        VerifyException: a step is not what the order needs at its place, or the counts differ.
    """
    if steps.ndim != 2 or steps.shape[1] != 4:
        raise VerifyException(f"steps of rank {steps.ndim}, expected [steps, 4]")
    kinds = steps[:, 0]
    connected = steps[kinds == CONNECT, 3]
    if not np.array_equal(connected, order):
        raise VerifyException("steps run the connections in another order")
    counts = (len(connected), *(int(np.sum(kinds == kind)) for kind in (LOAD_BIAS, LOAD_ROW, STORE_ROW)))
    if counts != transfers.counts:
        raise VerifyException(f"steps make transfers {list(counts)}, counted were {list(transfers.counts)}")
    _Walk(graph, transfers.memory.data - 1).run(steps)


class _Walk:
    """What each slot and each row of slow memory holds: a neuron and how much of it is done."""

    def __init__(self, graph: "tuple[int, NetworkArrays]", slot_count: int) -> None:
        self._input_count, arrays = graph
        neuron_count = self._input_count + len(arrays.biases)
        self._sources: list[int] = arrays.sources.tolist()
        self._targets: list[int] = arrays.targets.tolist()
        self._outputs: list[int] = arrays.outputs.tolist()
        # Done: connections that have run, and one more for an activation.
        degrees = np.bincount(arrays.targets, minlength=neuron_count)
        has_activation = np.concatenate((np.zeros(self._input_count, dtype=np.bool_), arrays.activation_of >= 0))
        self._degrees: list[int] = degrees.tolist()
        self._complete: list[int] = (degrees + has_activation).tolist()
        self._done = [0] * neuron_count
        self._stored = [0 if neuron < self._input_count else -1 for neuron in range(neuron_count)]
        self._held: list[tuple[int, int]] = [(-1, 0)] * slot_count

    def run(self, steps: Indices) -> None:
        """Carry out all steps; at the end every output must be stored."""
        actions = {
            LOAD_BIAS: self._load_bias,
            LOAD_ROW: self._load_row,
            CONNECT: self._connect,
            ACTIVATE: self._activate,
            STORE_ROW: self._store_row,
        }
        rows: list[list[int]] = steps.tolist()
        for place, (kind, slot, other, number) in enumerate(rows):
            action = actions.get(kind)
            slots_exist = 0 <= slot < len(self._held) and 0 <= other < len(self._held)
            limit = len(self._sources) if kind == CONNECT else len(self._done)
            if action is None or not slots_exist or not 0 <= number < limit or not action(slot, other, number):
                raise VerifyException(f"step {place} {[kind, slot, other, number]} cannot be carried out there")
        for neuron in self._outputs:
            if self._stored[neuron] != self._complete[neuron]:
                raise VerifyException(f"output {neuron} is not stored at the end")

    def _load_bias(self, slot: int, _: int, neuron: int) -> bool:
        self._held[slot] = neuron, 0
        return neuron >= self._input_count and (self._degrees[neuron] == 0 or self._done[neuron] == 0)

    def _load_row(self, slot: int, _: int, neuron: int) -> bool:
        self._held[slot] = neuron, self._stored[neuron]
        return self._stored[neuron] == self._done[neuron]

    def _connect(self, slot: int, other: int, connection: int) -> bool:
        source, target = self._sources[connection], self._targets[connection]
        done = self._done[target]
        if self._held[slot] != (source, self._complete[source]) or self._held[other] != (target, done):
            return False
        self._done[target] = done + 1
        self._held[other] = target, done + 1
        return True

    def _activate(self, slot: int, _: int, neuron: int) -> bool:
        complete = self._complete[neuron]
        if self._held[slot] != (neuron, self._degrees[neuron]) or complete == self._degrees[neuron]:
            return False
        self._done[neuron] = complete
        self._held[slot] = neuron, complete
        return True

    def _store_row(self, slot: int, _: int, neuron: int) -> bool:
        self._stored[neuron] = self._held[slot][1]
        return self._held[slot] == (neuron, self._done[neuron])
