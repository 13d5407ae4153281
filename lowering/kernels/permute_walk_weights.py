"""The weights of a panel as they follow each other in memory: a line of 32 for every step, with or without zeros."""

from collections.abc import Sequence
from typing import Final

from llvmlite import ir

from redpebble.kernels.formats.permute_walk_search import PANEL_ROWS
from redpebble.lowering.kernels.single_row import intrinsic
from redpebble.lowering.llvm.builder import I32, I64, POINTER, Code, byte_at, float_at, i64
from redpebble.lowering.llvm.prefetch import fetch_lines
from redpebble.lowering.llvm.vectors import Lanes

BYTES_AHEAD: Final = 8192
"""How far ahead weights without zeros are fetched, as they come from beyond L2: two pages, for their addresses too."""
LINES_FETCHED: Final = 2
"""Cache lines of a step: its 32 weights, if none is zero."""


class WeightStream:
    """The places up to which weights have been read: [weights], or without zeros [weights, masks].

    A mask has a bit for every row that has a weight in the line, the first row's lowest.
    """

    def __init__(self, code: Code, lanes: Lanes, places: list[ir.Value]) -> None:
        self.code = code
        self.lanes = lanes
        self.places = places

    def take(self, rows: Sequence[int]) -> list[ir.Value]:
        """Return the next line's weights of some vectors of rows, given by the first row of each, and go on."""
        builder = self.lanes.builder
        weights = self.places[0]
        if len(self.places) == 1:
            self.places = [float_at(builder, weights, i64(PANEL_ROWS))]
            return [self.lanes.load(float_at(builder, weights, i64(row)), 4 * self.lanes.width) for row in rows]
        fetch_lines(builder, byte_at(builder, weights, i64(BYTES_AHEAD)), LINES_FETCHED)
        mask = builder.load(self.places[1], typ=I32)
        self.places = [
            float_at(builder, weights, self._count(mask, PANEL_ROWS)),
            float_at(builder, self.places[1], i64(1)),
        ]
        return [self._expand(float_at(builder, weights, self._count(mask, row)), mask, row) for row in rows]

    def _count(self, mask: ir.Value, rows: int) -> ir.Value:
        """Return how many of the first rows have a weight."""
        builder = self.lanes.builder
        if rows == 0:
            return i64(0)
        if rows < PANEL_ROWS:
            mask = builder.and_(mask, ir.Constant(I32, (1 << rows) - 1))
        return builder.zext(builder.ctpop(mask), I64)

    def _expand(self, weights: ir.Value, mask: ir.Value, row: int) -> ir.Value:
        """Return the weights of the rows from `row` on, zero where the mask has no bit."""
        builder, lanes = self.lanes.builder, self.lanes
        bits = builder.trunc(builder.lshr(mask, ir.Constant(I32, row)), ir.IntType(lanes.width))
        flags = builder.bitcast(bits, ir.VectorType(ir.IntType(1), lanes.width))
        name = f"llvm.masked.expandload.v{lanes.width}f32"
        function = intrinsic(self.code, name, lanes.float_vector, [POINTER, flags.type, lanes.float_vector])
        return builder.call(function, [weights, flags, lanes.splat(0.0)])
