"""Row compaction: tiles whose dead rows are dropped on the way, stage by stage, through queues of tiles.

A chain of layers is cut into stages behind which rows may be dropped. A full tile of columns goes through a stage; the
columns that are not zero are moved together into the queue of the next stage, which has room for two tiles; when one
of them is full it goes through its stage at once, while it is in the cache. Where nearly all columns of a tile are
live, the tile goes on as it is. Every column carries the number of its row. At the end of the batch the tiles that
are partly filled go through, the first stage's first. Only rows that are live at the end are written: the memory of
the others holds zeros already.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from llvmlite import ir

from ...dialect.ops.layers import LinearOp
from ...dialect.ops.tile import TileOp
from ...dialect.ops.tile_chain import chain_of
from ...dialect.ops.tile_dead_rows import DeadRowsAttr
from ..kernels.kernel_form import OUTPUT_PADDING
from ..llvm.builder import (
    ALIGNMENT,
    FLOAT_BYTES,
    I64,
    POINTER,
    Code,
    byte_at,
    counted_loop,
    float_at,
    i64,
)
from ..llvm.call_tables import VECTOR_ROOM, ConstantTable
from ..llvm.transposition import columns_to_rows, rows_to_columns
from .emitters import emit
from .live_row_columns import COUNT, FILLING, QUEUE_HEAD, ROW_NUMBER_BYTES, TileColumns, word_at
from .tile_code import TileCode
from .tile_memory import features_of

DEAD_SHARE = 8
"""A tile of which less than one part in so many is dead goes on as it is."""


class CompactionMemory(NamedTuple):
    """Offsets in the scratch memory of a thread, in bytes."""

    layer_buffers: tuple[int, int]
    """Two buffers between layers."""
    row_numbers: int
    """Row numbers of the tile that comes in."""
    columns: int
    """Columns of the tile that comes in."""
    liveness: int
    queues: tuple[int, ...]
    """Queue of each stage but the first."""
    total: int
    """Bytes of everything."""


@dataclass(frozen=True)
class RowCompaction:
    """A tile whose dead rows are dropped, and the stages of its chain of layers."""

    op: TileOp
    dropped: DeadRowsAttr
    stages: tuple[tuple[LinearOp, ...], ...]

    @staticmethod
    def of(op: TileOp) -> "RowCompaction | None":
        """Return the stages of a tile, None where no rows are dropped."""
        if op.dead_rows is None:
            return None
        layers = chain_of(op.body.block)
        borders = [0, *(layer + 1 for layer in op.dead_rows.layers), len(layers)]
        return RowCompaction(op, op.dead_rows, tuple(tuple(layers[start:end]) for start, end in pairwise(borders)))

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.dropped.width.data

    def features(self, stage: int) -> int:
        """Return the features that come into a stage."""
        return features_of(self.stages[stage][0].x)

    def tile_bytes(self, stage: int) -> int:
        """Return the bytes of a tile that comes into a stage."""
        return self._tile_bytes(self.features(stage))

    def _tile_bytes(self, features: int) -> int:
        """Return the bytes of a tile of `features`, and of what kernels write behind it."""
        size = ((features + OUTPUT_PADDING) * self.width + VECTOR_ROOM) * FLOAT_BYTES
        return -(-size // ALIGNMENT) * ALIGNMENT

    @cached_property
    def memory(self) -> CompactionMemory:
        """Offsets in a thread's scratch memory."""
        numbers_bytes = self.width * ROW_NUMBER_BYTES
        most = max(max(features_of(layer.x), features_of(layer.result)) for stage in self.stages for layer in stage)
        row_numbers = 2 * self._tile_bytes(most)
        columns = row_numbers + numbers_bytes
        liveness = columns + self.tile_bytes(0)
        end = liveness + 2 * numbers_bytes + ALIGNMENT
        queues: list[int] = []
        for stage in range(1, len(self.stages)):
            queues.append(end)
            end += QUEUE_HEAD + 2 * (numbers_bytes + self.tile_bytes(stage))
        return CompactionMemory((0, self._tile_bytes(most)), row_numbers, columns, liveness, tuple(queues), end)


class _LiveTile(NamedTuple):
    """A tile on its way: columns, two buffers to work in, row numbers, and how many columns count."""

    columns: ir.Value
    target: ir.Value
    spare: ir.Value
    row_numbers: ir.Value
    column_count: ir.Value


class _CallPointers(NamedTuple):
    """Arguments of every stage: the result's rows, the table of constants, and the thread's scratch memory."""

    out: ir.Value
    constants: ir.Value
    scratch: ir.Value


STAGE_ARGUMENTS = (*[POINTER] * 4, I64, *[POINTER] * 3)
"""Types of the fields of `_LiveTile` and `_CallPointers`."""


@dataclass(frozen=True)
class RowCompactionCode:
    """The functions of a tile whose dead rows are dropped; their names begin with `name`."""

    code: Code
    compaction: RowCompaction
    constants: ConstantTable
    name: str

    @property
    def _columns(self) -> TileColumns:
        return TileColumns(self.code, self.compaction.width)

    def function(self) -> ir.Function:
        """Return `void (rows in, rows out, constants, scratch, first row, row behind the last)`."""
        for stage in reversed(range(len(self.compaction.stages))):
            self._stage(stage)

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            rows, out, constants, scratch, begin, end = args
            for queue in self.compaction.memory.queues:
                for word in (COUNT, FILLING):
                    builder.store(i64(0), word_at(builder, byte_at(builder, scratch, i64(queue)), i64(word)))
            call = _CallPointers(out, constants, scratch)
            with counted_loop(builder, builder.sub(end, begin), self.compaction.width) as index:
                first = builder.add(begin, index)
                tile = self._loaded(builder, rows, first, builder.sub(end, first), scratch)
                self._call_stage(builder, 0, tile, call)
            self._emit_rest(builder, call)

        return self.code.function(self.name, [*[POINTER] * 4, I64, I64], body)

    def _loaded(
        self, builder: ir.IRBuilder, rows: ir.Value, first: ir.Value, left: ir.Value, scratch: ir.Value
    ) -> _LiveTile:
        """Return the tile of the rows from `first` on, of which `left` are left, after the code that loads it."""
        memory, width, features = self.compaction.memory, i64(self.compaction.width), i64(self.compaction.features(0))
        offsets = (memory.columns, *memory.layer_buffers, memory.row_numbers)
        columns, target, spare, numbers = (byte_at(builder, scratch, i64(offset)) for offset in offsets)
        count = builder.select(builder.icmp_signed("<", left, width), left, width)
        source = float_at(builder, rows, builder.mul(first, features))
        transpose = rows_to_columns(self.code, self.compaction.width)
        builder.call(transpose, [source, columns, features, features, count, width])
        with counted_loop(builder, count) as column:
            builder.store(builder.add(first, column), word_at(builder, numbers, column))
        return _LiveTile(columns, target, spare, numbers, count)

    def _emit_rest(self, builder: ir.IRBuilder, call: _CallPointers) -> None:
        """Emit the stages of what queues hold at the end."""
        for stage in range(1, len(self.compaction.stages)):
            queue = self._queue(builder, stage, call)
            count = builder.load(word_at(builder, queue, i64(COUNT)), typ=I64)
            with builder.if_then(builder.icmp_signed(">", count, i64(0))):
                self._call_stage(builder, stage, self._queued(builder, stage, count, call), call)

    def _queue(self, builder: ir.IRBuilder, stage: int, call: _CallPointers) -> ir.Value:
        return byte_at(builder, call.scratch, i64(self.compaction.memory.queues[stage - 1]))

    def _queued(self, builder: ir.IRBuilder, stage: int, count: ir.Value, call: _CallPointers) -> _LiveTile:
        """Return the tile of a queue that is filled first."""
        queue = self._queue(builder, stage, call)
        filling = builder.load(word_at(builder, queue, i64(FILLING)), typ=I64)
        tile = self._columns.queue_tile(builder, queue, i64(self.compaction.tile_bytes(stage)), filling)
        target, spare = (byte_at(builder, call.scratch, i64(at)) for at in self.compaction.memory.layer_buffers)
        return _LiveTile(tile.columns, target, spare, tile.row_numbers, count)

    def _call_stage(self, builder: ir.IRBuilder, stage: int, tile: _LiveTile, call: _CallPointers) -> None:
        builder.call(self.code.functions[f"{self.name}_stage{stage}"], [*tile, *call])

    def _stage(self, stage: int) -> None:
        """Make the function of a stage; those of later ones are made."""
        last = stage == len(self.compaction.stages) - 1

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            call = _CallPointers(*args[5:])
            tile = self._emit_layers(builder, stage, _LiveTile(*args[:5]), call)
            liveness = byte_at(builder, call.scratch, i64(self.compaction.memory.liveness))
            features = i64(features_of(self.compaction.stages[stage][-1].result))
            builder.call(self._columns.find_live(), [tile.columns, features, tile.column_count, liveness])
            if last:
                self._emit_rows_out(builder, tile, call.out, liveness)
            else:
                self._emit_next_stage(builder, stage + 1, tile, call, liveness)

        self.code.function(f"{self.name}_stage{stage}", STAGE_ARGUMENTS, body)

    def _emit_layers(self, builder: ir.IRBuilder, stage: int, tile: _LiveTile, call: _CallPointers) -> _LiveTile:
        """Emit the layers of a stage; return the tile where it is then, with the other buffer as its target."""
        columns, target, spare = tile.columns, tile.target, tile.spare
        for layer in self.compaction.stages[stage]:
            placed = {layer.x: columns, layer.result: target}
            tables, width = (self.constants, call.constants), self.compaction.width
            emit(layer, TileCode(self.code, builder, tables, width, call.scratch, {}, placed=placed))
            columns, target, spare = target, spare, target
        return tile._replace(columns=columns, target=target, spare=columns)

    def _emit_next_stage(
        self, builder: ir.IRBuilder, stage: int, tile: _LiveTile, call: _CallPointers, liveness: ir.Value
    ) -> None:
        """Emit the way into a stage: as the tile is where nearly all columns are live, else column by column."""
        width = self.compaction.width
        live = builder.load(liveness, typ=I64)
        with builder.if_else(builder.icmp_signed(">", live, i64(width - width // DEAD_SHARE))) as (most, fewer):
            with most:
                self._call_stage(builder, stage, tile, call)
            with fewer, builder.if_then(builder.icmp_signed(">", live, i64(0))):
                queue = self._queue(builder, stage, call)
                sizes = (self.compaction.features(stage), self.compaction.tile_bytes(stage))
                features, tile_bytes = (i64(size) for size in sizes)
                arguments = [tile.columns, tile.row_numbers, liveness, features, queue, tile_bytes]
                builder.call(self._columns.append(), arguments)
                count_at, filling_at = (word_at(builder, queue, i64(word)) for word in (COUNT, FILLING))
                count = builder.load(count_at, typ=I64)
                with builder.if_then(builder.icmp_signed(">=", count, i64(width))):
                    full = self._queued(builder, stage, i64(width), call)
                    # what did not fit stands in the other tile
                    builder.store(builder.sub(count, i64(width)), count_at)
                    builder.store(builder.sub(i64(1), builder.load(filling_at, typ=I64)), filling_at)
                    self._call_stage(builder, stage, full, call)

    def _emit_rows_out(self, builder: ir.IRBuilder, tile: _LiveTile, out: ir.Value, liveness: ir.Value) -> None:
        """Emit the writing of live rows to `out`."""
        features = i64(features_of(self.compaction.stages[-1][-1].result))
        with builder.if_then(builder.icmp_signed(">", builder.load(liveness, typ=I64), i64(0))):
            width, rows = i64(self.compaction.width), tile.target
            transpose = columns_to_rows(self.code, self.compaction.width)
            # all columns: those that do not count are no copies of the last one that does
            builder.call(transpose, [tile.columns, rows, features, features, width, width])
            builder.call(self._columns.write_rows(), [rows, tile.row_numbers, liveness, features, out])
