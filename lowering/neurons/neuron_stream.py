"""A network's wavefront as a stream of packed words, run by run: rows that arrive, neurons, rows that leave.

Words are u32. A run is a head [neurons, arrivals, departures, activation's number + 1]; then [slot, buffer, row] for
each row that arrives; then the neurons, [slot and connections in 16 bits each, bias as f32], their weights as f32, and
the slots of their sources in 16 bits each, an even number of them; then [slot, buffer, row] for each row that leaves. A
head without neurons is the end. Buffers are the operands, then the results. All neurons of a run have one activation.

Where inputs come from rows of the batch, what arrives is [16 slots, buffer, first feature, features of a row] instead:
16 features, which are transposed. Likewise for outputs. One that is not alive has the slot behind all others.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from redpebble.dialect.attributes.neuron_order import (
    NEIGHBOURS,
    NOT_TRANSPOSED,
    Transposed,
    WavefrontAttr,
    lifetimes_of,
)
from redpebble.dialect.ops.network import NetworkArrays
from redpebble.dialect.tensors import indices_of

HEAD_WORDS = 4
MOVE_WORDS = 3
TRANSPOSE_WORDS = NEIGHBOURS + 3
NEURON_WORDS = 2
"""Words of a neuron before its weights."""

WORDS_AHEAD = 1024
"""Words behind the end that may be fetched."""

Indices = NDArray[np.int64]
Words = NDArray[np.uint32]


@dataclass(frozen=True)
class WavefrontNetwork:
    """A graph of neurons, the features of its operands and of its results, and the order in which it runs."""

    arrays: NetworkArrays
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    wavefront: WavefrontAttr
    transposed: Transposed = NOT_TRANSPOSED
    """Of one operand and one result only."""

    @property
    def input_count(self) -> int:
        """Neurons that are inputs."""
        return sum(self.inputs)


class _Layout:
    """Where everything stands in the stream."""

    def __init__(self, network: WavefrontNetwork) -> None:
        arrays, wavefront = network.arrays, network.wavefront
        order, run_of = indices_of(wavefront.order), wavefront.run_of
        activation_of = arrays.activation_of[order - network.input_count]
        changes = np.append(0, np.flatnonzero(np.diff(run_of) | np.diff(activation_of)) + 1)[: max(1, len(order))]
        self.order = order
        self.starts: Indices = changes if len(order) else np.zeros(0, dtype=np.int64)
        """The place in the order where each run of one activation starts."""
        self.lengths = np.diff(np.append(self.starts, len(order)))
        self.activations = activation_of[self.starts]
        self.run_of = np.repeat(np.arange(len(self.starts)), self.lengths)
        neuron_count = network.input_count + len(arrays.biases)
        self.connections = np.argsort(arrays.targets, kind="stable")
        ends = np.searchsorted(arrays.targets[self.connections], np.arange(neuron_count + 1))
        self.firsts, self.counts = ends[order], ends[order + 1] - ends[order]
        place = np.full(neuron_count, -1, dtype=np.int64)
        place[order] = self.run_of
        self.arriving = self._arriving(network)
        self.leaving = _in_order(arrays.outputs, self._together(place[arrays.outputs], network.transposed.outputs))

    def _arriving(self, network: WavefrontNetwork) -> Indices:
        """Return the inputs that are read, in the order in which they arrive, and when."""
        alive = lifetimes_of(network.input_count, network.arrays, network.wavefront)
        transposed = Transposed(inputs=network.transposed.inputs)
        first = alive.transposed(network.input_count, network.arrays.outputs, transposed).first[: network.input_count]
        # runs of the wavefront may be cut by activations: a row arrives with the first piece
        pieces = np.searchsorted(self.starts, indices_of(network.wavefront.runs))
        arriving = _in_order(np.arange(network.input_count), self._together(first, transposed.inputs))
        return np.stack([arriving[0], pieces[arriving[1]]])

    @staticmethod
    def _together(runs: Indices, transposed: bool) -> Indices:
        """Return when inputs arrive or outputs leave, all of a line when the last of it does."""
        return runs.reshape(-1, NEIGHBOURS).max(axis=1).repeat(NEIGHBOURS) if transposed else runs


def _in_order(neurons: Indices, runs: Indices) -> Indices:
    """Return those neurons that have a run, by their runs, and these."""
    order = np.argsort(runs, kind="stable")
    order = order[runs[order] >= 0]
    return np.stack([neurons[order], runs[order]])


def pack_wavefront(network: WavefrontNetwork) -> Words:
    """Return the stream of a network."""
    layout, arrays = _Layout(network), network.arrays
    slots, count = indices_of(network.wavefront.slots), len(layout.starts)
    into = _Moves(layout.arriving, network.inputs[0] if network.transposed.inputs else 0)
    out = _Moves(layout.leaving, network.outputs[0] if network.transposed.outputs else 0)
    arrivals, departures = into.counts(count), out.counts(count)
    sizes = NEURON_WORDS + layout.counts + (layout.counts + 1) // 2
    neurons = np.bincount(layout.run_of, weights=sizes, minlength=count).astype(np.int64)
    totals = HEAD_WORDS + into.words * arrivals + out.words * departures + neurons
    heads = np.cumsum(totals) - totals
    words = np.zeros(int(totals.sum()) + HEAD_WORDS + WORDS_AHEAD, dtype=np.uint32)
    for index, values in enumerate((layout.lengths, arrivals, departures, layout.activations + 1)):
        words[heads + index] = values
    places = _places(network)
    into.write(words, heads + HEAD_WORDS, (slots, places))
    out.write(words, heads + HEAD_WORDS + into.words * arrivals + neurons, (slots, places))
    before = np.cumsum(sizes) - sizes
    own = before - before[layout.starts][layout.run_of]
    at = (heads + HEAD_WORDS + into.words * arrivals)[layout.run_of] + own
    words[at] = slots[layout.order] | (layout.counts << 16)
    words[at + 1] = arrays.biases.view(np.uint32)[layout.order - network.input_count]
    within = np.arange(int(layout.counts.sum())) - np.repeat(np.cumsum(layout.counts) - layout.counts, layout.counts)
    chosen = layout.connections[np.repeat(layout.firsts, layout.counts) + within]
    words[np.repeat(at + NEURON_WORDS, layout.counts) + within] = arrays.weights.view(np.uint32)[chosen]
    halves = words.view(np.uint16)
    halves[np.repeat(2 * (at + NEURON_WORDS + layout.counts), layout.counts) + within] = slots[arrays.sources[chosen]]
    return words


@dataclass(frozen=True)
class _Moves:
    """Neurons that arrive or leave and their runs, ascending, [2, neurons]; transposed, `NEIGHBOURS` come together."""

    moving: Indices
    features: int
    """Of a row of the batch where neurons are transposed, otherwise 0."""

    @property
    def words(self) -> int:
        """Words of a move."""
        return TRANSPOSE_WORDS if self.features else MOVE_WORDS

    def counts(self, runs: int) -> Indices:
        """Return the moves of each run."""
        return np.bincount(self._each()[1], minlength=runs)

    def write(self, words: Words, starts: Indices, where: tuple[Indices, Indices]) -> None:
        """Write the moves from the place where those of each run start; `where` is slots and places of neurons."""
        slots, places = where
        neurons, runs = self._each()
        counts = self.counts(len(starts))
        within = np.arange(len(runs)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = np.repeat(starts, counts) + self.words * within
        if self.features:
            behind = slots.max(initial=-1) + 1
            own = slots[self.moving[0].reshape(-1, NEIGHBOURS)]
            words[at[:, None] + np.arange(NEIGHBOURS)] = np.where(own < 0, behind, own)
            at = at + NEIGHBOURS
            words[at + 2] = self.features
        else:
            words[at] = slots[neurons]
            at = at + 1
        words[at], words[at + 1] = places[neurons].T

    def _each(self) -> Indices:
        """Return the first neuron and the run of each move."""
        return self.moving[:, ::NEIGHBOURS] if self.features else self.moving


def _places(network: WavefrontNetwork) -> Indices:
    """Return buffer and row of inputs and outputs, [neurons, 2]."""
    places = np.zeros((network.input_count + len(network.arrays.biases), 2), dtype=np.int64)
    ends = np.concatenate([np.arange(network.input_count), network.arrays.outputs])
    widths = np.array([*network.inputs, *network.outputs])
    buffers = np.repeat(np.arange(len(widths)), widths)
    places[ends, 0] = buffers
    places[ends, 1] = np.arange(len(ends)) - (np.cumsum(widths) - widths)[buffers]
    return places
