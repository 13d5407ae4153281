"""A network's wavefront as a stream of packed words, block by block: rows that arrive, sums, rows that leave.

The words are those of `connection_stream`, and one kind of run more: `ROWS` of an activation holds neurons with all of
their connections, [slot, connections, bias as f32] and [source's slot, weight as f32] for each connection. Its head's
count is the number of neurons. Sums stay in registers until they are complete.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from redpebble.dialect.network import NetworkArrays, NetworkOp
from redpebble.dialect.tensors import indices_of, shape_of
from redpebble.dialect.wavefront import WavefrontAttr, lifetimes_of
from redpebble.lowering.connection_stream import ACTIVATE_FIRST, END, HEAD_WORDS, LOAD_ROWS, STORE_ROWS

ROW_WORDS = 3
"""Words of a neuron before its connections."""

Indices = NDArray[np.int64]
Words = NDArray[np.uint32]


def rows_kind(activation_count: int, activation: int) -> int:
    """Return the kind of runs of neurons with an activation, -1 for none, in networks of so many activations."""
    return ACTIVATE_FIRST + activation_count + 1 + activation


def pack_wavefront(op: NetworkOp, wavefront: WavefrontAttr) -> Words:
    """Return the stream of an op that runs along `wavefront`."""
    arrays, block = op.arrays, wavefront.block.data
    packing = _Packing.of(op, wavefront)
    order = indices_of(wavefront.order)
    first = lifetimes_of(op.input_count, arrays, wavefront).first[: op.input_count]
    arriving = np.lexsort((np.arange(op.input_count), first))
    starts = np.searchsorted(first[arriving], np.arange(-(-len(order) // block) + 1))
    parts: list[Words] = []
    for number in range(len(starts) - 1):
        neurons = order[number * block : (number + 1) * block]
        parts.append(packing.moves(LOAD_ROWS, arriving[starts[number] : starts[number + 1]]))
        changes = np.flatnonzero(np.diff(packing.activation_of(neurons))) + 1
        parts.extend(packing.rows(run) for run in np.split(neurons, changes))
        parts.append(packing.moves(STORE_ROWS, neurons[packing.is_output[neurons]]))
    return np.concatenate([*parts, np.array([END, 0, 0], dtype=np.uint32)])


@dataclass(frozen=True)
class _Packing:
    """What the words are made from."""

    arrays: NetworkArrays
    input_count: int
    slots: Indices
    places: Indices
    """[neurons, 2]: buffer and row of inputs and outputs."""
    is_output: NDArray[np.bool_]
    incoming: tuple[Indices, Indices]
    """Connections by target, and where those of each target start."""

    @staticmethod
    def of(op: NetworkOp, wavefront: WavefrontAttr) -> "_Packing":
        arrays, inputs = op.arrays, op.input_count
        neuron_count = inputs + len(arrays.biases)
        widths = [shape_of(value)[-1] for value in (*op.inputs, *op.outputs)]
        places = np.zeros((neuron_count, 2), dtype=np.int64)
        ends = np.concatenate([np.arange(inputs), arrays.outputs])
        places[ends] = [(buffer, row) for buffer, width in enumerate(widths) for row in range(width)]
        is_output = np.zeros(neuron_count, dtype=np.bool_)
        is_output[arrays.outputs] = True
        connections = np.argsort(arrays.targets, kind="stable")
        starts = np.searchsorted(arrays.targets[connections], np.arange(neuron_count + 1))
        return _Packing(arrays, inputs, indices_of(wavefront.slots), places, is_output, (connections, starts))

    def activation_of(self, neurons: Indices) -> Indices:
        """Return the number of each neuron's activation, -1 for none."""
        return self.arrays.activation_of[neurons - self.input_count]

    def moves(self, kind: int, neurons: Indices) -> Words:
        """Return a run of loads or stores; none where there are no neurons."""
        if not len(neurons):
            return np.zeros(0, dtype=np.uint32)
        entries = np.column_stack((self.slots[neurons], self.places[neurons]))
        return np.concatenate([[kind, len(neurons), 0], entries.ravel()]).astype(np.uint32)

    def rows(self, neurons: Indices) -> Words:
        """Return a run of neurons with the same activation."""
        connections, starts = self.incoming
        counts = starts[neurons + 1] - starts[neurons]
        sizes = ROW_WORDS + 2 * counts
        begin = HEAD_WORDS + np.cumsum(sizes) - sizes
        words = np.empty(HEAD_WORDS + int(sizes.sum()), dtype=np.uint32)
        kind = rows_kind(len(self.arrays.activations), int(self.activation_of(neurons)[0]))
        words[:HEAD_WORDS] = kind, len(neurons), 0
        words[begin], words[begin + 1] = self.slots[neurons], counts
        words[begin + 2] = self.arrays.biases.view(np.uint32)[neurons - self.input_count]
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        chosen = connections[np.repeat(starts[neurons], counts) + within]
        entry = np.repeat(begin + ROW_WORDS, counts) + 2 * within
        words[entry] = self.slots[self.arrays.sources[chosen]]
        words[entry + 1] = self.arrays.weights.view(np.uint32)[chosen]
        return words
