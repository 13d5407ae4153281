"""A depth-first order of neurons as a stream of packed words, run by run: rows that arrive, neurons, rows that leave.

Words are u32. A run is a head [neurons, arrivals, departures, activation's number + 1]; then [slot, buffer, row] for
each row that arrives; then the neurons, [slot and connections in 16 bits each, bias as f32], their weights as f32, and
the slots of their sources in 16 bits each, an even number of them; then [slot, buffer, row] for each row that leaves. A
head without neurons is the end. Buffer 0 holds inputs, buffer 1 outputs. All neurons of a run have one activation.

Where inputs come from rows of the batch, what arrives is [16 slots, buffer, first feature, features of a row] instead:
16 features, which are transposed. Likewise for outputs. One that is not alive has the slot behind all others.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...dialect.attributes.depth_first_order import (
    DepthFirstOrderAttr,
    Lifetimes,
    Transposed,
    lifetimes_of,
)
from ...dialect.attributes.weighted_graph import WeightedGraph
from ...sparse.csr import Indices
from ...sparse.neuron_graph import NEIGHBOURS, NeuronGraph

HEAD_WORDS = 4
MOVE_WORDS = 3
TRANSPOSE_WORDS = NEIGHBOURS + 3
NEURON_WORDS = 2
"""Words of a neuron before its weights."""

WORDS_AHEAD = 1024
"""Words behind the end that may be fetched."""

Words = NDArray[np.uint32]


class _Layout:
    """Offsets in the stream."""

    def __init__(self, network: WeightedGraph, found: DepthFirstOrderAttr, transposed: Transposed) -> None:
        order, run_of = found.order, found.run_of
        graph = network.graph
        self.input_count = network.input_count
        activation_of = network.activation_of[order - self.input_count]
        changes = np.append(0, np.flatnonzero(np.diff(run_of) | np.diff(activation_of)) + 1)[: max(1, len(order))]
        self.order = order
        self.starts: Indices = changes if len(order) else np.zeros(0, dtype=np.int64)
        """The place in the order where each run of one activation starts."""
        self.lengths = np.diff(np.append(self.starts, len(order)))
        self.activations = activation_of[self.starts]
        self.run_of = np.repeat(np.arange(len(self.starts)), self.lengths)
        self.counts, self.connections = graph.in_degrees[order], graph.incoming.taken(order).indices
        run_of_neuron = np.full(graph.neuron_count, -1, dtype=np.int64)
        run_of_neuron[order] = self.run_of
        self.arriving = self._arriving(lifetimes_of(graph, found), found, transposed.inputs)
        self.leaving = _in_order(graph.outputs, self._in_turn(run_of_neuron[graph.outputs], transposed.outputs))

    def _arriving(self, alive: Lifetimes, found: DepthFirstOrderAttr, transposed: bool) -> Indices:
        """Return the inputs that are read, in the order in which they arrive, and when, [2, inputs read]."""
        none = np.zeros(0, dtype=np.int64)
        first = alive.transposed(self.input_count, none, Transposed(inputs=transposed)).first[: self.input_count]
        # a run may be cut by activations: a row arrives with the first of what it is cut into
        starts = np.searchsorted(self.starts, found.runs)
        arriving = _in_order(np.arange(self.input_count), self._in_turn(first, transposed))
        return np.stack([arriving[0], starts[arriving[1]]])

    @staticmethod
    def _in_turn(runs: Indices, transposed: bool) -> Indices:
        """Return when inputs arrive or outputs leave, all of a line when the last of it does."""
        return runs.reshape(-1, NEIGHBOURS).max(axis=1).repeat(NEIGHBOURS) if transposed else runs


def _in_order(neurons: Indices, runs: Indices) -> Indices:
    """Return those neurons that have a run, by their runs, and these."""
    order = np.argsort(runs, kind="stable")
    order = order[runs[order] >= 0]
    return np.stack([neurons[order], runs[order]])


def pack_neurons(network: WeightedGraph, found: DepthFirstOrderAttr, transposed: Transposed) -> Words:
    """Return the stream of a graph in a depth-first order, [words]; transposed ends are rows of the batch."""
    layout = _Layout(network, found, transposed)
    slots, count = found.slots, len(layout.starts)
    into = _Moves(layout.arriving, layout.input_count if transposed.inputs else 0)
    out = _Moves(layout.leaving, len(network.graph.outputs) if transposed.outputs else 0)
    arrivals, departures = into.counts(count), out.counts(count)
    sizes = NEURON_WORDS + layout.counts + (layout.counts + 1) // 2
    neurons = np.bincount(layout.run_of, weights=sizes, minlength=count).astype(np.int64)
    totals = HEAD_WORDS + into.words * arrivals + out.words * departures + neurons
    heads = np.cumsum(totals) - totals
    words = np.zeros(int(totals.sum()) + HEAD_WORDS + WORDS_AHEAD, dtype=np.uint32)
    for index, values in enumerate((layout.lengths, arrivals, departures, layout.activations + 1)):
        words[heads + index] = values
    rows = _buffer_rows(network.graph)
    into.write(words, heads + HEAD_WORDS, slots, rows)
    out.write(words, heads + HEAD_WORDS + into.words * arrivals + neurons, slots, rows)
    before = np.cumsum(sizes) - sizes
    own = before - before[layout.starts][layout.run_of]
    at = (heads + HEAD_WORDS + into.words * arrivals)[layout.run_of] + own
    words[at] = slots[layout.order] | (layout.counts << 16)
    words[at + 1] = network.biases.view(np.uint32)[layout.order - layout.input_count]
    within = np.arange(int(layout.counts.sum())) - np.repeat(np.cumsum(layout.counts) - layout.counts, layout.counts)
    words[np.repeat(at + NEURON_WORDS, layout.counts) + within] = network.weights.view(np.uint32)[layout.connections]
    halves, sources = words.view(np.uint16), network.graph.sources[layout.connections]
    halves[np.repeat(2 * (at + NEURON_WORDS + layout.counts), layout.counts) + within] = slots[sources]
    return words


@dataclass(frozen=True)
class _Moves:
    """Neurons that arrive or leave and their runs, ascending, [2, neurons]; transposed, `NEIGHBOURS` come together."""

    moving: Indices
    features: int
    """Features of a row of the batch where neurons are transposed, otherwise 0."""

    @property
    def words(self) -> int:
        """Words of a move."""
        return TRANSPOSE_WORDS if self.features else MOVE_WORDS

    def counts(self, runs: int) -> Indices:
        """Return the moves of each run."""
        return np.bincount(self._each()[1], minlength=runs)

    def write(self, words: Words, starts: Indices, slots: Indices, rows: Indices) -> None:
        """Write the moves from where those of each run start, given the slots and buffer rows of neurons."""
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
        words[at], words[at + 1] = rows[neurons].T

    def _each(self) -> Indices:
        """Return the first neuron and the run of each move."""
        return self.moving[:, ::NEIGHBOURS] if self.features else self.moving


def _buffer_rows(graph: NeuronGraph) -> Indices:
    """Return buffer and row of each input, in buffer 0, and of each output, in buffer 1, [neurons, 2]."""
    rows = np.zeros((graph.neuron_count, 2), dtype=np.int64)
    rows[graph.inputs, 1] = np.arange(len(graph.inputs))
    rows[graph.outputs, 0] = 1
    rows[graph.outputs, 1] = np.arange(len(graph.outputs))
    return rows
