"""Between the row-major world outside a tile and the feature-major one inside: blocks transposed in registers.

A tile of T columns may stand for fewer than T rows of the batch. The columns left over are copies of the last row: they
are computed like the others and written where the row they copy is written, so that no code depends on the count. A
tile of one column is a row as it is.

Rows that leave a tile too large for the cache are written past the caches where they can be written by whole lines: a
line that is not there would be read first, and nobody reads the row soon.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from llvmlite import ir

from redpebble.lowering.llvm.builder import (
    ALIGNMENT,
    FLOAT,
    FLOAT_BYTES,
    I32,
    I64,
    POINTER,
    Code,
    counted_loop,
    float_at,
    i64,
)
from redpebble.lowering.llvm.strided import Strided, copy_values, emit_strided
from redpebble.lowering.llvm.vectors import Lanes

ARGUMENTS = (POINTER, POINTER, I64, I64, I64, I64)

Block = Callable[[ir.Value], None]
"""Emits what is done to the features from one on."""


@dataclass(frozen=True)
class _Columns:
    """Some columns of a tile, from `first` on, and the addresses of the rows that they stand for."""

    builder: ir.IRBuilder
    vectors: Lanes
    columns: ir.Value
    """A feature-major buffer of `width` columns; a vector holds the wanted columns of a feature."""
    width: ir.Value
    first: ir.Value
    lines: Sequence[ir.Value]

    def load(self, feature: ir.Value) -> ir.Value:
        return self.vectors.load(self._address(feature), FLOAT_BYTES * self.vectors.width)

    def store(self, value: ir.Value, feature: ir.Value) -> None:
        self.vectors.store(value, self._address(feature), FLOAT_BYTES * self.vectors.width)

    def _address(self, feature: ir.Value) -> ir.Value:
        place = self.builder.add(self.builder.mul(feature, self.width), self.first)
        return float_at(self.builder, self.columns, place)


Move = Callable[[_Columns, ir.Value], None]
"""Emits the way of the features from one on."""


def rows_to_columns(code: Code, width: int) -> ir.Function:
    """Return `void (rows, columns, stride, features, row_count, width)`.

    It makes columns[k][t] = rows[min(t, row_count - 1)][k].
    The rows are `stride` values apart. One function serves all widths of which a vector holds whole columns.
    """
    return _transposition(code, width, "rows_to_columns", (_transpose_in, _gather))


def columns_to_rows(code: Code, width: int) -> ir.Function:
    """Return `void (columns, rows, stride, features, row_count, width)`.

    It makes rows[t][k] = columns[k][t] for t < row_count.
    The rows are `stride` values apart. One function serves all widths of which a vector holds whole columns.
    """
    return _transposition(code, width, "columns_to_rows", (_transpose_out, _scatter))


def columns_to_far_rows(code: Code, width: int) -> ir.Function:
    """Return what `columns_to_rows` does, for rows that leave the cache before anybody reads them.

    Where a vector is a line and rows consist of whole ones, these are written past the caches.
    """
    near, lanes = columns_to_rows(code, width), code.column_lanes(width)
    if FLOAT_BYTES * lanes != ALIGNMENT:
        return near
    past = _transposition(code, width, "columns_past_caches", (partial(_transpose_out, past_caches=True), _scatter))

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        _, rows, stride, features, *_ = args
        whole_lines = _are_whole_lines(builder, rows, builder.or_(stride, features))
        with builder.if_else(whole_lines) as (whole, pieces):
            with whole:
                builder.call(past, args)
                code.lanes(builder, lanes).finish_past_caches()
            with pieces:
                builder.call(near, args)

    return code.function(f"columns_to_far_rows_{lanes}", ARGUMENTS, body)


def _are_whole_lines(builder: ir.IRBuilder, rows: ir.Value, floats: ir.Value) -> ir.Value:
    """Return whether rows begin at a line; `floats` holds the bits of all distances in them."""
    bits = builder.or_(builder.ptrtoint(rows, I64), builder.mul(floats, i64(FLOAT_BYTES)))
    return builder.icmp_signed("==", builder.and_(bits, i64(ALIGNMENT - 1)), i64(0))


def _transposition(code: Code, width: int, name: str, moves: tuple[Move, Move]) -> ir.Function:
    """Return a function of so many features at once as a vector holds columns (the first move), or of one."""
    lanes, inward = code.column_lanes(width), name == "rows_to_columns"

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        source, target, stride, features, count, columns_count = args
        if lanes == 1:
            _emit_copy(code, builder, (source, target, features))
            return
        rows, columns = (source, target) if inward else (target, source)
        with counted_loop(builder, columns_count if inward else count, lanes) as first:
            lines = _lines(builder, (rows, stride, count), (first, lanes))
            block = _Columns(builder, code.lanes(builder, lanes), columns, columns_count, first, lines)
            many, one = moves
            _for_each_block(builder, features, lanes, (partial(many, block), partial(one, block)))

    return code.function(f"{name}_{lanes}", ARGUMENTS, body)


@dataclass(frozen=True)
class BatchRows:
    """Rows of the batch from a feature on, `stride` values apart, and their number."""

    pointer: ir.Value
    stride: ir.Value
    count: ir.Value

    def lines(self, lanes: Lanes, first: ir.Value) -> list[ir.Value]:
        """Return the addresses of as many rows, from one on, as a vector holds columns."""
        return _lines(lanes.builder, (self.pointer, self.stride, self.count), (first, lanes.width))


def transpose_into_columns(lanes: Lanes, columns: Sequence[ir.Value], rows: BatchRows, first: ir.Value) -> None:
    """Emit columns[k] = the k-th feature of the rows from `first` on; columns are addresses, a multiple of lanes."""
    lines, size = rows.lines(lanes, first), FLOAT_BYTES * lanes.width
    for start in range(0, len(columns), lanes.width):
        values = [lanes.load(float_at(lanes.builder, line, i64(start))) for line in lines]
        for column, vector in zip(
            columns[start : start + lanes.width], _transposed(lanes.builder, values), strict=True
        ):
            lanes.store(vector, column, size)


def transpose_into_rows(lanes: Lanes, columns: Sequence[ir.Value], rows: BatchRows, first: ir.Value) -> None:
    """Emit the way back of `transpose_into_columns`.

    The writes bypass the caches where the rows begin at cache lines and a vector is one.
    """
    lines = rows.lines(lanes, first)
    if FLOAT_BYTES * lanes.width != ALIGNMENT:
        _transpose_out_lines(lanes, columns, (lines, lanes.store))
        return
    whole_lines = _are_whole_lines(lanes.builder, rows.pointer, rows.stride)
    with lanes.builder.if_else(whole_lines) as (whole, pieces):
        with whole:
            _transpose_out_lines(lanes, columns, (lines, lanes.store_past_caches))
        with pieces:
            _transpose_out_lines(lanes, columns, (lines, lanes.store))


def _transpose_out_lines(
    lanes: Lanes,
    columns: Sequence[ir.Value],
    target: tuple[Sequence[ir.Value], Callable[[ir.Value, ir.Value], None]],
) -> None:
    lines, write = target
    for start in range(0, len(columns), lanes.width):
        part = columns[start : start + lanes.width]
        vectors = [lanes.load(column, FLOAT_BYTES * lanes.width) for column in part]
        for line, vector in zip(lines, _transposed(lanes.builder, vectors), strict=True):
            write(vector, float_at(lanes.builder, line, i64(start)))


def _transpose_in(block: _Columns, feature: ir.Value) -> None:
    rows = [block.vectors.load(float_at(block.builder, line, feature)) for line in block.lines]
    for offset, vector in enumerate(_transposed(block.builder, rows)):
        block.store(vector, block.builder.add(feature, i64(offset)))


def _gather(block: _Columns, feature: ir.Value) -> None:
    vector: ir.Value = ir.Constant(block.vectors.float_vector, ir.Undefined)
    for lane, line in enumerate(block.lines):
        value = block.builder.load(float_at(block.builder, line, feature), typ=FLOAT)
        vector = block.builder.insert_element(vector, value, ir.Constant(I32, lane))
    block.store(vector, feature)


def _transpose_out(block: _Columns, feature: ir.Value, *, past_caches: bool = False) -> None:
    columns = [block.load(block.builder.add(feature, i64(offset))) for offset in range(block.vectors.width)]
    write = block.vectors.store_past_caches if past_caches else block.vectors.store
    for line, vector in zip(block.lines, _transposed(block.builder, columns), strict=True):
        write(vector, float_at(block.builder, line, feature))


def _scatter(block: _Columns, feature: ir.Value) -> None:
    vector = block.load(feature)
    for lane, line in enumerate(block.lines):
        value = block.builder.extract_element(vector, ir.Constant(I32, lane))
        block.builder.store(value, float_at(block.builder, line, feature))


def _emit_copy(code: Code, builder: ir.IRBuilder, copy: tuple[ir.Value, ir.Value, ir.Value]) -> None:
    source, target, features = copy
    emit_strided(code, builder, [features], (Strided(target, (1,)), [Strided(source, (1,))], copy_values))


def _lines(
    builder: ir.IRBuilder, rows: tuple[ir.Value, ir.Value, ir.Value], columns: tuple[ir.Value, int]
) -> list[ir.Value]:
    """Return for each of some columns of the tile, (first, number), the address of the row it stands for."""
    pointer, stride, count = rows
    first, number = columns
    last = builder.sub(count, i64(1))
    wanted = [builder.add(first, i64(offset)) for offset in range(number)]
    indices = [builder.select(builder.icmp_signed("<", last, row), last, row) for row in wanted]
    return [float_at(builder, pointer, builder.mul(index, stride)) for index in indices]


def _for_each_block(builder: ir.IRBuilder, features: ir.Value, lanes: int, blocks: tuple[Block, Block]) -> None:
    """Emit whole blocks of `lanes` features, the last one overlapping, or single features where there are fewer."""
    turn, single = blocks
    with builder.if_else(builder.icmp_signed(">=", features, i64(lanes))) as (enough, fewer):
        with enough:
            last = builder.sub(features, i64(lanes))
            with counted_loop(builder, features, lanes) as start:
                turn(builder.select(builder.icmp_signed("<", last, start), last, start))
        with fewer, counted_loop(builder, features) as feature:
            single(feature)


def _transposed(builder: ir.IRBuilder, vectors: Sequence[ir.Value]) -> list[ir.Value]:
    """Return the transpose of a square block: each step swaps one bit of the row index with one of the lane index."""
    transposed, size, step = list(vectors), len(vectors), 1
    while step < size:
        upper = [lane if not lane & step else size + lane - step for lane in range(size)]
        lower = [lane + step if not lane & step else size + lane for lane in range(size)]
        for row in (row for row in range(size) if not row & step):
            first, second = transposed[row], transposed[row + step]
            transposed[row] = builder.shuffle_vector(first, second, _mask(upper))
            transposed[row + step] = builder.shuffle_vector(first, second, _mask(lower))
        step *= 2
    return transposed


def _mask(lanes: Sequence[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))
