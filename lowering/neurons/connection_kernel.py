"""The native loop that runs a stream of connections on a tile: see `redpebble.lowering.neurons.connection_stream`.

The order of loads and stores is data, which no optimisation of LLVM can change.

Registers, for up to 8 vectors v of batch columns, one lane a column:

    run into one target   sum[v] = slot[target][v]; for each entry sum[v] += w * slot[source][v]; stored at the end
    run out of a source   x[v] = slot[source][v]; for each entry slot[target][v] += w * x[v], loaded and stored
    moves                 v = one row of a buffer or slot, loaded and stored; w is a weight in every lane
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from ...dialect.attributes.activations import ActivationAttr
from ..kernels.kernel_form import activated, activation_key
from ..llvm.builder import I32, I64, POINTER, Code, column_chunks, float_at, i64, reduce_loop
from ..llvm.vectors import FLOAT, Lanes
from .connection_stream import (
    ACTIVATE_FIRST,
    END,
    ENTRY_WORDS,
    HEAD_WORDS,
    LOAD_BIASES,
    LOAD_ROWS,
    SPREAD,
    STORE_ROWS,
    SUM,
)

MOST_VECTORS = 8
"""Vectors of a row held at once: they, a weight and an operand must fit 16 registers."""


@dataclass(frozen=True)
class NetworkForm:
    """The form of a loop over connections: batch columns of the tile, and the activations of the network."""

    width: int
    activations: tuple[ActivationAttr, ...]

    @property
    def key(self) -> str:
        """The end of the names of its functions."""
        return "_".join([f"w{self.width}", *(activation_key(activation) for activation in self.activations)])


def network_loop(code: Code, form: NetworkForm) -> ir.Function:
    """Return `void (stream, slots, table of buffers)`."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        _Loop(code, builder, form, args[1], args[2]).emit(args[0])

    return code.function(f"network_{form.key}", [POINTER] * 3, body)


Entry = Callable[[ir.Value], None]


@dataclass(frozen=True)
class _Loop:
    """The loop under construction."""

    code: Code
    builder: ir.IRBuilder
    form: NetworkForm
    slots: ir.Value
    buffers: ir.Value
    """The table of the addresses of buffers."""

    def emit(self, stream: ir.Value) -> None:
        """Emit: read a head, run its entries, go on behind them, until the end."""
        builder = self.builder
        before, head = builder.block, builder.append_basic_block("head")
        after = builder.append_basic_block("after")
        builder.branch(head)
        builder.position_at_end(head)
        cursor = builder.phi(POINTER, "cursor")
        cursor.add_incoming(stream, before)
        kind, count, operand = (self._word(cursor, index) for index in range(HEAD_WORDS))
        entries = float_at(builder, cursor, i64(HEAD_WORDS))
        choice = builder.switch(kind, after)
        activations = len(self.form.activations)
        for number in range(END + 1, ACTIVATE_FIRST + activations):
            case = builder.append_basic_block(f"kind{number}")
            choice.add_case(ir.Constant(I32, number), case)
            builder.position_at_end(case)
            following = self._emit_case(number, _Run(entries, count, operand))
            cursor.add_incoming(following, builder.block)
            builder.branch(head)
        builder.position_at_end(after)

    def _emit_case(self, kind: int, run: "_Run") -> ir.Value:
        """Emit a run of a kind; return the address behind it."""
        for first, vectors in column_chunks(self.form.width, self.lanes.width, MOST_VECTORS):
            chunk = _Chunk(self, first, vectors)
            match kind:
                case _ if kind == SUM:
                    chunk.emit_sum(run)
                case _ if kind == SPREAD:
                    chunk.emit_spread(run)
                case _:
                    chunk.emit_moves(kind, run)
        words = i64(ENTRY_WORDS[min(kind, ACTIVATE_FIRST)])
        return float_at(self.builder, run.entries, self.builder.mul(self.builder.zext(run.entry_count, I64), words))

    @property
    def lanes(self) -> Lanes:
        """Vectors of columns."""
        return self.code.lanes(self.builder, self.code.column_lanes(self.form.width))

    def _word(self, cursor: ir.Value, index: int) -> ir.Value:
        return self.builder.load(float_at(self.builder, cursor, i64(index)), typ=I32)


class _Run(NamedTuple):
    """Entries of one kind that stand side by side in the stream, and the slot that they have in common."""

    entries: ir.Value
    entry_count: ir.Value
    operand: ir.Value


@dataclass(frozen=True)
class _Chunk:
    """Some vectors of every row, from a column on."""

    loop: _Loop
    first: int
    vectors: int

    def emit_sum(self, run: _Run) -> None:
        """Emit a run into one target, whose sums stay in registers."""
        address = self._slot(run.operand)

        def add(entry: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
            weight = self.lanes.splat(self._float(entry, 1))
            values = self._load(self._slot(self._word(entry, 0)))
            return [self.lanes.fma(weight, value, total) for value, total in zip(values, sums, strict=True)]

        self._store(self._emit_loop(run, SUM, self._load(address), add), address)

    def emit_spread(self, run: _Run) -> None:
        """Emit a run out of one source, whose values stay in registers."""

        def add(entry: ir.Value, values: Sequence[ir.Value]) -> Sequence[ir.Value]:
            weight = self.lanes.splat(self._float(entry, 1))
            address = self._slot(self._word(entry, 0))
            sums = self._load(address)
            self._store([self.lanes.fma(weight, x, y) for x, y in zip(values, sums, strict=True)], address)
            return values

        self._emit_loop(run, SPREAD, self._load(self._slot(run.operand)), add)

    def emit_moves(self, kind: int, run: _Run) -> None:
        """Emit a run of loads, stores or activations."""

        def move(entry: ir.Value, _: Sequence[ir.Value]) -> Sequence[ir.Value]:
            slot = self._slot(self._word(entry, 0))
            match kind:
                case _ if kind == LOAD_BIASES:
                    self._store([self.lanes.splat(self._float(entry, 1))] * self.vectors, slot)
                case _ if kind == LOAD_ROWS:
                    self._store(self._load(self._slow_row(entry)), slot)
                case _ if kind == STORE_ROWS:
                    self._store(self._load(slot), self._slow_row(entry))
                case _:
                    activation = self.loop.form.activations[kind - ACTIVATE_FIRST]
                    self._store(activated(self.lanes, activation, self._load(slot)), slot)
            return []

        self._emit_loop(run, min(kind, ACTIVATE_FIRST), [], move)

    @property
    def lanes(self) -> Lanes:
        """Vectors of columns."""
        return self.loop.lanes

    def _emit_loop(
        self,
        run: _Run,
        kind: int,
        initial: Sequence[ir.Value],
        body: Callable[[ir.Value, Sequence[ir.Value]], Sequence[ir.Value]],
    ) -> list[ir.Value]:
        """Emit a loop over the entries of a run, which carries vectors."""
        builder = self.loop.builder

        def entry(index: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            return body(float_at(builder, run.entries, builder.mul(index, i64(ENTRY_WORDS[kind]))), carried)

        return reduce_loop(builder, builder.zext(run.entry_count, I64), initial, entry)

    def _slot(self, slot: ir.Value) -> ir.Value:
        return self._row(self.loop.slots, slot)

    def _slow_row(self, entry: ir.Value) -> ir.Value:
        """Return the address of a row of slow memory, which an entry names by buffer and row."""
        builder = self.loop.builder
        number = builder.zext(self._word(entry, 1), I64)
        buffer = builder.load(builder.gep(self.loop.buffers, [number], source_etype=POINTER), typ=POINTER)
        return self._row(buffer, self._word(entry, 2))

    def _row(self, buffer: ir.Value, row: ir.Value) -> ir.Value:
        builder = self.loop.builder
        start = builder.mul(builder.zext(row, I64), i64(self.loop.form.width))
        return float_at(builder, buffer, builder.add(start, i64(self.first)))

    def _word(self, entry: ir.Value, index: int) -> ir.Value:
        return self.loop.builder.load(float_at(self.loop.builder, entry, i64(index)), typ=I32)

    def _float(self, entry: ir.Value, index: int) -> ir.Value:
        return self.loop.builder.load(float_at(self.loop.builder, entry, i64(index)), typ=FLOAT)

    def _load(self, address: ir.Value) -> list[ir.Value]:
        lanes, builder = self.lanes, self.loop.builder
        return [
            lanes.load(float_at(builder, address, i64(index * lanes.width)), 4 * lanes.width)
            for index in range(self.vectors)
        ]

    def _store(self, values: Sequence[ir.Value], address: ir.Value) -> None:
        lanes, builder = self.lanes, self.loop.builder
        for index, value in enumerate(values):
            lanes.store(value, float_at(builder, address, i64(index * lanes.width)), 4 * lanes.width)
