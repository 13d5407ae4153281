"""The native loop that runs a stream of connections on a tile: see `redpebble.lowering.neurons.connection_stream`.

The order of loads and stores is data, which no optimisation of LLVM can change.

Registers, for up to 8 vectors v of batch columns, one lane a column:

    run into one target   sum[v] = slot[target][v]; for each entry sum[v] += w * slot[source][v]; stored at the end
    run out of a source   x[v] = slot[source][v]; for each entry slot[target][v] += w * x[v], loaded and stored
    moves                 v = one row of a buffer or slot, loaded and stored; w is a weight in every lane
"""

from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from ...dialect.attributes.activations import ActivationAttr
from ..kernels.kernel_form import activated, activation_key
from ..llvm.builder import Code, column_chunks
from ..llvm.flow import Blocks, fold, loop
from ..llvm.values import Floats, Ints, Number, Pointers
from ..llvm.vectors import Lanes
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
    lanes = code.column_lanes(form.width)

    @code.kernel(f"network_{form.key}")
    def kernel(stream: Ints, slots: Floats, buffers: Pointers) -> None:
        kinds = {f"kind{number}": number for number in range(END + 1, ACTIVATE_FIRST + len(form.activations))}
        flow = Blocks(stream.builder, "head", "after")
        # read a head, run its entries, go on behind them, until the end
        before = flow.enter("head")
        cursor = flow.merged({before: stream})
        kind, count, operand = (cursor.narrow(index) for index in range(HEAD_WORDS))
        run = _Run(cursor.at(HEAD_WORDS), count, operand)
        flow.switch(kind, {name: [number] for name, number in kinds.items()}, "after")
        for name, number in kinds.items():
            flow.at(name)
            for first, vectors in column_chunks(form.width, lanes, MOST_VECTORS):
                _Chunk(form, code.lanes(stream, lanes), slots, buffers, first, vectors).emit(number, run)
            # the next head stands behind the entries
            flow.come_back(cursor, run.entries.at(run.entry_count.wide() * _entry_words(number)))
            flow.go("head")
        flow.at("after")

    return kernel


class _Run(NamedTuple):
    """Entries of one kind that stand side by side in the stream, and the slot that they have in common."""

    entries: Ints
    entry_count: Number
    """Number of 32 bits, like the slot."""
    operand: Number


def _entry_words(kind: int) -> int:
    return ENTRY_WORDS[min(kind, ACTIVATE_FIRST)]


@dataclass(frozen=True)
class _Chunk:
    """Some vectors of every row, from a column on."""

    form: NetworkForm
    lanes: Lanes
    slots: Floats
    buffers: Pointers
    first: int
    vectors: int

    def emit(self, kind: int, run: _Run) -> None:
        """Emit a run of a kind."""
        if kind == SUM:
            self._emit_sum(run)
        elif kind == SPREAD:
            self._emit_spread(run)
        else:
            with loop(run.entry_count.wide()) as index:
                self._emit_move(kind, run.entries.at(index * _entry_words(kind)))

    def _emit_sum(self, run: _Run) -> None:
        """Emit a run into one target, whose sums stay in registers."""
        lanes, target = self.lanes, self._slot(run.operand.wide())

        def add(index: Number, sums: list[ir.Value]) -> list[ir.Value]:
            entry = run.entries.at(index * ENTRY_WORDS[SUM])
            weight = lanes.splat(entry.cast(Floats)[1])
            return lanes.add_products(sums, weight, self._load(self._slot(entry[0])))

        lanes.put(target, fold(run.entry_count.wide(), self._load(target), add))

    def _emit_spread(self, run: _Run) -> None:
        """Emit a run out of one source, whose values stay in registers."""
        lanes, values = self.lanes, self._load(self._slot(run.operand.wide()))
        with loop(run.entry_count.wide()) as index:
            entry = run.entries.at(index * ENTRY_WORDS[SPREAD])
            weight = lanes.splat(entry.cast(Floats)[1])
            target = self._slot(entry[0])
            lanes.put(target, lanes.add_products(self._load(target), weight, values))

    def _emit_move(self, kind: int, entry: Ints) -> None:
        slot, lanes = self._slot(entry[0]), self.lanes
        if kind == LOAD_BIASES:
            lanes.put(slot, [lanes.splat(entry.cast(Floats)[1])] * self.vectors)
        elif kind == LOAD_ROWS:
            lanes.put(slot, self._load(self._slow_row(entry)))
        elif kind == STORE_ROWS:
            values = self._load(slot)
            lanes.put(self._slow_row(entry), values)
        else:
            lanes.put(slot, activated(lanes, self.form.activations[kind - ACTIVATE_FIRST], self._load(slot)))

    def _slot(self, slot: Number) -> Floats:
        return self._row(self.slots, slot)

    def _slow_row(self, entry: Ints) -> Floats:
        """Return the address of a row of slow memory, which an entry names by buffer and row."""
        return self._row(self.buffers[entry[1]].cast(Floats), entry[2])

    def _row(self, buffer: Floats, row: Number) -> Floats:
        return buffer.at(row * self.form.width + self.first)

    def _load(self, address: Floats) -> list[ir.Value]:
        return list(self.lanes.vectors(address, self.vectors))
