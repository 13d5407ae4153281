"""Transposition between row-major batches and feature-major tiles, block by block in registers.

Registers, for a block of 4 rows r and features k (targets have blocks of 4, 8 or 16):

    loaded, a row each    shuffled with the next row   with the next but one: stored, a feature each
    r0k0 r0k1 r0k2 r0k3   r0k0 r1k0 r0k2 r1k2          r0k0 r1k0 r2k0 r3k0
    r1k0 r1k1 r1k2 r1k3   r0k1 r1k1 r0k3 r1k3          r0k1 r1k1 r2k1 r3k1
    r2k0 r2k1 r2k2 r2k3   r2k0 r3k0 r2k2 r3k2          r0k2 r1k2 r2k2 r3k2
    r3k0 r3k1 r3k2 r3k3   r2k1 r3k1 r2k3 r3k3          r0k3 r1k3 r2k3 r3k3

The way out loads features and stores rows, with the same shuffles.

A tile of T columns may stand for fewer than T rows of the batch. The columns left over are copies of the last row: they
are computed like the others and written where the row they copy is written, so that no code depends on the count. A
tile of one column is a row as it is.

Rows that leave a tile too large for the cache are written past the caches where they can be written by whole lines: a
line that is not there would be read first, and nobody reads the row soon.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from llvmlite import ir

from .builder import (
    ALIGNMENT,
    FLOAT_BYTES,
    I32,
    I64,
    POINTER,
    Code,
    counted_loop,
    float_at,
    i64,
)
from .strided import emit_copy
from .vectors import FLOAT, Lanes, int_constants

ARGUMENTS = (POINTER, POINTER, I64, I64, I64, I64)


@dataclass(frozen=True)
class BatchRows:
    """Rows of the batch from a feature on, `stride` values apart, and their number."""

    pointer: ir.Value
    stride: ir.Value
    row_count: ir.Value

    def addresses(self, builder: ir.IRBuilder, first: ir.Value, number: int) -> list[ir.Value]:
        """Return the address of the row of each of `number` columns of a tile from `first` on."""
        last = builder.sub(self.row_count, i64(1))
        wanted = [builder.add(first, i64(offset)) for offset in range(number)]
        indices = [builder.select(builder.icmp_signed("<", last, row), last, row) for row in wanted]
        return [float_at(builder, self.pointer, builder.mul(index, self.stride)) for index in indices]


@dataclass(frozen=True)
class _Columns:
    """Some columns of a tile, from `first` on, and the addresses of the rows that they stand for."""

    builder: ir.IRBuilder
    vectors: Lanes
    columns: ir.Value
    """A feature-major buffer of `width` columns; a vector holds the wanted columns of a feature."""
    width: ir.Value
    first: ir.Value
    rows: Sequence[ir.Value]

    def load(self, feature: ir.Value) -> ir.Value:
        return self.vectors.load(self._address(feature), FLOAT_BYTES * self.vectors.width)

    def store(self, value: ir.Value, feature: ir.Value) -> None:
        self.vectors.store(value, self._address(feature), FLOAT_BYTES * self.vectors.width)

    def _address(self, feature: ir.Value) -> ir.Value:
        index = self.builder.add(self.builder.mul(feature, self.width), self.first)
        return float_at(self.builder, self.columns, index)


Move = Callable[[_Columns, ir.Value], None]
"""Emits the move of features of some columns, from one feature on."""


class _Direction(NamedTuple):
    """A direction of the transposition: the moves of a block of as many features as lanes, and of one feature."""

    name: str
    block: Move
    single: Move


def rows_to_columns(code: Code, width: int) -> ir.Function:
    """Return `void (rows, columns, stride, features, row_count, width)`.

    It makes columns[k][t] = rows[min(t, row_count - 1)][k].
    The rows are `stride` values apart. One function serves all widths of which a vector holds whole columns.
    """
    return _transposition(code, width, _Direction("rows_to_columns", _transpose_in, _gather))


def columns_to_rows(code: Code, width: int) -> ir.Function:
    """Return `void (columns, rows, stride, features, row_count, width)`.

    It makes rows[t][k] = columns[k][t] for t < row_count.
    The rows are `stride` values apart. One function serves all widths of which a vector holds whole columns.
    """
    return _transposition(code, width, _Direction("columns_to_rows", _transpose_out, _scatter))


def columns_to_far_rows(code: Code, width: int) -> ir.Function:
    """Return what `columns_to_rows` does, for rows that leave the cache before anybody reads them.

    Where a vector is a line and rows consist of whole ones, these are written past the caches.
    """
    near, lanes = columns_to_rows(code, width), code.column_lanes(width)
    if FLOAT_BYTES * lanes != ALIGNMENT:
        return near
    past_caches = _Direction("columns_past_caches", partial(_transpose_out, past_caches=True), _scatter)
    past = _transposition(code, width, past_caches)

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        _, rows, stride, features, *_ = args
        whole_lines = _are_whole_lines(builder, rows, builder.or_(stride, features))
        with builder.if_else(whole_lines) as (whole, partial_lines):
            with whole:
                builder.call(past, args)
                code.lanes(builder, lanes).finish_past_caches()
            with partial_lines:
                builder.call(near, args)

    return code.function(f"columns_to_far_rows_{lanes}", ARGUMENTS, body)


def _are_whole_lines(builder: ir.IRBuilder, rows: ir.Value, floats: ir.Value) -> ir.Value:
    """Return whether rows begin at a cache line; `floats` holds the bits of all distances in them, in floats."""
    bits = builder.or_(builder.ptrtoint(rows, I64), builder.mul(floats, i64(FLOAT_BYTES)))
    return builder.icmp_signed("==", builder.and_(bits, i64(ALIGNMENT - 1)), i64(0))


def _transposition(code: Code, width: int, direction: _Direction) -> ir.Function:
    """Return a function that moves features block by block; the last block overlaps the one before."""
    lanes, inward = code.column_lanes(width), direction.name == "rows_to_columns"

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        source, target, stride, features, row_count, column_count = args
        if lanes == 1:
            emit_copy(code, builder, source, target, features)
            return
        rows, columns = (source, target) if inward else (target, source)
        with counted_loop(builder, column_count if inward else row_count, lanes) as first:
            addresses = BatchRows(rows, stride, row_count).addresses(builder, first, lanes)
            block = _Columns(builder, code.lanes(builder, lanes), columns, column_count, first, addresses)
            with builder.if_else(builder.icmp_signed(">=", features, i64(lanes))) as (enough, fewer):
                with enough:
                    last = builder.sub(features, i64(lanes))
                    with counted_loop(builder, features, lanes) as start:
                        begin = builder.select(builder.icmp_signed("<", last, start), last, start)
                        direction.block(block, begin)
                with fewer, counted_loop(builder, features) as feature:
                    direction.single(block, feature)

    return code.function(f"{direction.name}_{lanes}", ARGUMENTS, body)


def transpose_into_columns(lanes: Lanes, columns: Sequence[ir.Value], rows: BatchRows, first: ir.Value) -> None:
    """Emit columns[k] = the k-th feature of the rows from `first` on; columns are addresses, a multiple of lanes."""
    addresses = rows.addresses(lanes.builder, first, lanes.width)
    for start in range(0, len(columns), lanes.width):
        values = [lanes.load(float_at(lanes.builder, row, i64(start))) for row in addresses]
        vectors = _transposed(lanes.builder, values)
        for column, vector in zip(columns[start : start + lanes.width], vectors, strict=True):
            lanes.store(vector, column, FLOAT_BYTES * lanes.width)


def transpose_into_rows(lanes: Lanes, columns: Sequence[ir.Value], rows: BatchRows, first: ir.Value) -> None:
    """Emit the inverse of `transpose_into_columns`.

    Where the rows begin at cache lines and a vector is one, they are written past the caches.
    """
    addresses = rows.addresses(lanes.builder, first, lanes.width)
    if FLOAT_BYTES * lanes.width != ALIGNMENT:
        _write_rows(lanes, columns, addresses, lanes.store)
        return
    whole_lines = _are_whole_lines(lanes.builder, rows.pointer, rows.stride)
    with lanes.builder.if_else(whole_lines) as (whole, partial_lines):
        with whole:
            _write_rows(lanes, columns, addresses, lanes.store_past_caches)
        with partial_lines:
            _write_rows(lanes, columns, addresses, lanes.store)


def _write_rows(
    lanes: Lanes,
    columns: Sequence[ir.Value],
    rows: Sequence[ir.Value],
    write: Callable[[ir.Value, ir.Value], None],
) -> None:
    for start in range(0, len(columns), lanes.width):
        part = columns[start : start + lanes.width]
        vectors = [lanes.load(column, FLOAT_BYTES * lanes.width) for column in part]
        for row, vector in zip(rows, _transposed(lanes.builder, vectors), strict=True):
            write(vector, float_at(lanes.builder, row, i64(start)))


def _transpose_in(block: _Columns, feature: ir.Value) -> None:
    values = [block.vectors.load(float_at(block.builder, row, feature)) for row in block.rows]
    for offset, vector in enumerate(_transposed(block.builder, values)):
        block.store(vector, block.builder.add(feature, i64(offset)))


def _gather(block: _Columns, feature: ir.Value) -> None:
    vector: ir.Value = ir.Constant(block.vectors.float_vector, ir.Undefined)
    for lane, row in enumerate(block.rows):
        value = block.builder.load(float_at(block.builder, row, feature), typ=FLOAT)
        vector = block.builder.insert_element(vector, value, ir.Constant(I32, lane))
    block.store(vector, feature)


def _transpose_out(block: _Columns, feature: ir.Value, *, past_caches: bool = False) -> None:
    columns = [block.load(block.builder.add(feature, i64(offset))) for offset in range(block.vectors.width)]
    write = block.vectors.store_past_caches if past_caches else block.vectors.store
    for row, vector in zip(block.rows, _transposed(block.builder, columns), strict=True):
        write(vector, float_at(block.builder, row, feature))


def _scatter(block: _Columns, feature: ir.Value) -> None:
    vector = block.load(feature)
    for lane, row in enumerate(block.rows):
        value = block.builder.extract_element(vector, ir.Constant(I32, lane))
        block.builder.store(value, float_at(block.builder, row, feature))


def _transposed(builder: ir.IRBuilder, vectors: Sequence[ir.Value]) -> list[ir.Value]:
    """Return the transpose of a square block: each step swaps one bit of the row index with one of the lane index."""
    transposed, size, step = list(vectors), len(vectors), 1
    while step < size:
        upper = [lane if not lane & step else size + lane - step for lane in range(size)]
        lower = [lane + step if not lane & step else size + lane for lane in range(size)]
        for row in (row for row in range(size) if not row & step):
            first, second = transposed[row], transposed[row + step]
            transposed[row] = builder.shuffle_vector(first, second, int_constants(upper))
            transposed[row + step] = builder.shuffle_vector(first, second, int_constants(lower))
        step *= 2
    return transposed
