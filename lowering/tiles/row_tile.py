"""Tiles of rows: each row is a tile of one column by itself, but for the layers whose kernels take all rows at once.

The memory of a tile of one column is there once for each row, at a distance of whole cache lines. What other tiles do
with columns is done here row by row, by the code of one column; nothing is transposed.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from llvmlite import ir
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.layers import LinearOp
from ...dialect.ops.tile import TileOp
from ...kernels.families import are_rows
from ..llvm.builder import ALIGNMENT, FLOAT_BYTES, byte_at, counted_loop, float_at, i64
from .layer_emitters import RowsOfLayer, emit_linear_rows
from .thread_shares import Cut
from .tile_code import RowBlock, TileCode
from .tile_memory import TileMemory, features_of, plan_tile

EmitOp = Callable[[Operation, TileCode, Cut], None]


def is_of_rows(op: TileOp, width: int) -> bool:
    """Return whether tiles of a width are rows: one of their layers has a kernel for that."""
    kernels = [inner.kernel for inner in op.body.block.ops if isinstance(inner, LinearOp) and inner.kernel is not None]
    return are_rows(kernel.family_at(width) for kernel in kernels)


def row_bytes(memory: TileMemory) -> int:
    """Return the bytes from the memory of a row to that of the next: an odd number of lines, so they share no sets."""
    return (-(-memory.total // ALIGNMENT) | 1) * ALIGNMENT


def plan_rows(op: TileOp, width: int) -> tuple[TileMemory, int]:
    """Return the memory of one row, and the bytes of that of all."""
    memory = plan_tile(op, 1)
    return memory, row_bytes(memory) * width


@dataclass(frozen=True)
class RowTile:
    """A tile of rows under construction: the code of its first row, the bytes between rows, and how many there are."""

    first: TileCode
    apart: int
    width: int
    count: ir.Value
    direct: Mapping[SSAValue, ir.Value]
    """The addresses of the rows of those results that layers write there."""

    @contextmanager
    def each_row(self) -> Generator[tuple[ir.Value, TileCode]]:
        """Emit a loop over rows around what is emitted in the `with` statement; yields the row and its code."""
        tile, builder = self.first, self.first.builder
        with counted_loop(builder, self.count) as row:
            distance = builder.mul(row, i64(self.apart))
            team = tile.team
            if team is not None:
                team = replace(team, scratch=byte_at(builder, team.scratch, distance))
            yield row, replace(tile, scratch=byte_at(builder, tile.scratch, distance), team=team)

    def load(self, value: SSAValue, source: ir.Value, cut: Cut) -> None:
        """Emit the way in: rows of a row-major buffer."""
        with self.each_row() as (row, tile):
            tile.load_rows(value, self._row(source, row, value), cut)

    def store(self, value: SSAValue, target: ir.Value, cut: Cut) -> None:
        """Emit the way out, but for what is there already."""
        if value in self.direct:
            return
        with self.each_row() as (row, tile):
            tile.store_rows(value, self._row(target, row, value), cut)

    def emit_op(self, op: Operation, cut: Cut, emit: EmitOp) -> None:
        """Emit an op for all rows."""
        if isinstance(op, LinearOp) and op.kernel is not None and are_rows([op.kernel.family_at(self.width)]):
            distance = i64(self.apart // FLOAT_BYTES)
            y_apart = i64(features_of(op.result)) if op.result in self.direct else distance
            emit_linear_rows(op, self.first, RowsOfLayer(self.width, self.count, distance, y_apart, self.direct))
            return
        with self.each_row() as (_, tile):
            emit(op, tile, cut)

    def _row(self, buffer: ir.Value, row: ir.Value, value: SSAValue) -> RowBlock:
        builder = self.first.builder
        return RowBlock(float_at(builder, buffer, builder.mul(row, i64(features_of(value)))), i64(1))
