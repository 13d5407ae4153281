"""Buffers of a part in pieces: the output of a function, or the message of a rank, has an array of its own.

Training works on whole batches, row-major: a piece is [rows, features], which native functions read and write in place,
and messages, too. A function that reads several pieces joins them in its tile.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from ...dialect.ops.tile import TileOp
from ..graph.row_graph import features_of
from ..native.feature_blocks import tiles_of
from ..parts.part_file import Part
from ..parts.steps import BufferRow, Call, Indices, Receive


@dataclass(frozen=True)
class Piece:
    """Some features of a buffer, from `first` on."""

    buffer: int
    first: int
    features: int


@dataclass(frozen=True)
class PieceColumns:
    """Columns of a piece, and those of a message that they are."""

    piece: Piece
    columns: Indices
    message: Indices


@dataclass(frozen=True)
class CallPieces:
    """A call of a function: the pieces of each argument and of each result."""

    func: FuncOp
    tile: TileOp
    reads: tuple[tuple[Piece, ...], ...]
    writes: tuple[tuple[Piece, ...], ...]


class Pieces:
    """All pieces of a part, and the calls of its functions with them; calls were checked by `check_calls`."""

    def __init__(self, part: Part, module: ModuleOp) -> None:
        """Cut the buffers wherever an operand or a message begins or ends."""
        self._functions: Mapping[str, tuple[FuncOp, TileOp]] = {
            func.sym_name.data: (func, tile) for func, tile in tiles_of(module)
        }
        cuts = [{0, buffer.features} for buffer in part.buffers]
        for step in part.steps:
            if isinstance(step, Call):
                for operand, width in zip(step.operands, self._widths(step.function), strict=True):
                    cuts[operand.buffer] |= {operand.row, operand.row + width}
            elif isinstance(step, Receive):
                for route in step.routes:
                    cuts[step.buffer] |= {int(route.rows[0]), int(route.rows[-1]) + 1}
        self._pieces = [
            [Piece(number, first, end - first) for first, end in pairwise(sorted(ends)) if first < end]
            for number, ends in enumerate(cuts)
        ]

    def _widths(self, function: str) -> Sequence[int]:
        _, tile = self._functions[function]
        return [features_of(value) for value in (*tile.body.block.args, *tile.yielded)]

    def __iter__(self) -> Iterator[Piece]:
        """Yield all pieces."""
        return (piece for pieces in self._pieces for piece in pieces)

    def of_call(self, call: Call) -> CallPieces:
        """Return the pieces of a call."""
        func, tile = self._functions[call.function]
        operands = [
            self.between(operand, width)
            for operand, width in zip(call.operands, self._widths(call.function), strict=True)
        ]
        count = len(func.args)
        return CallPieces(func, tile, tuple(operands[:count]), tuple(operands[count:]))

    def between(self, start: BufferRow, count: int) -> tuple[Piece, ...]:
        """Return the pieces of so many features of a buffer."""
        end = start.row + count
        return tuple(
            piece
            for piece in self._pieces[start.buffer]
            if start.row <= piece.first < piece.first + piece.features <= end
        )

    def columns(self, buffer: int, rows: Indices) -> list[PieceColumns]:
        """Return where the features `rows` of a buffer, the columns of a message, lie."""
        found: list[PieceColumns] = []
        for piece in self._pieces[buffer]:
            message = np.flatnonzero((rows >= piece.first) & (rows < piece.first + piece.features))
            if len(message):
                found.append(PieceColumns(piece, rows[message] - piece.first, message))
        return found
