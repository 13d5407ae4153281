"""The native loop that runs a depth-first order of neurons on a tile: see `redpebble.lowering.neurons.neuron_stream`.

A neuron's sums stay in registers from its bias to its activation; the rows of its sources are read where their slots
are, in the first- and second-level cache. What is streamed from farther away is the stream itself, fetched ahead.

Registers, for up to 8 vectors v of batch columns of one neuron:

    sum[v]  one lane a column; begins as the bias in every lane
    w       weight of a connection in every lane        vbroadcastss from the stream
    sum[v] += w * slot[source][v]                       one fma with a memory operand
    sum[v]  = activation(sum[v])                        stored into the neuron's own slot
"""

from dataclasses import dataclass

from llvmlite import ir

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.attributes.depth_first_order import Transposed
from ...sparse.neuron_graph import NEIGHBOURS
from ..kernels.kernel_form import activated, activation_key
from ..llvm.builder import Code, column_chunks
from ..llvm.flow import Blocks, fold, loop, when
from ..llvm.transposition import BatchRows, transpose_into_columns, transpose_into_rows
from ..llvm.values import ALIGNMENT, FLOAT_BYTES, Floats, Ints, Number, Pointers, Shorts
from ..llvm.vectors import Lanes
from .neuron_stream import HEAD_WORDS, MOVE_WORDS, NEURON_WORDS, TRANSPOSE_WORDS

MOST_VECTORS = 8
"""Vectors of a row held at once: they, a weight and an operand must fit 16 registers."""

STEPS = 4
"""Connections of one step of the unrolled loop, for which one line of the stream is fetched."""

BYTES_AHEAD = 2048
"""Bytes by which the stream is fetched ahead: it comes from the last-level cache or from memory."""

MOVES_AHEAD = 8
"""Rows to be moved that are fetched ahead."""


@dataclass(frozen=True)
class NetworkForm:
    """The form of a loop over neurons: batch columns of the tile, and the activations of the network."""

    width: int
    activations: tuple[ActivationAttr, ...]

    @property
    def key(self) -> str:
        """The end of the names of its functions."""
        return "_".join([f"w{self.width}", *(activation_key(activation) for activation in self.activations)])


def neuron_loop(code: Code, form: NetworkForm, transposed: Transposed) -> ir.Function:
    """Return `void (stream, slots, table of buffers, rows that the columns stand for)`.

    The buffer of what is transposed is row-major.
    """
    ends = "".join(word[0] if so else "" for word, so in zip(("into", "out"), transposed, strict=True))

    @code.kernel(f"neurons_{form.key}_{ends}")
    def kernel(stream: Ints, slots: Floats, buffers: Pointers, row_count: Number) -> None:
        lanes = code.lanes(stream, code.column_lanes(form.width))
        _Loop(lanes, form, transposed, slots, buffers, row_count).emit(stream)

    return kernel


@dataclass(frozen=True)
class _Loop:
    """The loop under construction."""

    lanes: Lanes
    form: NetworkForm
    transposed: Transposed
    slots: Floats
    buffers: Pointers
    row_count: Number
    """Rows that the columns stand for."""

    def emit(self, stream: Ints) -> None:
        """Emit: read a head, move rows in, compute neurons, move rows out, until there are no neurons."""
        flow = Blocks(stream.builder, "head", "run", "after")
        before = flow.enter("head")
        cursor = flow.merged({before: stream})
        # a head: the numbers of neurons and of moves before and after them; without neurons it is the end
        neurons, arrivals, departures, activation = (cursor[index] for index in range(HEAD_WORDS))
        flow.branch(neurons == 0, "after", "run")
        flow.at("run")
        into, out = (self._transpositions if so else self._moves for so in self.transposed)
        behind = into(cursor.at(HEAD_WORDS), arrivals, into_slots=True)
        behind = self._neurons(behind, neurons, activation)
        behind = out(behind, departures, into_slots=False)
        flow.come_back(cursor, behind)
        flow.go("head")
        flow.at("after")
        if self.transposed.outputs and self.lanes.size == ALIGNMENT:
            self.lanes.finish_past_caches()

    def _moves(self, entries: Ints, count: Number, *, into_slots: bool) -> Ints:
        """Emit rows that arrive or leave; return the address behind their entries."""
        lanes = self.lanes
        line_count = max(1, self.form.width * FLOAT_BYTES // ALIGNMENT)
        with loop(count) as index:
            entry = entries.at(index * MOVE_WORDS)
            # a later row is fetched ahead
            ahead = index + MOVES_AHEAD
            with when(ahead < count):
                self._buffer_row(entries.at(ahead * MOVE_WORDS)).fetch(line_count)
            slot, row = self._row(self.slots, entry[0]), self._buffer_row(entry)
            source, target = (row, slot) if into_slots else (slot, row)
            lanes.put(target, lanes.vectors(source, self.form.width // lanes.width))
        return entries.at(count * MOVE_WORDS)

    def _transpositions(self, entries: Ints, count: Number, *, into_slots: bool) -> Ints:
        """Emit rows of the batch that are transposed into slots, or slots into them; return the address behind."""
        transpose = transpose_into_columns if into_slots else transpose_into_rows
        with loop(count) as index:
            entry = entries.at(index * TRANSPOSE_WORDS)
            # an entry: the slots of neighbours, their buffer, the first feature, and the features of a row
            slots = [self._row(self.slots, entry[number]) for number in range(NEIGHBOURS)]
            number, feature, stride = (entry[NEIGHBOURS + word] for word in range(3))
            rows = BatchRows(self.buffers[number].cast(Floats).at(feature), stride, self.row_count)
            with loop(count.constant(self.form.width), self.lanes.width) as first:
                transpose(self.lanes, [slot.at(first) for slot in slots], rows, first)
        return entries.at(count * TRANSPOSE_WORDS)

    def _neurons(self, first: Ints, count: Number, activation: Number) -> Ints:
        """Emit the neurons of a run, by its activation; return the address behind them."""
        choices = {f"activation{number}": one for number, one in enumerate((None, *self.form.activations))}
        flow = Blocks(first.builder, "computed")
        flow.switch(activation, {name: [number] for number, name in enumerate(choices)})
        ends: dict[ir.Block, Ints] = {}
        for name, chosen in choices.items():
            flow.at(name)
            end = fold(count, first, lambda _, neuron, chosen=chosen: self._neuron(neuron, chosen))
            ends[flow.go("computed")] = end
        flow.at("computed")
        return flow.merged(ends)

    def _neuron(self, neuron: Ints, activation: ActivationAttr | None) -> Ints:
        """Emit one neuron; return the address behind it."""
        # a neuron: its slot and number of connections in a word, its bias, their weights, the slots of their sources
        lanes, packed = self.lanes, neuron[0]
        slot, count = packed & 0xFFFF, packed >> 16
        weights = neuron.at(NEURON_WORDS)
        sources = weights.at(count)
        bias = neuron.cast(Floats)[1]
        neuron.after(BYTES_AHEAD).fetch(1)
        for first, vectors in column_chunks(self.form.width, lanes.width, MOST_VECTORS):
            chunk = _Chunk(self, weights.cast(Floats), sources.cast(Shorts), first, vectors)
            sums = chunk.products(count, [lanes.splat(bias)] * vectors)
            target = self._row(self.slots, slot).at(first)
            lanes.put(target, activated(lanes, activation, sums))
        # two sources share a word
        return sources.at((count + 1) >> 1)

    def _buffer_row(self, entry: Ints) -> Floats:
        return self._row(self.buffers[entry[1]].cast(Floats), entry[2])

    def _row(self, buffer: Floats, row: Number) -> Floats:
        return buffer.at(row * self.form.width)

    def source(self, slot: Number, first: int) -> Floats:
        """Return the address of a column of a slot."""
        return self._row(self.slots, slot).at(first)


@dataclass(frozen=True)
class _Chunk:
    """Some vectors of every row, from a column on, for one neuron with its weights and the slots of its sources."""

    loop: _Loop
    weights: Floats
    sources: Shorts
    first: int
    vectors: int

    def products(self, count: Number, sums: list[ir.Value]) -> list[ir.Value]:
        """Return the sums after all connections, `STEPS` of them in each pass of the loop."""

        def some(index: Number, sums: list[ir.Value]) -> list[ir.Value]:
            start = index * STEPS
            if self.first == 0:
                # later columns find the stream in the cache
                self.weights.after(index * (STEPS * (FLOAT_BYTES + 2)) + BYTES_AHEAD).fetch(1)
            for step in range(STEPS):
                sums = self._step(start + step, sums)
            return sums

        passes = count // STEPS
        return fold(count, fold(passes, sums, some), self._step, start=passes * STEPS)

    def _step(self, index: Number, sums: list[ir.Value]) -> list[ir.Value]:
        lanes = self.loop.lanes
        weight = lanes.splat(self.weights[index])
        source = self.loop.source(self.sources[index], self.first)
        return lanes.add_products(sums, weight, lanes.vectors(source, self.vectors))
