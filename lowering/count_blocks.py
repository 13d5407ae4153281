"""Sparse kernel family for batches: blocks of inputs, rows of equal counts in pairs, and no branch that surprises.

For each block of inputs (its part of x stays in the first-level cache) and each pair of output rows with n connections
there: read the rows' sums, jump into a chain of multiply-adds n steps before its end, write the sums. A step multiplies
one weight of each row, a vector broadcast, with its input's columns, memory operands. The pairs of a block are sorted
by n, so the jump is predicted. All counts share one chain: it is small, stays in the cache of decoded instructions, and
its code does not depend on the matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.dialect.attributes import ActivationAttr
from redpebble.lowering.count_block_packing import (
    FETCH_OUTPUTS,
    FETCH_STREAMS,
    FIRST,
    LAST,
    MOST_CONNECTIONS,
    OFFSET_UNIT,
    pack_count_blocks,
)
from redpebble.lowering.elementwise import activate
from redpebble.lowering.emission import (
    ALIGNMENT,
    FLOAT,
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
from redpebble.lowering.fetching import fetch_lines
from redpebble.lowering.linear import LinearForm, PackedArrays, activated, activation_key, sparse_weight
from redpebble.lowering.vectors import Lanes

ROWS = 2
"""Rows of a pair."""

MOST_VECTORS = 4
"""Vectors of columns a row has at once: the sums of two rows, a weight and an operand fit 16 registers."""

BLOCK_BYTES, RECORD_BYTES = 8, 12

PAIRS_AHEAD = 2
"""How far ahead rows of y are fetched, where packing asks for it."""

LEAST_COLUMNS = 32
"""Columns from which that pays; narrower rows of y are small enough for the second-level cache."""

STREAMS_AHEAD = ((1024, 4), (512, 2))
"""Bytes by which weights and offsets are fetched ahead, and how many cache lines of each: those of a large pair."""

FUSED: Final = frozenset({"abs", "clip", "hard_sigmoid", "hard_swish", "leaky_relu", "neg", "relu", "square"})
"""Activations of a few instructions, applied to the sums in registers; others have a pass over y of their own."""


class CountBlocks:
    """See `count_block_packing` for the arrays."""

    def pack(self, weight: SSAValue, bias: NDArray[np.float32]) -> PackedArrays:
        """Return blocks, records, weights, offsets and bias."""
        return pack_count_blocks(sparse_weight(weight), bias)

    def emit(self, code: Code, form: LinearForm) -> ir.Function:
        """Return the kernel for tiles of `form.width` columns."""
        separate = form.activation is not None and form.activation.kind.data not in FUSED

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            x, y, *packed, _, outputs = args
            for first, vectors in column_chunks(form.width, code.column_lanes(form.width), MOST_VECTORS):
                chunk = _Chunk(form.width, vectors, None if separate else form.activation)
                columns = [float_at(builder, buffer, i64(first)) for buffer in (x, y)]
                builder.call(_chunk_function(code, chunk), [*columns, *packed])
            if separate:
                builder.call(activate(code, form.activation, form.width), [y, y, outputs])

        return code.function(f"count_blocks_{form.key}", [POINTER] * 7 + [I64, I64], body)


@dataclass(frozen=True)
class _Chunk:
    """Some vectors of columns in tiles of `width` columns, and what is applied to complete sums."""

    width: int
    vectors: int
    activation: ActivationAttr | None


def _chunk_function(code: Code, chunk: _Chunk) -> ir.Function:
    """Return `void (x, y, blocks, records, weights, offsets, bias)`, x and y from the chunk's columns on."""
    key = f"count_blocks_w{chunk.width}_v{chunk.vectors}_{activation_key(chunk.activation)}_chunk"

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, y, *lists, bias = args
        lanes = code.lanes(builder, code.column_lanes(chunk.width))
        _emit_blocks(_Pairs(builder, lanes, chunk, (y, bias)), x, lists)

    return code.function(key, [POINTER] * 7, body)


def _emit_blocks(pairs: "_Pairs", x: ir.Value, lists: Sequence[ir.Value]) -> None:
    """Emit all blocks and their pairs; `lists` are those of blocks, records, weights and offsets."""
    builder, before = pairs.builder, pairs.builder.block
    names = ("block", "inside", "pair", "after", "done")
    header, inside, pair, after, done = (builder.append_basic_block(name) for name in names)
    builder.branch(header)
    builder.position_at_end(header)
    block, *starts = [_merged(builder, (value, before)) for value in lists]
    count = _load_index(builder, block, 0)
    builder.cbranch(builder.icmp_unsigned("==", count, i64(0)), done, inside)
    builder.position_at_end(inside)
    source = byte_at(builder, x, pairs.scaled(_load_index(builder, block, 4)))
    builder.branch(pair)
    builder.position_at_end(pair)
    # counting down at the end of a pair leaves one branch and one register to the loop
    left, *current = [_merged(builder, (value, inside)) for value in (count, *starts)]
    following = [builder.sub(left, i64(1)), *pairs.emit(source, current)]
    for phi, value in zip([left, *current], following, strict=True):
        phi.add_incoming(value, builder.block)
    builder.cbranch(builder.icmp_unsigned("==", following[0], i64(0)), after, pair)
    builder.position_at_end(after)
    for phi, value in zip([block, *starts], [byte_at(builder, block, i64(BLOCK_BYTES)), *following[1:]], strict=True):
        phi.add_incoming(value, after)
    builder.branch(header)
    builder.position_at_end(done)


@dataclass(frozen=True)
class _Pairs:
    """The code of one pair of rows, at the place of `builder`."""

    builder: ir.IRBuilder
    lanes: Lanes
    chunk: _Chunk
    surroundings: tuple[ir.Value, ir.Value]
    """y and bias."""

    def scaled(self, offset: ir.Value) -> ir.Value:
        """Return an offset of tiles of 8 columns as one of this width."""
        width, columns = self.chunk.width, OFFSET_UNIT // FLOAT_BYTES
        if width % columns == 0:
            return self.builder.mul(offset, i64(width // columns))
        return self.builder.udiv(self.builder.mul(offset, i64(width)), i64(columns))

    def emit(self, x: ir.Value, streams: Sequence[ir.Value]) -> list[ir.Value]:
        """Emit the pair at `streams` (record, weights, offsets), whose inputs count from `x`; return the next one."""
        builder, (record, weights, offsets) = self.builder, streams
        y, _ = self.surroundings
        rows = [_load_index(builder, record, 4 * row) for row in range(ROWS)]
        targets = [byte_at(builder, y, self.scaled(row)) for row in rows]
        work = _load_index(builder, record, 8)
        count, flags = builder.and_(work, i64(0xFFFF)), builder.lshr(work, i64(16))
        ends = [
            float_at(builder, weights, builder.mul(count, i64(ROWS))),
            builder.gep(offsets, [count], source_etype=I32),
        ]
        if self.chunk.vectors * self.lanes.width >= LEAST_COLUMNS:
            with builder.if_then(_has(builder, flags, FETCH_OUTPUTS)):
                self._fetch_outputs(record)
        with builder.if_then(_has(builder, flags, FETCH_STREAMS)):
            for stream, (distance, lines) in zip(ends, STREAMS_AHEAD, strict=True):
                fetch_lines(builder, byte_at(builder, stream, i64(distance)), lines)
        sums = self._initial(_has(builder, flags, FIRST), rows, targets)
        sums = self._products(x, count, ends, sums)
        sums = self._activated(_has(builder, flags, LAST), sums)
        for value, address in zip(sums, self._addresses(targets), strict=True):
            self.lanes.store(value, address, FLOAT_BYTES * self.lanes.width)
        return [byte_at(builder, record, i64(RECORD_BYTES)), *ends]

    def _addresses(self, rows: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the addresses of the vectors of `rows`."""
        step = self.lanes.width
        return [float_at(self.builder, row, i64(step * index)) for row in rows for index in range(self.chunk.vectors)]

    def _load(self, address: ir.Value) -> ir.Value:
        return self.lanes.load(address, FLOAT_BYTES * self.lanes.width)

    def _fetch_outputs(self, record: ir.Value) -> None:
        """Emit the fetching of the rows of y of a pair ahead."""
        row_bytes = self.chunk.vectors * self.lanes.width * FLOAT_BYTES
        for row in range(ROWS):
            offset = _load_index(self.builder, record, PAIRS_AHEAD * RECORD_BYTES + 4 * row)
            target = byte_at(self.builder, self.surroundings[0], self.scaled(offset))
            fetch_lines(self.builder, target, row_bytes // ALIGNMENT)

    def _initial(self, first: ir.Value, rows: Sequence[ir.Value], targets: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the sums before the pair: the bias of its rows, or what y holds."""
        builder, bias = self.builder, self.surroundings[1]
        with builder.if_else(first) as (then, otherwise):
            with then:
                biases = [
                    self.lanes.splat(builder.load(byte_at(builder, bias, self._bias_offset(row)), typ=FLOAT))
                    for row in rows
                ]
                started = [value for value in biases for _ in range(self.chunk.vectors)]
                then_block = builder.block
            with otherwise:
                loaded = [self._load(address) for address in self._addresses(targets)]
                otherwise_block = builder.block
        return [
            _merged(builder, (value, then_block), (other, otherwise_block))
            for value, other in zip(started, loaded, strict=True)
        ]

    def _bias_offset(self, row: ir.Value) -> ir.Value:
        return self.builder.udiv(row, i64(OFFSET_UNIT // FLOAT_BYTES))

    def _products(
        self, x: ir.Value, count: ir.Value, ends: Sequence[ir.Value], initial: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Return the sums after `count` connections of each row, those before `ends`."""
        builder = self.builder
        start, steps = builder.block, range(MOST_CONNECTIONS + 1)
        left = [builder.append_basic_block(f"left{step}") for step in steps]
        never = builder.append_basic_block("never")
        switch = builder.switch(builder.trunc(count, I32), never)
        for step in steps:
            switch.add_case(ir.Constant(I32, step), left[step])
        builder.position_at_end(never)
        builder.unreachable()
        builder.position_at_end(left[-1])
        sums: list[ir.Value] = list(initial)
        for step in reversed(steps[1:]):
            sums = self._step(x, step, ends, sums)
            builder.branch(left[step - 1])
            builder.position_at_end(left[step - 1])
            entered = zip(initial, sums, strict=True)
            sums = [_merged(builder, (value, start), (total, left[step])) for value, total in entered]
        return sums

    def _step(self, x: ir.Value, step: int, ends: Sequence[ir.Value], sums: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the sums after one connection of each row, the one `step` connections before the ends."""
        builder, (weights, offsets) = self.builder, ends
        both = _load_index(builder, offsets, -4 * step)
        halves = builder.and_(both, i64(0xFFFF)), builder.lshr(both, i64(16))
        sources = self._addresses([byte_at(builder, x, self.scaled(half)) for half in halves])
        places = [float_at(builder, weights, i64(row - ROWS * step)) for row in range(ROWS)]
        factors = [self.lanes.splat(builder.load(place, typ=FLOAT)) for place in places]
        return [
            self.lanes.fma(factors[index // self.chunk.vectors], self._load(source), total)
            for index, (source, total) in enumerate(zip(sources, sums, strict=True))
        ]

    def _activated(self, last: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the sums after the activation, where they are complete."""
        if self.chunk.activation is None:
            return list(sums)
        before = self.builder.block
        with self.builder.if_then(last):
            results = activated(self.lanes, self.chunk.activation, sums)
            inside = self.builder.block
        return [
            _merged(self.builder, (result, inside), (total, before))
            for result, total in zip(results, sums, strict=True)
        ]


def _has(builder: ir.IRBuilder, flags: ir.Value, flag: int) -> ir.Value:
    return builder.icmp_unsigned("!=", builder.and_(flags, i64(flag)), i64(0))


def _load_index(builder: ir.IRBuilder, table: ir.Value, offset: int) -> ir.Value:
    """Return the unsigned 32-bit number `offset` bytes after `table`."""
    return builder.zext(builder.load(byte_at(builder, table, i64(offset)), typ=I32), I64)


def _merged(builder: ir.IRBuilder, *incoming: tuple[ir.Value, ir.Block]) -> ir.PhiInstr:
    """Return the value that comes from the block before."""
    phi = builder.phi(incoming[0][0].type)
    for value, block in incoming:
        phi.add_incoming(value, block)
    return phi
