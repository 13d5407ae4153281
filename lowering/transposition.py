"""Between the row-major world outside a tile and the feature-major one inside: blocks turned in registers.

A tile of T columns may stand for fewer than T rows of the batch. The columns left over are copies of the last row: they
are computed like the others and written where the row they copy is written, so that no code depends on the count. A
tile of one column is a row as it is.
"""

from collections.abc import Callable, Sequence

from llvmlite import ir

from redpebble.lowering.emission import FLOAT, FLOAT_BYTES, I32, I64, POINTER, Code, counted_loop, float_at, i64
from redpebble.lowering.strided import Strided, copy_values, emit_strided

ARGUMENTS = (POINTER, POINTER, I64, I64, I64, I64)

Block = Callable[[ir.Value], None]


def rows_to_columns(code: Code, width: int) -> ir.Function:
    """Return `void (rows, columns, stride, features, row_count, width)`.

    It makes columns[k][t] = rows[min(t, row_count - 1)][k].
    The rows are `stride` values apart. One function serves all widths of which a vector holds whole columns.
    """
    lanes = code.column_lanes(width)

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        rows, columns, stride, features, count, columns_count = args
        vectors = code.lanes(builder, lanes)
        if lanes == 1:
            _emit_copy(code, builder, (rows, columns, features))
            return
        with counted_loop(builder, columns_count, lanes) as first:
            lines = _lines(builder, (rows, stride, count), (first, lanes))

            def turn(feature: ir.Value) -> None:
                block = [vectors.load(float_at(builder, line, feature)) for line in lines]
                for offset, vector in enumerate(_turned(builder, block)):
                    place = (builder.add(feature, i64(offset)), columns_count, first)
                    vectors.store(vector, _cell(builder, columns, place), FLOAT_BYTES * lanes)

            def gather(feature: ir.Value) -> None:
                vector: ir.Value = ir.Constant(ir.VectorType(FLOAT, lanes), ir.Undefined)
                for lane, line in enumerate(lines):
                    value = builder.load(float_at(builder, line, feature), typ=FLOAT)
                    vector = builder.insert_element(vector, value, ir.Constant(I32, lane))
                vectors.store(vector, _cell(builder, columns, (feature, columns_count, first)), FLOAT_BYTES * lanes)

            _for_each_block(builder, features, lanes, (turn, gather))

    return code.function(f"rows_to_columns_{lanes}", ARGUMENTS, body)


def columns_to_rows(code: Code, width: int) -> ir.Function:
    """Return `void (columns, rows, stride, features, row_count, width)`.

    It makes rows[t][k] = columns[k][t] for t < row_count.
    The rows are `stride` values apart. One function serves all widths of which a vector holds whole columns.
    """
    lanes = code.column_lanes(width)

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        columns, rows, stride, features, count, columns_count = args
        vectors = code.lanes(builder, lanes)
        if lanes == 1:
            _emit_copy(code, builder, (columns, rows, features))
            return
        with counted_loop(builder, count, lanes) as first:
            lines = _lines(builder, (rows, stride, count), (first, lanes))

            def turn(feature: ir.Value) -> None:
                places = [(builder.add(feature, i64(k)), columns_count, first) for k in range(lanes)]
                block = [vectors.load(_cell(builder, columns, place), FLOAT_BYTES * lanes) for place in places]
                for line, vector in zip(lines, _turned(builder, block), strict=True):
                    vectors.store(vector, float_at(builder, line, feature))

            def scatter(feature: ir.Value) -> None:
                address = _cell(builder, columns, (feature, columns_count, first))
                vector = vectors.load(address, FLOAT_BYTES * lanes)
                for lane, line in enumerate(lines):
                    value = builder.extract_element(vector, ir.Constant(I32, lane))
                    builder.store(value, float_at(builder, line, feature))

            _for_each_block(builder, features, lanes, (turn, scatter))

    return code.function(f"columns_to_rows_{lanes}", ARGUMENTS, body)


def _cell(builder: ir.IRBuilder, columns: ir.Value, place: tuple[ir.Value, ir.Value, ir.Value]) -> ir.Value:
    """Return the address of (feature, width, column) in a feature-major buffer whose width the call knows."""
    feature, width, column = place
    return float_at(builder, columns, builder.add(builder.mul(feature, width), column))


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


def _turned(builder: ir.IRBuilder, vectors: Sequence[ir.Value]) -> list[ir.Value]:
    """Return the transpose of a square block: each step swaps one bit of the row index with one of the lane index."""
    turned, size, step = list(vectors), len(vectors), 1
    while step < size:
        upper = [lane if not lane & step else size + lane - step for lane in range(size)]
        lower = [lane + step if not lane & step else size + lane for lane in range(size)]
        for row in (row for row in range(size) if not row & step):
            first, second = turned[row], turned[row + step]
            turned[row] = builder.shuffle_vector(first, second, _mask(upper))
            turned[row + step] = builder.shuffle_vector(first, second, _mask(lower))
        step *= 2
    return turned


def _mask(lanes: Sequence[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))
