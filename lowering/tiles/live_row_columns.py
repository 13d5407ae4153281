"""Columns of tiles whose dead rows are dropped: which are live, moving these into a queue, writing their rows.

A queue is a head of 64 bytes, [columns in it, tile that is filled first], the row numbers of two tiles, and the tiles;
its slots are counted through both tiles, the one that is filled first before the other. The liveness of a tile is
[live columns, a mask of bits for each vector of columns], in as many words as there are columns; 32-bit words for the
slots of two tiles and a vector more follow.

    find_live  sum v  = bits of column 16 v + lane, or'ed over all features; a mask is (sum v != 0)
    append     chosen = vpermi2ps of the two vectors of a row that hold the wanted columns; a masked store puts it
                        behind what the queue holds
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from ..llvm.builder import (
    ALIGNMENT,
    FLOAT_BYTES,
    I32,
    I64,
    POINTER,
    Code,
    byte_at,
    counted_loop,
    float_at,
    i64,
    reduce_loop,
)
from ..llvm.prefetch import fetch_lines
from ..llvm.strided import emit_copy
from ..llvm.values import Floats, Number
from ..llvm.vectors import FLOAT, Lanes

QUEUE_HEAD = ALIGNMENT
ROWS_AHEAD = 16
"""Features whose slots in a queue are fetched ahead: they may have left the second-level cache."""

COUNT, FILLING = 0, 1
"""Words of a queue: the number of its columns, and which tile is filled first."""

ROW_NUMBER_BYTES = 8


class QueueTile(NamedTuple):
    """Addresses of one of a queue's two tiles."""

    row_numbers: ir.Value
    columns: ir.Value


@dataclass(frozen=True)
class _Moves:
    """Moves of live columns into the slots of a queue from `start` to `end`."""

    builder: ir.IRBuilder
    start: ir.Value
    end: ir.Value
    sources: ir.Value
    """The column that comes to each slot, 32-bit words."""
    tiles: Sequence[QueueTile]
    """The tile that is filled first, and the other one."""


@dataclass(frozen=True)
class TileColumns:
    """The functions for tiles of `width` columns."""

    code: Code
    width: int

    @property
    def lane_count(self) -> int:
        """Columns in a vector."""
        return self.code.column_lanes(self.width)

    @property
    def vectors(self) -> int:
        """Vectors in a row of a tile."""
        return self.width // self.lane_count

    def queue_tile(self, builder: ir.IRBuilder, queue: ir.Value, tile_bytes: ir.Value, number: ir.Value) -> QueueTile:
        """Return the addresses of tile `number`, 0 or 1, of a queue."""
        numbers_bytes = ROW_NUMBER_BYTES * self.width
        numbers = builder.add(i64(QUEUE_HEAD), builder.mul(number, i64(numbers_bytes)))
        columns = builder.add(i64(QUEUE_HEAD + 2 * numbers_bytes), builder.mul(number, tile_bytes))
        return QueueTile(byte_at(builder, queue, numbers), byte_at(builder, queue, columns))

    def find_live(self) -> ir.Function:
        """Return `void (columns, features, count, liveness)`: which of the first `count` columns are not zero."""

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            columns, features, count, liveness = args
            lanes = self.code.lanes(builder, self.lane_count)
            found = self._joined(builder, lanes, columns, features)
            total: ir.Value = i64(0)
            for vector, bits in enumerate(found):
                some = builder.icmp_unsigned("!=", bits, lanes.ints(0))
                mask = builder.zext(builder.bitcast(some, ir.IntType(self.lane_count)), I64)
                mask = builder.and_(mask, self._first_bits(builder, builder.sub(count, i64(vector * self.lane_count))))
                builder.store(mask, word_at(builder, liveness, i64(1 + vector)))
                total = builder.add(total, builder.ctpop(mask))
            builder.store(total, liveness)

        return self.code.function(f"find_live_{self.width}", [POINTER, I64, I64, POINTER], body)

    def _joined(self, builder: ir.IRBuilder, lanes: Lanes, columns: ir.Value, features: ir.Value) -> list[ir.Value]:
        """Return for each vector of columns the bits that any feature has."""

        def join(feature: ir.Value, bits: Sequence[ir.Value]) -> list[ir.Value]:
            row = float_at(builder, columns, builder.mul(feature, i64(self.width)))
            addresses = (float_at(builder, row, i64(vector * lanes.width)) for vector in range(self.vectors))
            values = (lanes.load(address, FLOAT_BYTES * lanes.width) for address in addresses)
            return [builder.or_(lanes.bits(value), known) for value, known in zip(values, bits, strict=True)]

        return reduce_loop(builder, features, [lanes.ints(0)] * self.vectors, join)

    def append(self) -> ir.Function:
        """Return `void (columns, row_numbers, liveness, features, queue, tile_bytes)`: live columns enter the queue."""

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            columns, row_numbers, liveness, features, queue, tile_bytes = args
            filling = builder.load(word_at(builder, queue, i64(FILLING)), typ=I64)
            numbers = (filling, builder.sub(i64(1), filling))
            tiles = [self.queue_tile(builder, queue, tile_bytes, number) for number in numbers]
            count_at = word_at(builder, queue, i64(COUNT))
            start, sources = builder.load(count_at, typ=I64), word_at(builder, liveness, i64(self.width))
            end = self._emit_sources(builder, liveness, start, sources)
            builder.store(end, count_at)
            moves = _Moves(builder, start, end, sources, tiles)
            self._emit_numbers(moves, row_numbers)
            lanes = i64(self.lane_count)
            first, last = builder.udiv(start, lanes), builder.udiv(builder.sub(end, i64(1)), lanes)
            with counted_loop(builder, builder.sub(builder.add(last, i64(1)), first)) as vector:
                self._emit_vector(moves, builder.add(first, vector), columns, features)

        return self.code.function(f"append_{self.width}", [*[POINTER] * 3, I64, POINTER, I64], body)

    def _emit_sources(self, builder: ir.IRBuilder, liveness: ir.Value, start: ir.Value, sources: ir.Value) -> ir.Value:
        """Write for each slot from `start` on which live column comes there; return the slot behind the last."""

        def column(number: ir.Value, values: Sequence[ir.Value]) -> list[ir.Value]:
            (slot,) = values
            # a column that is dead is written, too, and then overwritten
            builder.store(builder.trunc(number, I32), float_at(builder, sources, slot))
            return [builder.add(slot, builder.zext(self._is_live(builder, liveness, number), I64))]

        (end,) = reduce_loop(builder, i64(self.width), [start], column)
        return end

    def _emit_numbers(self, moves: _Moves, row_numbers: ir.Value) -> None:
        """Emit the moves of row numbers."""
        builder, (first_tile, second_tile) = moves.builder, moves.tiles
        with counted_loop(builder, builder.sub(moves.end, moves.start)) as index:
            slot = builder.add(moves.start, index)
            source = builder.zext(builder.load(float_at(builder, moves.sources, slot), typ=I32), I64)
            target = builder.select(
                builder.icmp_signed(">=", slot, i64(self.width)),
                word_at(builder, second_tile.row_numbers, builder.sub(slot, i64(self.width))),
                word_at(builder, first_tile.row_numbers, slot),
            )
            builder.store(builder.load(word_at(builder, row_numbers, source), typ=I64), target)

    def _emit_vector(self, moves: _Moves, vector: ir.Value, columns: ir.Value, features: ir.Value) -> None:
        """Emit the moves of columns into one vector of slots; vectors are counted as slots are."""
        builder, (first_tile, second_tile) = moves.builder, moves.tiles
        lanes = self.code.lanes(builder, self.lane_count)
        beyond = builder.icmp_signed(">=", vector, i64(self.vectors))
        tile = builder.select(beyond, second_tile.columns, first_tile.columns)
        within = builder.select(beyond, builder.sub(vector, i64(self.vectors)), vector)
        first = builder.mul(vector, i64(self.lane_count))
        before, behind = (self._first_bits(builder, builder.sub(at, first)) for at in (moves.start, moves.end))
        wanted = self._lane_mask(builder, builder.and_(behind, builder.not_(before)))
        target = float_at(builder, tile, builder.mul(within, i64(self.lane_count)))
        chosen = self._chosen_columns(lanes, float_at(builder, moves.sources, first), columns)
        with counted_loop(builder, features) as feature:
            row = builder.mul(feature, i64(self.width))
            fetch_lines(builder, float_at(builder, target, builder.add(row, i64(ROWS_AHEAD * self.width))), 1)
            lanes.store_chosen(chosen(row), float_at(builder, target, row), wanted)

    def _chosen_columns(self, lanes: Lanes, numbers: ir.Value, columns: ir.Value) -> Callable[[ir.Value], ir.Value]:
        """Return what emits the columns of a row whose numbers stand in a vector of 32-bit words."""
        builder = lanes.builder
        if not self.code.target.has_avx512:
            wanted = [
                builder.zext(builder.load(float_at(builder, numbers, i64(lane)), typ=I32), I64)
                for lane in range(lanes.width)
            ]
            # slots that are not used hold anything
            known = [builder.icmp_unsigned("<", column, i64(self.width)) for column in wanted]
            safe = [builder.select(here, column, i64(0)) for here, column in zip(known, wanted, strict=True)]
            return lambda row: _gathered(lanes, [float_at(builder, columns, builder.add(row, one)) for one in safe])
        indices = builder.load(numbers, align=FLOAT_BYTES, typ=lanes.int_vector)
        pair_of = builder.lshr(indices, lanes.ints(5))

        def permuted(row: ir.Value) -> ir.Value:
            starts = [float_at(builder, columns, builder.add(row, i64(16 * vector))) for vector in range(self.vectors)]
            values = [lanes.load(start, FLOAT_BYTES * lanes.width) for start in starts]
            result = lanes.splat(0.0)
            for pair in range(-(-len(values) // 2)):
                found = lanes.permuted(values[2 * pair], values[min(2 * pair + 1, len(values) - 1)], indices)
                here = builder.icmp_unsigned("==", pair_of, lanes.ints(pair))
                result = found if len(values) <= 2 else builder.select(here, found, result)
            return result

        return permuted

    def write_rows(self) -> ir.Function:
        """Return `void (rows, row_numbers, liveness, features, out)`: live row n is written to row row_numbers[n]."""

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            rows, row_numbers, liveness, features, out = args
            with counted_loop(builder, i64(self.width)) as column:  # noqa: SIM117 - the second one needs the first
                with builder.if_then(self._is_live(builder, liveness, column)):
                    number = builder.load(word_at(builder, row_numbers, column), typ=I64)
                    source, target = (
                        float_at(builder, buffer, builder.mul(row, features))
                        for buffer, row in ((rows, column), (out, number))
                    )
                    emit_copy(self.code, Floats(builder, source), Floats(builder, target), Number(builder, features))

        return self.code.function(f"write_rows_{self.width}", [*[POINTER] * 3, I64, POINTER], body)

    def _first_bits(self, builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
        """Return a mask of the first `count` columns of a vector: none for a negative count, all for a large one."""
        most = i64(self.lane_count)
        count = builder.select(builder.icmp_signed(">", count, most), most, count)
        count = builder.select(builder.icmp_signed("<", count, i64(0)), i64(0), count)
        return builder.sub(builder.shl(i64(1), count), i64(1))

    def _is_live(self, builder: ir.IRBuilder, liveness: ir.Value, column: ir.Value) -> ir.Value:
        """Return whether a column is live, as one bit."""
        vector = builder.udiv(column, i64(self.lane_count))
        mask = builder.load(word_at(builder, liveness, builder.add(vector, i64(1))), typ=I64)
        return builder.trunc(builder.lshr(mask, builder.urem(column, i64(self.lane_count))), ir.IntType(1))

    def _lane_mask(self, builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
        """Return a mask of bits as a vector."""
        bits = builder.trunc(mask, ir.IntType(self.lane_count))
        return builder.bitcast(bits, ir.VectorType(ir.IntType(1), self.lane_count))


def _gathered(lanes: Lanes, addresses: Sequence[ir.Value]) -> ir.Value:
    """Return the floats at some addresses as a vector."""
    vector: ir.Value = ir.Constant(lanes.float_vector, ir.Undefined)
    for lane, address in enumerate(addresses):
        value = lanes.builder.load(address, typ=FLOAT)
        vector = lanes.builder.insert_element(vector, value, ir.Constant(I32, lane))
    return vector


def word_at(builder: ir.IRBuilder, table: ir.Value, index: ir.Value) -> ir.Value:
    """Return the address of a 64-bit word of a table."""
    return builder.gep(table, [index], source_etype=I64)
