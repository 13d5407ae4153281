"""Products of a block of queries by tiles (AMX), each float as the sum of two bfloat16.

A float f is high + low, where high has 8 bits of f and low the next 8. Left times right are three products, high high,
high low and low high, which sum up in floats: at most 2^-16 of a product is lost, less than rounding to codes loses.

    left     [16 rows][32 of the depth], rows of 64 bytes       tiles of high, then of low, for each 32 of the depth
    right    [16 pairs of the depth][16 columns][2]             the same
    target   [rows, width] floats, which may be added to

For scores rows are keys, and the depth their features; for values rows are features, which transposes them, and the
depth the keys of the block.
"""

from collections.abc import Sequence
from typing import Final

from llvmlite import ir

from ..llvm.activations import UPPER
from ..llvm.builder import Code
from ..llvm.flow import call, loop
from ..llvm.matrix_tiles import ROW_BYTES, ROWS, TILE_BYTES, MatrixTiles
from ..llvm.transposition import rows_to_columns
from ..llvm.values import FLOAT_BYTES, I16, Bytes, Floats, Number
from ..llvm.vectors import Lanes
from .form import DEPTH

BOTH: Final = 2
"""Tiles of high, and of low halves."""

HALF: Final = 0x8000
BITS: Final = 16


def _halves(lanes: Lanes, values: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the bits of high and of low, whose lower 16 do not count."""
    builder = lanes.builder
    high = builder.and_(builder.add(lanes.bits(values), lanes.ints(HALF)), lanes.ints(UPPER))
    low = lanes.bits(lanes.sub(values, lanes.from_bits(high)))
    return high, builder.add(low, lanes.ints(HALF))


def _write_left(lanes: Lanes, values: ir.Value, place: Bytes) -> None:
    """Write 16 values of a row to its place in the tile of high halves, and in the one behind it."""
    builder = lanes.builder
    for part, bits in enumerate(_halves(lanes, values)):
        words = builder.trunc(builder.lshr(bits, lanes.ints(BITS)), ir.VectorType(I16, lanes.width))
        place.after(part * TILE_BYTES).store(words, lanes.width)


def left_of_keys(code: Code, features: int) -> ir.Function:
    """Return `void (keys, tiles, stride of keys, number of keys)`; keys behind the last are this one again."""
    groups = features // DEPTH

    @code.kernel(f"attention_keys_in_tiles_{features}")
    def kernel(keys: Floats, tiles: Bytes, stride: Number, count: Number) -> None:
        lanes, last = code.lanes(keys), count - 1
        with loop(count.divided_up(ROWS) * ROWS) as row:
            source = keys.at(last.smaller(row) * stride)
            target = tiles.after(row // ROWS * (groups * BOTH * TILE_BYTES) + row % ROWS * ROW_BYTES)
            for group in range(groups):
                for half in range(DEPTH // lanes.width):
                    value = lanes.load(source.at(group * DEPTH + half * lanes.width))
                    place = target.after(group * BOTH * TILE_BYTES + half * lanes.width * BOTH)
                    _write_left(lanes, value, place)

    return kernel


def left_of_values(code: Code, features: int, width: int, groups: int) -> ir.Function:
    """Return `void (values, tiles, memory [features, width], stride of values, number of keys)`.

    There is room for `groups` of 32 keys; behind the last key is this one again.
    """

    @code.kernel(f"attention_values_in_tiles_{features}_{width}_{groups}")
    def kernel(values: Floats, tiles: Bytes, memory: Floats, stride: Number, count: Number) -> None:
        lanes = code.lanes(values)
        with loop(count.divided_up(DEPTH) * DEPTH, width) as first:
            some, source = (count - first).smaller(width).larger(1), values.at(first.smaller(count - 1) * stride)
            call(rows_to_columns(code, width), source, memory, stride, features, some, width)
            start = tiles.after(first // DEPTH * (BOTH * TILE_BYTES) + first % DEPTH * BOTH)
            with loop(count.constant(features)) as feature:
                row = start.after(feature // ROWS * (groups * BOTH * TILE_BYTES) + feature % ROWS * ROW_BYTES)
                for column in range(0, width, lanes.width):
                    value = lanes.load(memory.at(feature * width + column), lanes.size)
                    place = row.after(column // DEPTH * BOTH * TILE_BYTES + column % DEPTH * BOTH)
                    _write_left(lanes, value, place)

    return kernel


def right_in_tiles(code: Code, width: int, groups: int) -> ir.Function:
    """Return `void (rows of columns, tiles, number of 32 rows)`, tiles of 16 columns `groups` of 32 rows apart."""

    @code.kernel(f"attention_in_tiles_{width}_{groups}")
    def kernel(source: Floats, tiles: Bytes, count: Number) -> None:
        lanes, builder = code.lanes(source), source.builder
        with loop(count * (DEPTH // BOTH)) as pair:
            rows = source.at(pair * (BOTH * width))
            target = tiles.after(pair // ROWS * (BOTH * TILE_BYTES) + pair % ROWS * ROW_BYTES)
            for column in range(0, width, lanes.width):
                first, second = (_halves(lanes, lanes.load(rows.at(row * width + column))) for row in range(BOTH))
                place = target.after(column // lanes.width * groups * BOTH * TILE_BYTES)
                for part, (low, high) in enumerate(zip(first, second, strict=True)):
                    upper = builder.and_(high, lanes.ints(UPPER))
                    words = builder.or_(upper, builder.lshr(low, lanes.ints(BITS)))
                    place.after(part * TILE_BYTES).store(words, lanes.size)

    return kernel


def tile_products(code: Code, width: int, groups: int, *, adds: bool) -> ir.Function:
    """Return `void (left, right, target [rows, width], number of 16 rows, number of 32 of the depth)`.

    Tiles of 16 rows, or of 16 columns, are `groups` of 32 of the depth apart; `adds` to what is in the target.
    """
    vectors = width // ROWS
    stride, distance = FLOAT_BYTES * width, groups * BOTH * TILE_BYTES

    @code.kernel(f"attention_tiles_{width}_{groups}{'_adds' if adds else ''}")
    def kernel(left: Bytes, right: Bytes, target: Bytes, row_tiles: Number, depth: Number) -> None:
        tiles = MatrixTiles(left.builder)
        for column in range(0, vectors, 2):
            columns = range(min(2, vectors - column))
            with loop(row_tiles) as row:
                places = [target.after(row * (ROWS * stride) + (column + one) * ROW_BYTES) for one in columns]
                for one, place in enumerate(places):
                    if adds:
                        tiles.load(one, place, stride)
                    else:
                        tiles.clear(one)
                with loop(depth) as group:
                    step = group * (BOTH * TILE_BYTES)
                    _load_both(tiles, (2, 3), left.after(row * distance + step))
                    for one in columns:
                        high, low = 4 + 2 * one, 5 + 2 * one
                        _load_both(tiles, (high, low), right.after(step + (column + one) * distance))
                    for pair in ((2, 0), (2, 1), (3, 0)):
                        for one in columns:
                            tiles.multiply_bfloats(one, pair[0], 4 + 2 * one + pair[1])
                for one, place in enumerate(places):
                    tiles.store(one, place, stride)

    return kernel


def _load_both(tiles: MatrixTiles, registers: Sequence[int], place: Bytes) -> None:
    for part, register in enumerate(registers):
        tiles.load(register, place.after(part * TILE_BYTES), ROW_BYTES)
