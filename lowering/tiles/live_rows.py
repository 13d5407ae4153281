"""Row compaction: tiles whose dead rows are dropped on the way, stage by stage, through queues of tiles.

A chain of layers is cut into stages behind which rows may be dropped. A full tile of columns goes through a stage; the
columns that are not zero are moved together into the queue of the next stage, which has room for two tiles; when one
of them is full it goes through its stage at once, while it is in the cache. Where nearly all columns of a tile are
live, the tile goes on as it is. Every column carries the number of its row. At the end of the batch the tiles that
are partly filled go through, the first stage's first. Only rows that are live at the end are written: the memory of
the others holds zeros already.
"""

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
from ..llvm.builder import Code
from ..llvm.call_tables import VECTOR_ROOM, ConstantTable
from ..llvm.flow import branch, call, loop, select, when
from ..llvm.transposition import columns_to_rows, rows_to_columns
from ..llvm.values import ALIGNMENT, FLOAT_BYTES, Bytes, Floats, Longs, Number, Pointers
from .emitters import emit
from .live_row_columns import COUNT, FILLING, QUEUE_HEAD, ROW_NUMBER_BYTES, TileColumns
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
        return self.dropped.width

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

    columns: Floats
    target: Floats
    spare: Floats
    row_numbers: Longs
    column_count: Number


class _CallPointers(NamedTuple):
    """Arguments of every stage: the result's rows, the table of constants, and the thread's scratch memory."""

    out: Floats
    constants: Pointers
    scratch: Bytes


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

        @self.code.kernel(self.name)
        def kernel(rows: Floats, out: Floats, constants: Pointers, scratch: Bytes, begin: Number, end: Number) -> None:
            for queue in self.compaction.memory.queues:
                for word in (COUNT, FILLING):
                    scratch.after(queue).cast(Longs)[word] = 0
            call_pointers = _CallPointers(out, constants, scratch)
            with loop(end - begin, self.compaction.width) as index:
                first = begin + index
                tile = self._loaded(rows, first, end - first, scratch)
                self._call_stage(0, tile, call_pointers)
            self._emit_rest(call_pointers)

        return kernel

    def _loaded(self, rows: Floats, first: Number, left: Number, scratch: Bytes) -> _LiveTile:
        """Return the tile of the rows from `first` on, of which `left` are left, after the code that loads it."""
        memory, width, features = self.compaction.memory, self.compaction.width, self.compaction.features(0)
        offsets = (memory.columns, *memory.layer_buffers)
        columns, target, spare = (scratch.after(offset).cast(Floats) for offset in offsets)
        numbers = scratch.after(memory.row_numbers).cast(Longs)
        count = select(left < width, left, width)
        source = rows.at(first * features)
        call(rows_to_columns(self.code, width), source, columns, features, features, count, width)
        with loop(count) as column:
            numbers[column] = first + column
        return _LiveTile(columns, target, spare, numbers, count)

    def _emit_rest(self, pointers: _CallPointers) -> None:
        """Emit the stages of what queues hold at the end."""
        for stage in range(1, len(self.compaction.stages)):
            count = self._queue(stage, pointers)[COUNT]
            with when(count > 0):
                self._call_stage(stage, self._queued(stage, count, pointers), pointers)

    def _queue(self, stage: int, pointers: _CallPointers) -> Longs:
        return pointers.scratch.after(self.compaction.memory.queues[stage - 1]).cast(Longs)

    def _queued(self, stage: int, count: Number, pointers: _CallPointers) -> _LiveTile:
        """Return the tile of a queue that is filled first."""
        queue = self._queue(stage, pointers)
        tile = self._columns.queue_tile(queue, self.compaction.tile_bytes(stage), queue[FILLING])
        target, spare = (pointers.scratch.after(at).cast(Floats) for at in self.compaction.memory.layer_buffers)
        return _LiveTile(tile.columns, target, spare, tile.row_numbers, count)

    def _call_stage(self, stage: int, tile: _LiveTile, pointers: _CallPointers) -> None:
        call(self.code.functions[f"{self.name}_stage{stage}"], tile, pointers)

    def _stage(self, stage: int) -> None:
        """Make the function of a stage; those of later ones are made."""
        last = stage == len(self.compaction.stages) - 1

        @self.code.kernel(f"{self.name}_stage{stage}")
        def kernel(tile: _LiveTile, pointers: _CallPointers) -> None:
            tile = self._emit_layers(stage, tile, pointers)
            liveness = pointers.scratch.after(self.compaction.memory.liveness).cast(Longs)
            features = features_of(self.compaction.stages[stage][-1].result)
            call(self._columns.find_live(), tile.columns, features, tile.column_count, liveness)
            if last:
                self._emit_rows_out(tile, pointers.out, liveness)
            else:
                self._emit_next_stage(stage + 1, tile, pointers, liveness)

    def _emit_layers(self, stage: int, tile: _LiveTile, pointers: _CallPointers) -> _LiveTile:
        """Emit the layers of a stage; return the tile where it is then, with the other buffer as its target."""
        columns, target, spare = tile.columns, tile.target, tile.spare
        scratch, tables, width = pointers.scratch, (self.constants, pointers.constants), self.compaction.width
        for layer in self.compaction.stages[stage]:
            placed = {layer.x: columns, layer.result: target}
            emit(layer, TileCode(self.code, tables, width, scratch, {}, placed=placed))
            columns, target, spare = target, spare, target
        return tile._replace(columns=columns, target=target, spare=columns)

    def _emit_next_stage(self, stage: int, tile: _LiveTile, pointers: _CallPointers, liveness: Longs) -> None:
        """Emit the way into a stage: as the tile is where nearly all columns are live, else column by column."""
        width = self.compaction.width
        live = liveness[0]

        def as_it_is() -> None:
            self._call_stage(stage, tile, pointers)

        def column_by_column() -> None:
            with when(live > 0):
                queue = self._queue(stage, pointers)
                features, tile_bytes = self.compaction.features(stage), self.compaction.tile_bytes(stage)
                arguments = (tile.columns, tile.row_numbers, liveness, features, queue, tile_bytes)
                call(self._columns.append(), *arguments)
                count = queue[COUNT]
                with when(count >= width):
                    full = self._queued(stage, count.constant(width), pointers)
                    # what did not fit stands in the other tile
                    queue[COUNT] = count - width
                    queue[FILLING] = 1 - queue[FILLING]
                    self._call_stage(stage, full, pointers)

        branch(live > width - width // DEAD_SHARE, as_it_is, column_by_column)

    def _emit_rows_out(self, tile: _LiveTile, out: Floats, liveness: Longs) -> None:
        """Emit the writing of live rows to `out`."""
        features = features_of(self.compaction.stages[-1][-1].result)
        with when(liveness[0] > 0):
            width, rows = self.compaction.width, tile.target
            # all columns: those that do not count are no copies of the last one that does
            call(columns_to_rows(self.code, width), tile.columns, rows, features, features, width, width)
            call(self._columns.write_rows(), rows, tile.row_numbers, liveness, features, out)
