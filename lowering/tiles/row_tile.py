"""Tiles of rows: each row is a tile of one column by itself, but for the layers whose kernels take all rows at once.

The memory of a tile of one column is there once for each row, at a distance of whole cache lines. What other tiles do
with columns is done here row by row, by the code of one column; nothing is transposed.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from xdsl.ir import Operation, SSAValue

from ...dialect.ops.layers import LinearOp
from ...dialect.ops.tile import TileOp
from ...kernels.families import are_rows
from ..llvm.flow import loop
from ..llvm.values import ALIGNMENT, FLOAT_BYTES, Floats, Number
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
    count: Number
    direct: Mapping[SSAValue, Floats]
    """The addresses of the rows of those results that layers write there."""

    @contextmanager
    def each_row(self) -> Generator[tuple[Number, TileCode]]:
        """Emit a loop over rows around what is emitted in the `with` statement; yields the row and its code."""
        tile = self.first
        with loop(self.count) as row:
            distance, team = row * self.apart, tile.team
            if team is not None:
                team = replace(team, scratch=team.scratch.after(distance))
            yield row, replace(tile, scratch=tile.scratch.after(distance), team=team)

    def load(self, value: SSAValue, source: Floats, cut: Cut) -> None:
        """Emit the way in: rows of a row-major buffer."""
        with self.each_row() as (row, tile):
            tile.load_rows(value, self._row(source, row, value), cut)

    def store(self, value: SSAValue, target: Floats, cut: Cut) -> None:
        """Emit the way out, but for what is there already."""
        if value in self.direct:
            return
        with self.each_row() as (row, tile):
            tile.store_rows(value, self._row(target, row, value), cut)

    def emit_op(self, op: Operation, cut: Cut, emit: EmitOp) -> None:
        """Emit an op for all rows."""
        if isinstance(op, LinearOp) and op.kernel is not None and are_rows([op.kernel.family_at(self.width)]):
            distance = self.apart // FLOAT_BYTES
            y_apart = features_of(op.result) if op.result in self.direct else distance
            emit_linear_rows(op, self.first, RowsOfLayer(self.width, self.count, distance, y_apart, self.direct))
            return
        with self.each_row() as (_, tile):
            emit(op, tile, cut)

    def _row(self, buffer: Floats, row: Number, value: SSAValue) -> RowBlock:
        return RowBlock(buffer.at(row * features_of(value)), 1)
