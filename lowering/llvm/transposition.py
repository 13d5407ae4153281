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

from .builder import Code
from .flow import branch, call, loop
from .strided import emit_copy
from .values import ALIGNMENT, FLOAT_BYTES, I32, Floats, Number, Truth
from .vectors import Lanes, int_constants


@dataclass(frozen=True)
class BatchRows:
    """Rows of the batch from a feature on, `stride` values apart, and their number."""

    address: Floats
    stride: Number
    row_count: Number

    def addresses(self, first: Number, number: int) -> list[Floats]:
        """Return the address of the row of each of `number` columns of a tile from `first` on."""
        last = self.row_count - 1
        wanted = [first + offset for offset in range(number)]
        indices = [last.smaller(row) for row in wanted]
        return [self.address.at(index * self.stride) for index in indices]


@dataclass(frozen=True)
class _Columns:
    """Some columns of a tile, from `first` on, and the addresses of the rows that they stand for."""

    vectors: Lanes
    columns: Floats
    """A feature-major buffer of `width` columns; a vector holds the wanted columns of a feature."""
    width: Number
    first: Number
    rows: Sequence[Floats]

    def load(self, feature: Number) -> ir.Value:
        return self.vectors.load(self._address(feature), self.vectors.size)

    def store(self, value: ir.Value, feature: Number) -> None:
        self.vectors.store(value, self._address(feature), self.vectors.size)

    def _address(self, feature: Number) -> Floats:
        return self.columns.at(feature * self.width + self.first)


Move = Callable[[_Columns, Number], None]
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

    @code.kernel(f"columns_to_far_rows_{lanes}")
    def kernel(
        columns: Floats, rows: Floats, stride: Number, features: Number, row_count: Number, width: Number
    ) -> None:
        arguments = columns, rows, stride, features, row_count, width

        def whole_lines() -> None:
            call(past, *arguments)
            code.lanes(rows, lanes).finish_past_caches()

        branch(_are_whole_lines(rows, stride | features), whole_lines, lambda: call(near, *arguments))

    return kernel


def _are_whole_lines(rows: Floats, floats: Number) -> Truth:
    """Return whether rows begin at a cache line; `floats` holds the bits of all distances in them, in floats."""
    bits = rows.number() | floats * FLOAT_BYTES
    return bits & (ALIGNMENT - 1) == 0


def _transposition(code: Code, width: int, direction: _Direction) -> ir.Function:
    """Return a function that moves features block by block; the last block overlaps the one before."""
    lanes, inward = code.column_lanes(width), direction.name == "rows_to_columns"

    @code.kernel(f"{direction.name}_{lanes}")
    def kernel(
        source: Floats, target: Floats, stride: Number, features: Number, row_count: Number, column_count: Number
    ) -> None:
        if lanes == 1:
            emit_copy(code, source, target, features)
            return
        rows, columns = (source, target) if inward else (target, source)
        # columns as many as there are lanes, and of these the features block by block, or one by one where they are few
        with loop(column_count if inward else row_count, lanes) as first:
            addresses = BatchRows(rows, stride, row_count).addresses(first, lanes)
            block = _Columns(code.lanes(rows, lanes), columns, column_count, first, addresses)

            def enough(block: _Columns = block) -> None:
                last = features - lanes
                with loop(features, lanes) as start:
                    direction.block(block, last.smaller(start))

            def fewer(block: _Columns = block) -> None:
                with loop(features) as feature:
                    direction.single(block, feature)

            branch(features >= lanes, enough, fewer)

    return kernel


def transpose_into_columns(lanes: Lanes, columns: Sequence[Floats], rows: BatchRows, first: Number) -> None:
    """Emit columns[k] = the k-th feature of the rows from `first` on; columns are addresses, a multiple of lanes."""
    addresses = rows.addresses(first, lanes.width)
    for start in range(0, len(columns), lanes.width):
        values = [lanes.load(row.at(start)) for row in addresses]
        vectors = _transposed(lanes.builder, values)
        for column, vector in zip(columns[start : start + lanes.width], vectors, strict=True):
            lanes.store(vector, column, lanes.size)


def transpose_into_rows(lanes: Lanes, columns: Sequence[Floats], rows: BatchRows, first: Number) -> None:
    """Emit the inverse of `transpose_into_columns`.

    Where the rows begin at cache lines and a vector is one, they are written past the caches.
    """
    addresses = rows.addresses(first, lanes.width)
    near = partial(_write_rows, lanes, columns, addresses, lanes.store)
    if lanes.size != ALIGNMENT:
        near()
        return
    past_caches = partial(_write_rows, lanes, columns, addresses, lanes.store_past_caches)
    branch(_are_whole_lines(rows.address, rows.stride), past_caches, near)


def _write_rows(
    lanes: Lanes, columns: Sequence[Floats], rows: Sequence[Floats], write: Callable[[ir.Value, Floats], None]
) -> None:
    for start in range(0, len(columns), lanes.width):
        part = columns[start : start + lanes.width]
        vectors = [lanes.load(column, lanes.size) for column in part]
        for row, vector in zip(rows, _transposed(lanes.builder, vectors), strict=True):
            write(vector, row.at(start))


def _transpose_in(block: _Columns, feature: Number) -> None:
    values = [block.vectors.load(row.at(feature)) for row in block.rows]
    for offset, vector in enumerate(_transposed(block.vectors.builder, values)):
        block.store(vector, feature + offset)


def _gather(block: _Columns, feature: Number) -> None:
    builder = block.vectors.builder
    vector: ir.Value = ir.Constant(block.vectors.vector, ir.Undefined)
    for lane, row in enumerate(block.rows):
        vector = builder.insert_element(vector, row[feature], ir.Constant(I32, lane))
    block.store(vector, feature)


def _transpose_out(block: _Columns, feature: Number, *, past_caches: bool = False) -> None:
    columns = [block.load(feature + offset) for offset in range(block.vectors.width)]
    write = block.vectors.store_past_caches if past_caches else block.vectors.store
    for row, vector in zip(block.rows, _transposed(block.vectors.builder, columns), strict=True):
        write(vector, row.at(feature))


def _scatter(block: _Columns, feature: Number) -> None:
    vector = block.load(feature)
    for lane, row in enumerate(block.rows):
        row[feature] = block.vectors.builder.extract_element(vector, ir.Constant(I32, lane))


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
