"""The native loop that runs a depth-first order of neurons on a tile: see `redpebble.lowering.neurons.neuron_stream`.

A neuron's sums stay in registers from its bias to its activation; the rows of its sources are read where their slots
are, in the first- and second-level cache. What is streamed from farther away is the stream itself, fetched ahead.

Registers, for up to 8 vectors v of batch columns of one neuron:

    sum[v]  one lane a column; begins as the bias in every lane
    w       weight of a connection in every lane        vbroadcastss from the stream
    sum[v] += w * slot[source][v]                       one fma with a memory operand
    sum[v]  = activation(sum[v])                        stored into the neuron's own slot
"""

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.attributes.depth_first_order import Transposed
from ...sparse.neuron_graph import NEIGHBOURS
from ..kernels.kernel_form import activated
from ..llvm.builder import (
    ALIGNMENT,
    FLOAT_BYTES,
    I32,
    I64,
    POINTER,
    Code,
    column_chunks,
    counted_loop,
    float_at,
    i64,
    reduce_loop,
)
from ..llvm.transposition import BatchRows, transpose_into_columns, transpose_into_rows
from ..llvm.values import I16, Bytes, Floats, Number
from ..llvm.vectors import FLOAT, Lanes
from .connection_kernel import MOST_VECTORS, NetworkForm
from .neuron_stream import HEAD_WORDS, MOVE_WORDS, NEURON_WORDS, TRANSPOSE_WORDS

STEPS = 4
"""Connections of one step of the unrolled loop, for which one line of the stream is fetched."""

BYTES_AHEAD = 2048
"""Bytes by which the stream is fetched ahead: it comes from the last-level cache or from memory."""

MOVES_AHEAD = 8
"""Rows to be moved that are fetched ahead."""


def neuron_loop(code: Code, form: NetworkForm, transposed: Transposed) -> ir.Function:
    """Return `void (stream, slots, table of buffers, rows that the columns stand for)`.

    The buffer of what is transposed is row-major.
    """

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        _Loop(code, builder, form, transposed, *args[1:]).emit(args[0])

    ends = "".join(word[0] if so else "" for word, so in zip(("into", "out"), transposed, strict=True))
    return code.function(f"neurons_{form.key}_{ends}", [POINTER, POINTER, POINTER, I64], body)


@dataclass(frozen=True)
class _Loop:
    """The loop under construction."""

    code: Code
    builder: ir.IRBuilder
    form: NetworkForm
    transposed: Transposed
    slots: ir.Value
    buffers: ir.Value
    """The table of the addresses of buffers."""
    row_count: ir.Value
    """Rows that the columns stand for."""

    def emit(self, stream: ir.Value) -> None:
        """Emit: read a head, move rows in, compute neurons, move rows out, until there are no neurons."""
        builder = self.builder
        before, head = builder.block, builder.append_basic_block("head")
        inside, after = builder.append_basic_block("run"), builder.append_basic_block("after")
        builder.branch(head)
        builder.position_at_end(head)
        cursor = builder.phi(POINTER, "cursor")
        cursor.add_incoming(stream, before)
        neurons, arrivals, departures, activation = (_word(builder, cursor, index) for index in range(HEAD_WORDS))
        builder.cbranch(builder.icmp_unsigned("==", neurons, i64(0)), after, inside)
        builder.position_at_end(inside)
        into, out = (self._transpositions if so else self._moves for so in self.transposed)
        address = into(float_at(builder, cursor, i64(HEAD_WORDS)), arrivals, into_slots=True)
        address = self._neurons(address, neurons, activation)
        address = out(address, departures, into_slots=False)
        cursor.add_incoming(address, builder.block)
        builder.branch(head)
        builder.position_at_end(after)
        if self.transposed.outputs and self.lanes.width * FLOAT_BYTES == ALIGNMENT:
            self.lanes.finish_past_caches()

    def _moves(self, entries: ir.Value, count: ir.Value, *, into_slots: bool) -> ir.Value:
        """Emit rows that arrive or leave; return the address behind their entries."""
        builder, lanes = self.builder, self.lanes
        line_count = max(1, self.form.width * FLOAT_BYTES // ALIGNMENT)
        with counted_loop(builder, count) as index:
            entry = float_at(builder, entries, builder.mul(index, i64(MOVE_WORDS)))
            ahead = builder.add(index, i64(MOVES_AHEAD))
            with builder.if_then(builder.icmp_signed("<", ahead, count)):
                later = float_at(builder, entries, builder.mul(ahead, i64(MOVE_WORDS)))
                Bytes(builder, self._buffer_row(later)).fetch(line_count)
            slot, row = self._slot(_word(builder, entry, 0)), self._buffer_row(entry)
            source, target = (row, slot) if into_slots else (slot, row)
            for first in range(0, self.form.width, lanes.width):
                value = lanes.load(float_at(builder, source, i64(first)), FLOAT_BYTES * lanes.width)
                lanes.store(value, float_at(builder, target, i64(first)), FLOAT_BYTES * lanes.width)
        return float_at(builder, entries, builder.mul(count, i64(MOVE_WORDS)))

    def _transpositions(self, entries: ir.Value, count: ir.Value, *, into_slots: bool) -> ir.Value:
        """Emit rows of the batch that are transposed into slots, or slots into them; return the address behind."""
        builder, width = self.builder, self.form.width
        with counted_loop(builder, count) as index:
            entry = float_at(builder, entries, builder.mul(index, i64(TRANSPOSE_WORDS)))
            slots = [self._slot(_word(builder, entry, number)) for number in range(NEIGHBOURS)]
            number, feature, stride = (_word(builder, entry, NEIGHBOURS + word) for word in range(3))
            buffer = builder.load(builder.gep(self.buffers, [number], source_etype=POINTER), typ=POINTER)
            first_row = Floats(builder, float_at(builder, buffer, feature))
            rows = BatchRows(first_row, Number(builder, stride), Number(builder, self.row_count))
            with counted_loop(builder, i64(width), self.lanes.width) as first:
                columns = [Floats(builder, float_at(builder, slot, first)) for slot in slots]
                transpose = transpose_into_columns if into_slots else transpose_into_rows
                transpose(self.lanes, columns, rows, Number(builder, first))
        return float_at(builder, entries, builder.mul(count, i64(TRANSPOSE_WORDS)))

    def _neurons(self, first: ir.Value, count: ir.Value, activation: ir.Value) -> ir.Value:
        """Emit the neurons of a run, by its activation; return the address behind them."""
        builder = self.builder
        choices = (None, *self.form.activations)
        after = builder.append_basic_block("computed")
        unknown = builder.append_basic_block("unknown")
        choice = builder.switch(activation, unknown)
        with builder.goto_block(unknown):
            builder.unreachable()
        ends: list[tuple[ir.Value, ir.Block]] = []
        for number, chosen in enumerate(choices):
            case = builder.append_basic_block(f"activation{number}")
            choice.add_case(i64(number), case)
            builder.position_at_end(case)
            (end,) = reduce_loop(
                builder, count, [first], lambda _, neurons, chosen=chosen: [self._neuron(neurons[0], chosen)]
            )
            ends.append((end, builder.block))
            builder.branch(after)
        builder.position_at_end(after)
        behind = builder.phi(POINTER)
        for end, block in ends:
            behind.add_incoming(end, block)
        return behind

    def _neuron(self, neuron: ir.Value, activation: ActivationAttr | None) -> ir.Value:
        """Emit one neuron; return the address behind it."""
        builder = self.builder
        packed = _word(builder, neuron, 0)
        slot, count = builder.and_(packed, i64(0xFFFF)), builder.lshr(packed, i64(16))
        weights = float_at(builder, neuron, i64(NEURON_WORDS))
        offsets = float_at(builder, weights, count)
        bias = builder.load(float_at(builder, neuron, i64(1)), typ=FLOAT)
        Bytes(builder, neuron).after(BYTES_AHEAD).fetch(1)
        for first, vectors in column_chunks(self.form.width, self.lanes.width, MOST_VECTORS):
            chunk = _Chunk(self, weights, offsets, first, vectors)
            sums = chunk.products(count, [self.lanes.splat(bias)] * vectors)
            target = float_at(builder, self._slot(slot), i64(first))
            for index, value in enumerate(activated(self.lanes, activation, sums)):
                address = float_at(builder, target, i64(index * self.lanes.width))
                self.lanes.store(value, address, FLOAT_BYTES * self.lanes.width)
        pairs = builder.lshr(builder.add(count, i64(1)), i64(1))
        return float_at(builder, offsets, pairs)

    @property
    def lanes(self) -> Lanes:
        """Vectors of columns."""
        return self.code.lanes(self.builder, self.code.column_lanes(self.form.width))

    def _slot(self, slot: ir.Value) -> ir.Value:
        return self.row_of(self.slots, slot)

    def _buffer_row(self, entry: ir.Value) -> ir.Value:
        """Return the address of the row of a buffer that an entry names."""
        builder = self.builder
        number = _word(builder, entry, 1)
        buffer = builder.load(builder.gep(self.buffers, [number], source_etype=POINTER), typ=POINTER)
        return self.row_of(buffer, _word(builder, entry, 2))

    def row_of(self, buffer: ir.Value, row: ir.Value) -> ir.Value:
        """Return the address of a row."""
        return float_at(self.builder, buffer, self.builder.mul(row, i64(self.form.width)))


@dataclass(frozen=True)
class _Chunk:
    """Some vectors of every row, from a column on, for one neuron with its weights and the slots of its sources."""

    loop: _Loop
    weights: ir.Value
    offsets: ir.Value
    first: int
    vectors: int

    def products(self, count: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the sums after all connections, `STEPS` of them in each pass of the loop."""
        builder = self.loop.builder

        def some(index: ir.Value, current: Sequence[ir.Value]) -> list[ir.Value]:
            start = builder.mul(index, i64(STEPS))
            if self.first == 0:
                done = builder.mul(index, i64(STEPS * (FLOAT_BYTES + 2)))
                Bytes(builder, self.weights).after(Number(builder, done) + BYTES_AHEAD).fetch(1)
            values = list(current)
            for step in range(STEPS):
                values = self._step(builder.add(start, i64(step)), values)
            return values

        passes = builder.udiv(count, i64(STEPS))
        current = reduce_loop(builder, passes, sums, some)
        return reduce_loop(builder, count, current, self._step, start=builder.mul(passes, i64(STEPS)))

    def _step(self, index: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the sums after one connection."""
        builder, lanes = self.loop.builder, self.loop.lanes
        weight = lanes.splat(builder.load(float_at(builder, self.weights, index), typ=FLOAT))
        offset = builder.gep(self.offsets, [index], source_etype=I16)
        source = self.loop.row_of(self.loop.slots, builder.zext(builder.load(offset, typ=I16), I64))
        values = (
            lanes.load(float_at(builder, source, i64(self.first + number * lanes.width)), FLOAT_BYTES * lanes.width)
            for number in range(self.vectors)
        )
        return [lanes.fma(weight, value, total) for value, total in zip(values, sums, strict=True)]


def _word(builder: ir.IRBuilder, table: ir.Value, index: int) -> ir.Value:
    """Return an unsigned 32-bit word of the stream."""
    return builder.zext(builder.load(float_at(builder, table, i64(index)), typ=I32), I64)
