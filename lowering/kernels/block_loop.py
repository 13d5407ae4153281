"""The loop that kernels over blocks of inputs share: groups of output rows, each with a number of connections.

For each block of inputs and each group of rows: read the rows' sums (the bias in the first block), multiply and add as
the kernel at hand does, apply the activation in the last block, write the sums. `kernels/row_segments.py` has the
arrays.

Registers, for a group of R rows and V vectors of batch columns, one lane a column:

    sum[r][v]  y[r][v], or the bias of row r in every lane
    w          weight of a connection in every lane               a broadcast
    sum[r][v] += w * x[input][v]                                  one fma with a memory operand for each v
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from ...dialect.attributes.activations import OF_FEW_INSTRUCTIONS, ActivationAttr
from ...kernels.row_segments import FETCH_OUTPUTS, FETCH_STREAMS, FIRST, LAST, OFFSET_UNIT, RECORDS_AHEAD
from ..llvm.builder import Code, column_chunks
from ..llvm.flow import Blocks, call, either, updated, when
from ..llvm.values import ALIGNMENT, FLOAT_BYTES, Floats, Ints, Number, Shorts
from ..llvm.vectors import Lanes
from .elementwise import activate
from .kernel_form import LinearForm, activated, activation_key

BLOCK_BYTES = 8

LEAST_COLUMNS = 32
"""Columns from which fetching rows of y ahead pays; narrower rows are small enough for the second-level cache."""

WEIGHTS_AHEAD, OFFSETS_AHEAD = (1024, 4), (512, 2)
"""Bytes by which weights and offsets are fetched ahead, and how many cache lines of each: those of a large group."""

Vectors = list[ir.Value]


@dataclass(frozen=True)
class Chunk:
    """Some vectors of columns in tiles of `width` columns, and what is applied to complete sums."""

    width: int
    vectors: int
    activation: ActivationAttr | None


class Streams(NamedTuple):
    """The begin of a group: its record, its weights and its offsets."""

    record: Ints
    weights: Floats
    offsets: Shorts


@dataclass(frozen=True)
class GroupWork:
    """The connections of a group: addresses where its block of x, its weights and its offsets begin and end.

    `count` is the number of connections of each row.
    """

    x: Floats
    weights: Floats
    offsets: Shorts
    weights_end: Floats
    offsets_end: Shorts
    count: Number


@dataclass(frozen=True)
class RowGroups:
    """The code of one group of `rows` rows."""

    lanes: Lanes
    chunk: Chunk
    rows: int
    y: Floats
    bias: Floats
    step_inputs: int = 1
    """Inputs of a row in a step: a count is of steps."""

    def scaled(self, offset: Number) -> Number:
        """Return an offset of tiles of 8 columns as one of this width."""
        width, columns = self.chunk.width, OFFSET_UNIT // FLOAT_BYTES
        return offset * (width // columns) if width % columns == 0 else offset * width // columns

    def multiplied(self, work: GroupWork, distance: int, offsets: Sequence[Number], sums: Vectors) -> Vectors:
        """Return the sums after one connection of each row: weights `distance` bytes on, inputs by offsets in x."""
        sources = self._addresses([work.x.after(self.scaled(offset)) for offset in offsets])
        entries = [work.weights.after(distance + FLOAT_BYTES * row) for row in range(self.rows)]
        factors = [self.lanes.splat(entry[0]) for entry in entries]
        return [
            self.lanes.fma(factors[index // self.chunk.vectors], self._load(source), total)
            for index, (source, total) in enumerate(zip(sources, sums, strict=True))
        ]

    def emit(self, x: Floats, streams: Streams, products: "Products") -> Streams:
        """Emit the group at `streams`, whose inputs count from `x`; return the place of the next one."""
        record, weights, offsets = streams
        # a record: the offset of each row in y, and a word of the number of steps and the flags
        rows = [record[row] for row in range(self.rows)]
        targets = [self.y.after(self.scaled(row)) for row in rows]
        marked = record[self.rows]
        count, flags = marked & 0xFFFF, marked >> 16
        parts = count * self.rows
        inputs = parts * self.step_inputs
        ends = weights.at(parts), offsets.at(inputs)
        self._fetch(record, flags, *ends)
        # the sums begin as the bias or as what y holds, take the connections, and go to y
        sums = self._initial(flags, rows, targets)
        sums = products(self, GroupWork(x, weights, offsets, *ends, count), sums)
        sums = self._activated(flags, sums)
        for value, address in zip(sums, self._addresses(targets), strict=True):
            self.lanes.store(value, address, self.lanes.size)
        # the address of the next record is computed last: it needs no register before
        return Streams(record.at(self.rows + 1), *ends)

    def _addresses(self, rows: Sequence[Floats]) -> list[Floats]:
        """Return the addresses of the vectors of `rows`."""
        return [row.at(self.lanes.width * index) for row in rows for index in range(self.chunk.vectors)]

    def _load(self, address: Floats) -> ir.Value:
        return self.lanes.load(address, self.lanes.size)

    def _fetch(self, record: Ints, flags: Number, weights: Floats, offsets: Shorts) -> None:
        """Emit the fetching of rows of y, weights and offsets ahead of their use, where packing asks for it."""
        row_bytes = self.chunk.vectors * self.lanes.size
        if row_bytes >= LEAST_COLUMNS * FLOAT_BYTES:
            with when(flags & FETCH_OUTPUTS != 0):
                for row in range(self.rows):
                    offset = record[RECORDS_AHEAD * (self.rows + 1) + row]
                    self.y.after(self.scaled(offset)).fetch(row_bytes // ALIGNMENT)
        with when(flags & FETCH_STREAMS != 0):
            for stream, (distance, lines) in ((weights, WEIGHTS_AHEAD), (offsets, OFFSETS_AHEAD)):
                stream.after(distance).fetch(lines)

    def _initial(self, flags: Number, rows: Sequence[Number], targets: Sequence[Floats]) -> Vectors:
        """Return the sums before the group: the bias of its rows in the first block, then what y holds."""

        def biases() -> Vectors:
            entries = [self.bias.after(row // (OFFSET_UNIT // FLOAT_BYTES)) for row in rows]
            values = [self.lanes.splat(entry[0]) for entry in entries]
            return [value for value in values for _ in range(self.chunk.vectors)]

        return either(flags & FIRST != 0, biases, lambda: [self._load(address) for address in self._addresses(targets)])

    def _activated(self, flags: Number, sums: Vectors) -> Vectors:
        """Return the sums after the activation, where they are complete."""
        if self.chunk.activation is None:
            return sums
        return updated(flags & LAST != 0, sums, lambda: activated(self.lanes, self.chunk.activation, sums))


Products = Callable[[RowGroups, GroupWork, Vectors], Vectors]
"""Emits the multiply-adds of a group: returns the sums after them."""

Enter = Callable[[RowGroups, Floats, Number], Floats]
"""Takes the address of a block's inputs, and the third word of its entry, the number of them."""


@dataclass(frozen=True)
class BlockKernel:
    """A kernel over blocks: its name, the rows of a group, how many vectors a row has at once, the multiply-adds."""

    name: str
    rows: int
    most_vectors: int
    products: Products
    step_inputs: int = 1
    block_bytes: int = BLOCK_BYTES
    enter: "Enter | None" = None
    """Emits what is done where a block begins, and returns the address from which its groups read x."""

    def emit(self, code: Code, form: LinearForm) -> ir.Function:
        """Return `void (x, y, blocks, records, weights, offsets, bias, inputs, outputs)`."""
        separate = form.activation is not None and form.activation.kind not in OF_FEW_INSTRUCTIONS

        @code.kernel(f"{self.name}_{form.key}")
        def kernel(
            x: Floats, y: Floats, blocks: Ints, start: Streams, bias: Floats, _inputs: Number, outputs: Number
        ) -> None:
            for first, vectors in column_chunks(form.width, code.column_lanes(form.width), self.most_vectors):
                chunk = Chunk(form.width, vectors, None if separate else form.activation)
                call(self._chunk_function(code, chunk), x.at(first), y.at(first), blocks, start, bias)
            if separate:
                call(activate(code, form.activation, form.width), y, y, outputs)

        return kernel

    def _chunk_function(self, code: Code, chunk: Chunk) -> ir.Function:
        """Return `void (x, y, blocks, records, weights, offsets, bias)`, x and y from the chunk's columns on."""

        @code.kernel(f"{self.name}_w{chunk.width}_v{chunk.vectors}_{activation_key(chunk.activation)}_chunk")
        def kernel(x: Floats, y: Floats, blocks: Ints, start: Streams, bias: Floats) -> None:
            lanes = code.lanes(x, code.column_lanes(chunk.width))
            self._emit_blocks(RowGroups(lanes, chunk, self.rows, y, bias, self.step_inputs), x, blocks, start)

        return kernel

    def _emit_blocks(self, groups: RowGroups, x: Floats, blocks: Ints, streams: Streams) -> None:
        """Emit all blocks and their groups; the entry of a block is its number of groups, and where it begins in x."""
        flow = Blocks(x.builder, "block", "inside", "group", "after", "done")
        before = flow.enter("block")
        block, starts = flow.merged({before: (blocks, streams)})
        count = block[0]
        flow.branch(count == 0, "done", "inside")
        flow.at("inside")
        source = x.after(groups.scaled(block[1]))
        if self.enter is not None:
            source = self.enter(groups, source, block[2])
        inside = flow.enter("group")
        # counting down at the end of a group leaves one branch and one register to the loop
        left, current = flow.merged({inside: (count, starts)})
        following = left - 1, groups.emit(source, current, self.products)
        flow.come_back((left, current), following)
        flow.branch(following[0] == 0, "after", "group")
        flow.at("after")
        flow.come_back((block, starts), (block.after(self.block_bytes), following[1]))
        flow.enter("block")
        flow.at("done")
