"""What a cascade of queues does with the columns of a tile: which are alive, moving these together, writing their rows.

A queue is a head of 64 bytes, [columns in it, tile that is filled first], the row numbers of two tiles, and the tiles.
What is known of a tile's life is [columns alive, a mask of bits for each vector of columns], in as many words as there
are columns; 32-bit words for the places of two tiles and a vector more follow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from redpebble.lowering.llvm.builder import (
    ALIGNMENT,
    FLOAT,
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
from redpebble.lowering.llvm.prefetch import fetch_lines
from redpebble.lowering.llvm.strided import Strided, copy_values, emit_strided
from redpebble.lowering.llvm.vectors import Lanes

QUEUE_HEAD = ALIGNMENT
ROWS_AHEAD = 16
"""Features whose place in a queue is fetched ahead: it may have left the second-level cache."""

COUNT = 0
"""The word of a queue that counts its columns; the next one says which tile is filled first."""


@dataclass(frozen=True)
class _Moves:
    """Which columns move: the first place and the one behind the last, the columns that come there, and the tiles."""

    builder: ir.IRBuilder
    places: tuple[ir.Value, ir.Value]
    sources: ir.Value
    """A 32-bit word for each place."""
    tiles: Sequence[tuple[ir.Value, ir.Value]]


@dataclass(frozen=True)
class Columns:
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

    def tile_of(
        self, builder: ir.IRBuilder, queue: ir.Value, tile_bytes: int | ir.Value, number: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        """Return the row numbers and the columns of one of a queue's two tiles."""
        size = i64(tile_bytes) if isinstance(tile_bytes, int) else tile_bytes
        ids = byte_at(builder, queue, builder.add(i64(QUEUE_HEAD), builder.mul(number, i64(8 * self.width))))
        start = builder.add(i64(QUEUE_HEAD + 2 * 8 * self.width), builder.mul(number, size))
        return ids, byte_at(builder, queue, start)

    def find_life(self) -> ir.Function:
        """Return `void (columns, features, count, life)`: which of the first `count` columns are not zero."""

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            columns, features, count, life = args
            lanes = self.code.lanes(builder, self.lane_count)
            found = self._joined(builder, lanes, (columns, features))
            total: ir.Value = i64(0)
            for vector, bits in enumerate(found):
                some = builder.icmp_unsigned("!=", bits, lanes.ints(0))
                mask = builder.zext(builder.bitcast(some, ir.IntType(self.lane_count)), I64)
                mask = builder.and_(mask, self._first_bits(builder, builder.sub(count, i64(vector * self.lane_count))))
                builder.store(mask, word_at(builder, life, i64(1 + vector)))
                total = builder.add(total, self._ones(builder, mask))
            builder.store(total, life)

        return self.code.function(f"find_life_{self.width}", [POINTER, I64, I64, POINTER], body)

    def _joined(self, builder: ir.IRBuilder, lanes: Lanes, tile: tuple[ir.Value, ir.Value]) -> list[ir.Value]:
        """Return for each vector of columns the bits that any feature has."""
        columns, features = tile

        def join(feature: ir.Value, bits: Sequence[ir.Value]) -> list[ir.Value]:
            row = float_at(builder, columns, builder.mul(feature, i64(self.width)))
            places = (float_at(builder, row, i64(vector * lanes.width)) for vector in range(self.vectors))
            values = (lanes.load(place, FLOAT_BYTES * lanes.width) for place in places)
            return [builder.or_(lanes.bits(value), known) for value, known in zip(values, bits, strict=True)]

        return reduce_loop(builder, (i64(0), features), [lanes.ints(0)] * self.vectors, join)

    def append(self) -> ir.Function:
        """Return `void (columns, ids, life, features, queue, tile_bytes)`: the living move into the queue.

        Places in a queue are counted through both of its tiles, the one that is filled first before the other.
        """

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            columns, ids, life, features, queue, tile_bytes = args
            turn = builder.load(word_at(builder, queue, i64(COUNT + 1)), typ=I64)
            tiles = [self.tile_of(builder, queue, tile_bytes, number) for number in (turn, builder.sub(i64(1), turn))]
            count_at = word_at(builder, queue, i64(COUNT))
            start, sources = builder.load(count_at, typ=I64), word_at(builder, life, i64(self.width))
            end = self._emit_sources(builder, life, (start, sources))
            builder.store(end, count_at)
            moves = _Moves(builder, (start, end), sources, tiles)
            self._emit_numbers(moves, ids)
            lanes = i64(self.lane_count)
            first, last = builder.udiv(start, lanes), builder.udiv(builder.sub(end, i64(1)), lanes)
            with counted_loop(builder, builder.sub(builder.add(last, i64(1)), first)) as vector:
                self._emit_vector(moves, builder.add(first, vector), (columns, features))

        return self.code.function(f"append_{self.width}", [*[POINTER] * 3, I64, POINTER, I64], body)

    def _emit_sources(self, builder: ir.IRBuilder, life: ir.Value, places: tuple[ir.Value, ir.Value]) -> ir.Value:
        """Write for each place from the first on which living column comes there; return the place behind the last."""
        start, sources = places

        def column(number: ir.Value, values: Sequence[ir.Value]) -> list[ir.Value]:
            (place,) = values
            # a column that is dead is written, too, and then overwritten
            builder.store(builder.trunc(number, I32), float_at(builder, sources, place))
            return [builder.add(place, builder.zext(self._is_alive(builder, life, number), I64))]

        (end,) = reduce_loop(builder, (i64(0), i64(self.width)), [start], column)
        return end

    def _emit_numbers(self, moves: "_Moves", ids: ir.Value) -> None:
        """Emit the move of row numbers."""
        builder, (start, end) = moves.builder, moves.places
        (first_ids, _), (second_ids, _) = moves.tiles
        with counted_loop(builder, builder.sub(end, start)) as index:
            place = builder.add(start, index)
            source = builder.zext(builder.load(float_at(builder, moves.sources, place), typ=I32), I64)
            beyond = builder.icmp_signed(">=", place, i64(self.width))
            target = builder.select(
                beyond,
                word_at(builder, second_ids, builder.sub(place, i64(self.width))),
                word_at(builder, first_ids, place),
            )
            builder.store(builder.load(word_at(builder, ids, source), typ=I64), target)

    def _emit_vector(self, moves: "_Moves", vector: ir.Value, source: tuple[ir.Value, ir.Value]) -> None:
        """Emit the move of columns to a whole vector of places, in both tiles counted, as far as they are used."""
        builder, (start, end), (columns, features) = moves.builder, moves.places, source
        lanes = self.code.lanes(builder, self.lane_count)
        beyond = builder.icmp_signed(">=", vector, i64(self.vectors))
        tile = builder.select(beyond, moves.tiles[1][1], moves.tiles[0][1])
        within = builder.select(beyond, builder.sub(vector, i64(self.vectors)), vector)
        first = builder.mul(vector, i64(self.lane_count))
        before, behind = (self._first_bits(builder, builder.sub(place, first)) for place in (start, end))
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
            places = [
                builder.zext(builder.load(float_at(builder, numbers, i64(lane)), typ=I32), I64)
                for lane in range(lanes.width)
            ]
            # places that are not used hold anything
            known = [builder.icmp_unsigned("<", place, i64(self.width)) for place in places]
            safe = [builder.select(here, place, i64(0)) for here, place in zip(known, places, strict=True)]
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
        """Return `void (rows, ids, life, features, out)`: row n of `rows` becomes row ids[n] if column n is alive."""

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            rows, ids, life, features, out = args
            with counted_loop(builder, i64(self.width)) as column:  # noqa: SIM117 - the second one needs the first
                with builder.if_then(self._is_alive(builder, life, column)):
                    number = builder.load(word_at(builder, ids, column), typ=I64)
                    source, target = (
                        float_at(builder, buffer, builder.mul(row, features))
                        for buffer, row in ((rows, column), (out, number))
                    )
                    views = (Strided(target, (1,)), [Strided(source, (1,))], copy_values)
                    emit_strided(self.code, builder, [features], views)

        return self.code.function(f"write_rows_{self.width}", [*[POINTER] * 3, I64, POINTER], body)

    def _first_bits(self, builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
        """Return a mask of the first `count` columns of a vector: none for a negative count, all for a large one."""
        most = i64(self.lane_count)
        count = builder.select(builder.icmp_signed(">", count, most), most, count)
        count = builder.select(builder.icmp_signed("<", count, i64(0)), i64(0), count)
        return builder.sub(builder.shl(i64(1), count), i64(1))

    def _is_alive(self, builder: ir.IRBuilder, life: ir.Value, column: ir.Value) -> ir.Value:
        """Return whether a column is alive, as one bit."""
        vector = builder.udiv(column, i64(self.lane_count))
        mask = builder.load(word_at(builder, life, builder.add(vector, i64(1))), typ=I64)
        return builder.trunc(builder.lshr(mask, builder.urem(column, i64(self.lane_count))), ir.IntType(1))

    def _ones(self, builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
        return builder.ctpop(mask)

    def _lane_mask(self, builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
        """Return a mask of bits as a vector."""
        bits = builder.trunc(mask, ir.IntType(self.lane_count))
        return builder.bitcast(bits, ir.VectorType(ir.IntType(1), self.lane_count))


def _gathered(lanes: Lanes, places: Sequence[ir.Value]) -> ir.Value:
    """Return the floats at some places as a vector."""
    vector: ir.Value = ir.Constant(lanes.float_vector, ir.Undefined)
    for lane, place in enumerate(places):
        value = lanes.builder.load(place, typ=FLOAT)
        vector = lanes.builder.insert_element(vector, value, ir.Constant(I32, lane))
    return vector


def word_at(builder: ir.IRBuilder, table: ir.Value, index: ir.Value) -> ir.Value:
    """Return the address of a 64-bit word of a table."""
    return builder.gep(table, [index], source_etype=I64)
