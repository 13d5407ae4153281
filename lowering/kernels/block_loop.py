"""The loop that kernels over blocks of inputs share: groups of output rows, each with a number of connections.

For each block of inputs and each group of rows: read the rows' sums (the bias in the first block), multiply and add as
the kernel at hand does, apply the activation in the last block, write the sums. `kernels/row_segments.py` has the
arrays.

Registers, for a group of R rows and V vectors of batch columns, one lane a column:

    sum[r][v]  y[r][v], or the bias of row r in every lane
    w          weight of a connection in every lane               a broadcast
    sum[r][v] += w * x[input][v]                                  one fma with a memory operand for each v
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from llvmlite import ir

from redpebble.dialect.attributes.activations import OF_FEW_INSTRUCTIONS, ActivationAttr
from redpebble.kernels.row_segments import FETCH_OUTPUTS, FETCH_STREAMS, FIRST, LAST, OFFSET_UNIT, RECORDS_AHEAD
from redpebble.lowering.kernels.elementwise import activate
from redpebble.lowering.kernels.kernel_form import LinearForm, activated, activation_key
from redpebble.lowering.llvm.builder import (
    ALIGNMENT,
    FLOAT_BYTES,
    I32,
    I64,
    POINTER,
    Code,
    byte_at,
    column_chunks,
    float_at,
    i64,
)
from redpebble.lowering.llvm.prefetch import fetch_lines
from redpebble.lowering.llvm.vectors import FLOAT, Lanes

BLOCK_BYTES = 8

LEAST_COLUMNS = 32
"""Columns from which fetching rows of y ahead pays; narrower rows are small enough for the second-level cache."""

STREAMS_AHEAD = ((1024, 4), (512, 2))
"""Bytes by which weights and offsets are fetched ahead, and how many cache lines of each: those of a large group."""

Values = Sequence[ir.Value]


@dataclass(frozen=True)
class Chunk:
    """Some vectors of columns in tiles of `width` columns, and what is applied to complete sums."""

    width: int
    vectors: int
    activation: ActivationAttr | None


@dataclass(frozen=True)
class GroupWork:
    """The connections of a group: addresses where its block of x, its weights and its offsets begin and end.

    `count` is the number of connections of each row.
    """

    x: ir.Value
    weights: ir.Value
    offsets: ir.Value
    weights_end: ir.Value
    offsets_end: ir.Value
    count: ir.Value


@dataclass(frozen=True)
class RowGroups:
    """The code of one group of `rows` rows, at the place of `builder`."""

    builder: ir.IRBuilder
    lanes: Lanes
    chunk: Chunk
    rows: int
    y: ir.Value
    bias: ir.Value
    step_inputs: int = 1
    """Inputs of a row in a step: a count is of steps."""

    def scaled(self, offset: ir.Value) -> ir.Value:
        """Return an offset of tiles of 8 columns as one of this width."""
        width, columns = self.chunk.width, OFFSET_UNIT // FLOAT_BYTES
        if width % columns == 0:
            return self.builder.mul(offset, i64(width // columns))
        return self.builder.udiv(self.builder.mul(offset, i64(width)), i64(columns))

    def multiplied(self, work: GroupWork, distance: int, offsets: Values, sums: Values) -> list[ir.Value]:
        """Return the sums after one connection of each row: weights `distance` bytes on, inputs by offsets in x."""
        builder = self.builder
        sources = self._addresses([byte_at(builder, work.x, self.scaled(offset)) for offset in offsets])
        entries = [byte_at(builder, work.weights, i64(distance + FLOAT_BYTES * row)) for row in range(self.rows)]
        factors = [self.lanes.splat(builder.load(entry, typ=FLOAT)) for entry in entries]
        return [
            self.lanes.fma(factors[index // self.chunk.vectors], self._load(source), total)
            for index, (source, total) in enumerate(zip(sources, sums, strict=True))
        ]

    def emit(self, x: ir.Value, streams: Values, products: "Products") -> list[ir.Value]:
        """Emit the group at `streams` (record, weights, offsets), whose inputs count from `x`; return the next ones."""
        builder, (record, weights, offsets) = self.builder, streams
        rows = [load_index(builder, record, 4 * row) for row in range(self.rows)]
        targets = [byte_at(builder, self.y, self.scaled(row)) for row in rows]
        marked = load_index(builder, record, 4 * self.rows)
        count, flags = builder.and_(marked, i64(0xFFFF)), builder.lshr(marked, i64(16))
        parts = builder.mul(count, i64(self.rows))
        inputs = builder.mul(parts, i64(self.step_inputs))
        ends = float_at(builder, weights, parts), builder.gep(offsets, [inputs], source_etype=ir.IntType(16))
        self._fetch(record, flags, ends)
        sums = self._initial(_has(builder, flags, FIRST), rows, targets)
        sums = products(self, GroupWork(x, weights, offsets, *ends, count), sums)
        sums = self._activated(_has(builder, flags, LAST), sums)
        for value, address in zip(sums, self._addresses(targets), strict=True):
            self.lanes.store(value, address, FLOAT_BYTES * self.lanes.width)
        return [byte_at(builder, record, i64(self._record_bytes)), *ends]

    @property
    def _record_bytes(self) -> int:
        return 4 * (self.rows + 1)

    def _addresses(self, rows: Values) -> list[ir.Value]:
        """Return the addresses of the vectors of `rows`."""
        step = self.lanes.width
        return [float_at(self.builder, row, i64(step * index)) for row in rows for index in range(self.chunk.vectors)]

    def _load(self, address: ir.Value) -> ir.Value:
        return self.lanes.load(address, FLOAT_BYTES * self.lanes.width)

    def _fetch(self, record: ir.Value, flags: ir.Value, ends: Values) -> None:
        """Emit the fetching of rows of y, weights and offsets ahead of their use, where packing asks for it."""
        builder, row_bytes = self.builder, self.chunk.vectors * self.lanes.width * FLOAT_BYTES
        if row_bytes >= LEAST_COLUMNS * FLOAT_BYTES:
            with builder.if_then(_has(builder, flags, FETCH_OUTPUTS)):
                for row in range(self.rows):
                    offset = load_index(builder, record, RECORDS_AHEAD * self._record_bytes + 4 * row)
                    target = byte_at(builder, self.y, self.scaled(offset))
                    fetch_lines(builder, target, row_bytes // ALIGNMENT)
        with builder.if_then(_has(builder, flags, FETCH_STREAMS)):
            for stream, (distance, lines) in zip(ends, STREAMS_AHEAD, strict=True):
                fetch_lines(builder, byte_at(builder, stream, i64(distance)), lines)

    def _initial(self, first: ir.Value, rows: Values, targets: Values) -> list[ir.Value]:
        """Return the sums before the group: the bias of its rows, or what y holds."""
        builder, bias = self.builder, self.bias
        with builder.if_else(first) as (then, otherwise):
            with then:
                entries = [byte_at(builder, bias, builder.udiv(row, i64(OFFSET_UNIT // FLOAT_BYTES))) for row in rows]
                biases = [self.lanes.splat(builder.load(entry, typ=FLOAT)) for entry in entries]
                started = [value for value in biases for _ in range(self.chunk.vectors)]
                then_block = builder.block
            with otherwise:
                loaded = [self._load(address) for address in self._addresses(targets)]
                otherwise_block = builder.block
        pairs = zip(started, loaded, strict=True)
        return [merged(builder, {then_block: value, otherwise_block: other}) for value, other in pairs]

    def _activated(self, last: ir.Value, sums: Values) -> list[ir.Value]:
        """Return the sums after the activation, where they are complete."""
        if self.chunk.activation is None:
            return list(sums)
        before = self.builder.block
        with self.builder.if_then(last):
            results = activated(self.lanes, self.chunk.activation, sums)
            inside = self.builder.block
        pairs = zip(results, sums, strict=True)
        return [merged(self.builder, {inside: result, before: total}) for result, total in pairs]


Products = Callable[[RowGroups, GroupWork, Values], list[ir.Value]]
"""Emits the multiply-adds of a group: returns the sums after them."""

Enter = Callable[[RowGroups, ir.Value, ir.Value], ir.Value]
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
        separate = form.activation is not None and form.activation.kind.data not in OF_FEW_INSTRUCTIONS

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            x, y, *packed, _, outputs = args
            for first, vectors in column_chunks(form.width, code.column_lanes(form.width), self.most_vectors):
                chunk = Chunk(form.width, vectors, None if separate else form.activation)
                columns = [float_at(builder, buffer, i64(first)) for buffer in (x, y)]
                builder.call(self._chunk_function(code, chunk), [*columns, *packed])
            if separate:
                builder.call(activate(code, form.activation, form.width), [y, y, outputs])

        return code.function(f"{self.name}_{form.key}", [POINTER] * 7 + [I64, I64], body)

    def _chunk_function(self, code: Code, chunk: Chunk) -> ir.Function:
        """Return `void (x, y, blocks, records, weights, offsets, bias)`, x and y from the chunk's columns on."""
        key = f"{self.name}_w{chunk.width}_v{chunk.vectors}_{activation_key(chunk.activation)}_chunk"

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            x, y, *lists, bias = args
            lanes = code.lanes(builder, code.column_lanes(chunk.width))
            self._emit_blocks(RowGroups(builder, lanes, chunk, self.rows, y, bias, self.step_inputs), x, lists)

        return code.function(key, [POINTER] * 7, body)

    def _emit_blocks(self, groups: RowGroups, x: ir.Value, lists: Values) -> None:
        """Emit all blocks and their groups; `lists` are those of blocks, records, weights and offsets."""
        builder, before = groups.builder, groups.builder.block
        names = ("block", "inside", "group", "after", "done")
        header, inside, group, after, done = (builder.append_basic_block(name) for name in names)
        builder.branch(header)
        builder.position_at_end(header)
        block, *starts = [merged(builder, {before: value}) for value in lists]
        count = load_index(builder, block, 0)
        builder.cbranch(builder.icmp_unsigned("==", count, i64(0)), done, inside)
        builder.position_at_end(inside)
        source = byte_at(builder, x, groups.scaled(load_index(builder, block, 4)))
        if self.enter is not None:
            source = self.enter(groups, source, load_index(builder, block, 8))
        inside = builder.block
        builder.branch(group)
        builder.position_at_end(group)
        # counting down at the end of a group leaves one branch and one register to the loop
        left, *current = [merged(builder, {inside: value}) for value in (count, *starts)]
        following = [builder.sub(left, i64(1)), *groups.emit(source, current, self.products)]
        for phi, value in zip([left, *current], following, strict=True):
            phi.add_incoming(value, builder.block)
        builder.cbranch(builder.icmp_unsigned("==", following[0], i64(0)), after, group)
        builder.position_at_end(after)
        values = [byte_at(builder, block, i64(self.block_bytes)), *following[1:]]
        for phi, value in zip([block, *starts], values, strict=True):
            phi.add_incoming(value, after)
        builder.branch(header)
        builder.position_at_end(done)


def load_index(builder: ir.IRBuilder, table: ir.Value, offset: int) -> ir.Value:
    """Return the unsigned 32-bit number `offset` bytes after `table`."""
    return builder.zext(builder.load(byte_at(builder, table, i64(offset)), typ=I32), I64)


def merged(builder: ir.IRBuilder, incoming: Mapping[ir.Block, ir.Value]) -> ir.PhiInstr:
    """Return the value that comes from the block before, given that of each."""
    phi = builder.phi(next(iter(incoming.values())).type)
    for block, value in incoming.items():
        phi.add_incoming(value, block)
    return phi


def _has(builder: ir.IRBuilder, flags: ir.Value, flag: int) -> ir.Value:
    return builder.icmp_unsigned("!=", builder.and_(flags, i64(flag)), i64(0))
