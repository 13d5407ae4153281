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

from ..llvm.builder import Code
from ..llvm.flow import fold, loop, select, when
from ..llvm.gather_scatter import load_ints
from ..llvm.strided import emit_copy
from ..llvm.values import ALIGNMENT, FLOAT_BYTES, I1, I32, Floats, Ints, Longs, Number, Truth
from ..llvm.vectors import Lanes

QUEUE_HEAD = ALIGNMENT
ROWS_AHEAD = 16
"""Features whose slots in a queue are fetched ahead: they may have left the second-level cache."""

COUNT, FILLING = 0, 1
"""Words of a queue: the number of its columns, and which tile is filled first."""

ROW_NUMBER_BYTES = 8


class QueueTile(NamedTuple):
    """Addresses of one of a queue's two tiles."""

    row_numbers: Longs
    columns: Floats


@dataclass(frozen=True)
class _Moves:
    """Moves of live columns into the slots of a queue from `start` to `end`."""

    start: Number
    end: Number
    sources: Ints
    """The column that comes to each slot."""
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

    def queue_tile(self, queue: Longs, tile_bytes: Number | int, number: Number) -> QueueTile:
        """Return the addresses of tile `number`, 0 or 1, of a queue."""
        numbers_bytes = ROW_NUMBER_BYTES * self.width
        numbers = QUEUE_HEAD + number * numbers_bytes
        columns = (QUEUE_HEAD + 2 * numbers_bytes) + number * tile_bytes
        return QueueTile(queue.after(numbers), queue.after(columns).cast(Floats))

    def find_live(self) -> ir.Function:
        """Return `void (columns, features, count, liveness)`: which of the first `count` columns are not zero."""

        @self.code.kernel(f"find_live_{self.width}")
        def kernel(columns: Floats, features: Number, count: Number, liveness: Longs) -> None:
            lanes = self.code.lanes(columns, self.lane_count)
            total = count.constant(0)
            for vector, bits in enumerate(self._joined(lanes, columns, features)):
                some = lanes.builder.icmp_unsigned("!=", bits, lanes.ints(0))
                mask = Number(lanes.builder, lanes.builder.bitcast(some, ir.IntType(self.lane_count))).wide()
                mask &= self._first_bits(count - vector * self.lane_count)
                liveness[1 + vector] = mask
                total += mask.set_bits()
            liveness[0] = total

        return kernel

    def _joined(self, lanes: Lanes, columns: Floats, features: Number) -> list[ir.Value]:
        """Return for each vector of columns the bits that any feature has."""

        def join(feature: Number, bits: list[ir.Value]) -> list[ir.Value]:
            values = lanes.vectors(columns.at(feature * self.width), self.vectors)
            return [lanes.builder.or_(lanes.bits(value), known) for value, known in zip(values, bits, strict=True)]

        return fold(features, [lanes.ints(0)] * self.vectors, join)

    def append(self) -> ir.Function:
        """Return `void (columns, row_numbers, liveness, features, queue, tile_bytes)`: live columns enter the queue."""

        @self.code.kernel(f"append_{self.width}")
        def kernel(
            columns: Floats, row_numbers: Longs, liveness: Longs, features: Number, queue: Longs, tile_bytes: Number
        ) -> None:
            filling = queue[FILLING]
            tiles = [self.queue_tile(queue, tile_bytes, number) for number in (filling, 1 - filling)]
            start, sources = queue[COUNT], liveness.at(self.width).cast(Ints)
            end = self._emit_sources(liveness, start, sources)
            queue[COUNT] = end
            moves = _Moves(start, end, sources, tiles)
            _emit_numbers(moves, row_numbers, self.width)
            # the vectors of slots in which columns arrive
            first, last = start // self.lane_count, (end - 1) // self.lane_count
            with loop(last + 1 - first) as vector:
                self._emit_vector(moves, first + vector, columns, features)

        return kernel

    def _emit_sources(self, liveness: Longs, start: Number, sources: Ints) -> Number:
        """Write for each slot from `start` on which live column comes there; return the slot behind the last."""

        def column(number: Number, slot: Number) -> Number:
            # a column that is dead is written, too, and then overwritten
            sources[slot] = number.narrow(I32)
            return slot + self._is_live(liveness, number).number()

        return fold(start.constant(self.width), start, column)

    def _emit_vector(self, moves: _Moves, vector: Number, columns: Floats, features: Number) -> None:
        """Emit the moves of columns into one vector of slots; vectors are counted as slots are."""
        first_tile, second_tile = moves.tiles
        lanes = self.code.lanes(columns, self.lane_count)
        # where the vector is in one of both tiles
        beyond = vector >= self.vectors
        tile = select(beyond, second_tile.columns, first_tile.columns)
        within = select(beyond, vector - self.vectors, vector)
        # which of its slots are filled, and with which columns
        first = vector * self.lane_count
        before, behind = (self._first_bits(at - first) for at in (moves.start, moves.end))
        wanted = self._lane_mask(behind & ~before)
        target = tile.at(within * self.lane_count)
        chosen = self._chosen_columns(lanes, moves.sources.at(first), columns)
        with loop(features) as feature:
            row = feature * self.width
            target.at(row + ROWS_AHEAD * self.width).fetch(1)
            lanes.store_chosen(chosen(row), target.at(row), wanted)

    def _chosen_columns(self, lanes: Lanes, numbers: Ints, columns: Floats) -> Callable[[Number], ir.Value]:
        """Return what emits the columns of a row whose numbers stand in a vector of 32-bit words."""
        builder = lanes.builder
        if not self.code.target.has_avx512:
            wanted = [numbers[lane] for lane in range(lanes.width)]
            # slots that are not used hold anything
            known = [column.unsigned("<", self.width) for column in wanted]
            safe = [select(here, column, 0) for here, column in zip(known, wanted, strict=True)]
            return lambda row: _gathered(lanes, [columns.at(row + one) for one in safe])
        indices = load_ints(lanes, numbers, FLOAT_BYTES)
        pair_of = builder.lshr(indices, lanes.ints(5))

        def permuted(row: Number) -> ir.Value:
            starts = [columns.at(row + 16 * vector) for vector in range(self.vectors)]
            values = [lanes.load(start, lanes.size) for start in starts]
            result = lanes.splat(0.0)
            # a permutation chooses among two vectors
            for pair in range(-(-len(values) // 2)):
                found = lanes.permuted(values[2 * pair], values[min(2 * pair + 1, len(values) - 1)], indices)
                here = builder.icmp_unsigned("==", pair_of, lanes.ints(pair))
                result = found if len(values) <= 2 else builder.select(here, found, result)
            return result

        return permuted

    def write_rows(self) -> ir.Function:
        """Return `void (rows, row_numbers, liveness, features, out)`: live row n is written to row row_numbers[n]."""

        @self.code.kernel(f"write_rows_{self.width}")
        def kernel(rows: Floats, row_numbers: Longs, liveness: Longs, features: Number, out: Floats) -> None:
            with loop(features.constant(self.width)) as column, when(self._is_live(liveness, column)):
                number = row_numbers[column]
                emit_copy(self.code, rows.at(column * features), out.at(number * features), features)

        return kernel

    def _first_bits(self, count: Number) -> Number:
        """Return a mask of the first `count` columns of a vector: none for a negative count, all for a large one."""
        count = select(count > self.lane_count, self.lane_count, count)
        count = select(count < 0, 0, count)
        return (count.constant(1) << count) - 1

    def _is_live(self, liveness: Longs, column: Number) -> Truth:
        vector = column // self.lane_count
        mask = liveness[vector + 1]
        bit = (mask >> column % self.lane_count).narrow(I1)
        return Truth(bit.builder, bit.value)

    def _lane_mask(self, mask: Number) -> ir.Value:
        """Return a mask of bits as a vector."""
        bits = mask.narrow(ir.IntType(self.lane_count))
        return mask.builder.bitcast(bits.value, ir.VectorType(I1, self.lane_count))


def _emit_numbers(moves: _Moves, row_numbers: Longs, width: int) -> None:
    """Emit the moves of row numbers."""
    first_tile, second_tile = moves.tiles
    with loop(moves.end - moves.start) as index:
        slot = moves.start + index
        source = moves.sources[slot]
        beyond = slot >= width
        target = select(beyond, second_tile.row_numbers.at(slot - width), first_tile.row_numbers.at(slot))
        target[0] = row_numbers[source]


def _gathered(lanes: Lanes, addresses: Sequence[Floats]) -> ir.Value:
    """Return the floats at some addresses as a vector."""
    vector: ir.Value = ir.Constant(lanes.vector, ir.Undefined)
    for lane, address in enumerate(addresses):
        vector = lanes.builder.insert_element(vector, address[0], ir.Constant(I32, lane))
    return vector
