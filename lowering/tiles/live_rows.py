"""Tiles whose rows of zeros are dropped on the way: a cascade of queues of tiles.

A chain of layers is cut into stages behind which rows may be dropped. A full tile of columns goes through a stage; the
columns that are not zero are moved together into the queue of the next stage, which has room for two tiles; when one
of them is full it goes through its stage at once, while it is in the cache. Where nearly all columns of a tile are
alive, the tile goes on as it is. Every column carries the number of its row. At the end of the batch the tiles that
are partly filled go through, the first stage's first. Only rows that are alive at the end are written: the memory of
the others holds zeros already.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from llvmlite import ir

from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.ops.tile_chain import chain_of
from redpebble.dialect.ops.tile_dead_rows import DeadRowsAttr
from redpebble.lowering.kernels.kernel_form import OUTPUT_PADDING
from redpebble.lowering.llvm.builder import (
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
from redpebble.lowering.llvm.call_tables import VECTOR_ROOM, ConstantTable
from redpebble.lowering.llvm.transposition import columns_to_rows, rows_to_columns
from redpebble.lowering.tiles.live_row_columns import COUNT, QUEUE_HEAD, Columns, word_at
from redpebble.lowering.tiles.tile_code import TileCode
from redpebble.lowering.tiles.tile_memory import features_of

DEAD_SHARE = 8
"""A tile of which less than one part in so many is dead goes on as it is."""

ID_BYTES = 8


class CascadeMemory(NamedTuple):
    """Where things lie in the scratch memory of a thread, in bytes."""

    rooms: tuple[int, int]
    """Two buffers between layers."""
    first: tuple[int, int]
    """Row numbers and columns of the tile that comes in."""
    life: int
    queues: tuple[int, ...]
    """Of each stage but the first: its head, the row numbers of two tiles, and these."""
    total: int


@dataclass(frozen=True)
class Cascade:
    """A tile whose dead rows are dropped, and the stages of its chain of layers."""

    op: TileOp
    dropped: DeadRowsAttr
    stages: tuple[tuple[LinearOp, ...], ...]

    @staticmethod
    def of(op: TileOp) -> "Cascade | None":
        """Return the stages of a tile, None where no rows are dropped."""
        if op.dead_rows is None:
            return None
        layers, places = chain_of(op.body.block), op.dead_rows.places
        borders = [0, *(place + 1 for place in places), len(layers)]
        pairs = pairwise(borders)
        return Cascade(op, op.dead_rows, tuple(tuple(layers[start:end]) for start, end in pairs))

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.dropped.width.data

    def features(self, stage: int) -> int:
        """Return the features that come into a stage."""
        return features_of(self.stages[stage][0].x)

    def tile_bytes(self, features: int) -> int:
        """Return the bytes of a tile of so many features, and of what kernels write behind it."""
        size = ((features + OUTPUT_PADDING) * self.width + VECTOR_ROOM) * FLOAT_BYTES
        return -(-size // ALIGNMENT) * ALIGNMENT

    def memory(self) -> CascadeMemory:
        """Return where everything lies."""
        ids = self.width * ID_BYTES
        most = max(max(features_of(layer.x), features_of(layer.result)) for stage in self.stages for layer in stage)
        room = self.tile_bytes(most)
        place = 2 * room
        first = (place, place + ids)
        place += ids + self.tile_bytes(self.features(0))
        life, place = place, place + 2 * ids + ALIGNMENT
        queues: list[int] = []
        for stage in range(1, len(self.stages)):
            queues.append(place)
            place += QUEUE_HEAD + 2 * (ids + self.tile_bytes(self.features(stage)))
        return CascadeMemory((0, room), first, life, tuple(queues), place)


class _Flow(NamedTuple):
    """A tile on its way: columns, two buffers to work in, row numbers, and how many columns count."""

    columns: ir.Value
    rooms: tuple[ir.Value, ir.Value]
    ids: ir.Value
    valid: ir.Value


STAGE_ARGUMENTS = (*[POINTER] * 4, I64, *[POINTER] * 3)
"""columns, two buffers, row numbers, their count; the result's rows, constants, scratch."""


@dataclass(frozen=True)
class CascadeCode:
    """The functions of a cascade; `name` is theirs."""

    code: Code
    cascade: Cascade
    constants: ConstantTable
    name: str

    @property
    def columns(self) -> Columns:
        """What moves columns."""
        return Columns(self.code, self.cascade.width)

    def function(self) -> ir.Function:
        """Return `void (rows in, rows out, constants, scratch, first row, row behind the last)`."""
        memory = self.cascade.memory()
        for stage in reversed(range(len(self.cascade.stages))):
            self._stage(stage, memory)

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            rows, out, constants, scratch, begin, end = args
            for queue in memory.queues:
                for word in (COUNT, COUNT + 1):
                    builder.store(i64(0), word_at(builder, byte_at(builder, scratch, i64(queue)), i64(word)))
            self._emit_tiles(builder, (rows, begin, end), (out, constants, scratch), memory)
            self._emit_rest(builder, (out, constants, scratch), memory)

        return self.code.function(self.name, [*[POINTER] * 4, I64, I64], body)

    def _emit_tiles(
        self,
        builder: ir.IRBuilder,
        rows: tuple[ir.Value, ir.Value, ir.Value],
        places: tuple[ir.Value, ir.Value, ir.Value],
        memory: CascadeMemory,
    ) -> None:
        """Emit the way of all rows into the first stage."""
        pointer, begin, end = rows
        scratch, width = places[2], i64(self.cascade.width)
        features = i64(self.cascade.features(0))
        ids, columns, *rooms = (byte_at(builder, scratch, i64(place)) for place in (*memory.first, *memory.rooms))
        turn = rows_to_columns(self.code, self.cascade.width)
        with counted_loop(builder, builder.sub(end, begin), self.cascade.width) as index:
            first = builder.add(begin, index)
            left = builder.sub(end, first)
            count = builder.select(builder.icmp_signed("<", left, width), left, width)
            source = float_at(builder, pointer, builder.mul(first, features))
            builder.call(turn, [source, columns, features, features, count, width])
            with counted_loop(builder, count) as column:
                builder.store(builder.add(first, column), word_at(builder, ids, column))
            flow = _Flow(columns, (rooms[0], rooms[1]), ids, count)
            self._emit_call(builder, 0, flow, places)

    def _emit_rest(
        self, builder: ir.IRBuilder, places: tuple[ir.Value, ir.Value, ir.Value], memory: CascadeMemory
    ) -> None:
        """Emit the way of what queues hold at the end."""
        for stage in range(1, len(self.cascade.stages)):
            queue = byte_at(builder, places[2], i64(memory.queues[stage - 1]))
            count = builder.load(word_at(builder, queue, i64(COUNT)), typ=I64)
            with builder.if_then(builder.icmp_signed(">", count, i64(0))):
                self._emit_call(builder, stage, self._queued(builder, stage, count, (places[2], memory)), places)

    def _queued(
        self, builder: ir.IRBuilder, stage: int, count: ir.Value, surroundings: tuple[ir.Value, CascadeMemory]
    ) -> _Flow:
        """Return the tile of a queue that is filled first."""
        scratch, memory = surroundings
        queue = byte_at(builder, scratch, i64(memory.queues[stage - 1]))
        ids, columns = self.columns.tile_of(
            builder, queue, self._tile_bytes(stage), builder.load(word_at(builder, queue, i64(COUNT + 1)), typ=I64)
        )
        first, second = (byte_at(builder, scratch, i64(room)) for room in memory.rooms)
        return _Flow(columns, (first, second), ids, count)

    def _tile_bytes(self, stage: int) -> int:
        return self.cascade.tile_bytes(self.cascade.features(stage))

    def _emit_call(
        self, builder: ir.IRBuilder, stage: int, flow: _Flow, places: tuple[ir.Value, ir.Value, ir.Value]
    ) -> None:
        function = self.code.functions[f"{self.name}_stage{stage}"]
        builder.call(function, [flow.columns, *flow.rooms, flow.ids, flow.valid, *places])

    def _stage(self, stage: int, memory: CascadeMemory) -> None:
        """Make the function of a stage; those of later ones are made."""
        last = stage == len(self.cascade.stages) - 1

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            flow, places = _Flow(args[0], (args[1], args[2]), args[3], args[4]), (args[5], args[6], args[7])
            flow = self._emit_layers(builder, stage, flow, places)
            life = byte_at(builder, places[2], i64(memory.life))
            features = i64(features_of(self.cascade.stages[stage][-1].result))
            builder.call(self.columns.find_life(), [flow.columns, features, flow.valid, life])
            if last:
                self._emit_rows(builder, flow, (places[0], life), features)
            else:
                self._emit_onwards(builder, stage + 1, flow, (places, life, memory))

        self.code.function(f"{self.name}_stage{stage}", STAGE_ARGUMENTS, body)

    def _emit_layers(
        self, builder: ir.IRBuilder, stage: int, flow: _Flow, places: tuple[ir.Value, ir.Value, ir.Value]
    ) -> _Flow:
        """Emit the layers of a stage; return where the tile is then, the first buffer being the other one."""
        columns, (target, spare) = flow.columns, flow.rooms
        for layer in self.cascade.stages[stage]:
            addresses: dict[object, ir.Value] = {layer.x: columns, layer.result: target}
            tables = (self.constants, places[1])
            _LayerCode(self.code, builder, tables, self.cascade.width, places[2], {}, addresses=addresses).emit(layer)
            columns, target, spare = target, spare, target
        return flow._replace(columns=columns, rooms=(target, columns))

    def _emit_onwards(
        self,
        builder: ir.IRBuilder,
        stage: int,
        flow: _Flow,
        surroundings: tuple[tuple[ir.Value, ir.Value, ir.Value], ir.Value, CascadeMemory],
    ) -> None:
        """Emit the way into a stage: as the tile is where nearly all is alive, else column by column."""
        places, life, memory = surroundings
        width = self.cascade.width
        alive = builder.load(life, typ=I64)
        with builder.if_else(builder.icmp_signed(">", alive, i64(width - width // DEAD_SHARE))) as (most, fewer):
            with most:
                self._emit_call(builder, stage, flow, places)
            with fewer, builder.if_then(builder.icmp_signed(">", alive, i64(0))):
                queue = byte_at(builder, places[2], i64(memory.queues[stage - 1]))
                features, tile_bytes = self.cascade.features(stage), self._tile_bytes(stage)
                arguments = [flow.columns, flow.ids, life, i64(features), queue, i64(tile_bytes)]
                builder.call(self.columns.append(), arguments)
                count_at, turn_at = (word_at(builder, queue, i64(word)) for word in (COUNT, COUNT + 1))
                count = builder.load(count_at, typ=I64)
                with builder.if_then(builder.icmp_signed(">=", count, i64(width))):
                    full = self._queued(builder, stage, i64(width), (places[2], memory))
                    # what did not fit stands in the other tile
                    builder.store(builder.sub(count, i64(width)), count_at)
                    builder.store(builder.sub(i64(1), builder.load(turn_at, typ=I64)), turn_at)
                    self._emit_call(builder, stage, full, places)

    def _emit_rows(
        self, builder: ir.IRBuilder, flow: _Flow, places: tuple[ir.Value, ir.Value], features: ir.Value
    ) -> None:
        """Emit the way out of what is alive."""
        out, life = places
        alive = builder.load(life, typ=I64)
        with builder.if_then(builder.icmp_signed(">", alive, i64(0))):
            width, staging = i64(self.cascade.width), flow.rooms[0]
            turn = columns_to_rows(self.code, self.cascade.width)
            # all columns: those that do not count are no copies of the last one that does
            builder.call(turn, [flow.columns, staging, features, features, width, width])
            builder.call(self.columns.write_rows(), [staging, flow.ids, life, features, out])


@dataclass(frozen=True)
class _LayerCode(TileCode):
    """The code of one layer between two addresses."""

    addresses: dict[object, ir.Value] | None = None

    def _pointer(self, value: object) -> ir.Value:
        assert self.addresses is not None
        return self.addresses[value]
