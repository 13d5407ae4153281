"""Blocks of a dense product whose vectors run over outputs: some rows times some panels of weights.

A block of R rows and V vectors of outputs holds R x V sums in registers; for each input it loads V vectors of weights
and broadcasts R activations. A sum takes its products one after the other in the order of the inputs, so its bits
depend on nothing but its row and its weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from llvmlite import ir

from redpebble.kernels.formats.dense_outputs import PANEL, VECTORS
from redpebble.lowering.llvm.builder import (
    ALIGNMENT,
    FLOAT,
    FLOAT_BYTES,
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

TURN: Final = 2
"""Inputs of a turn of the innermost loop."""

FETCH_DISTANCE: Final = 4096
"""Bytes by which weights are fetched ahead of their use."""


MANY_ROWS: Final = 8
INPUTS_AHEAD: Final = 8
"""Rows of a block from which activations are fetched ahead, and by how many inputs: each is in a line of its own, and
too far from the one before for the processor to see that they follow each other."""


class BlockForm(NamedTuple):
    """What a block is specialised on."""

    rows: int
    panels: int


def panels_at_once(lanes: int, rows: int) -> int:
    """Return the panels that a block of `rows` rows takes."""
    return max(1, VECTORS[lanes][rows] * lanes // PANEL)


def dense_block(code: Code, form: BlockForm) -> ir.Function:
    """Return the block that adds to sums all pairs of inputs; what is left of an odd number is for `dense_input`.

    It is `void (x, y, weights, initial sums, last row, strides of x, y, initial sums, inputs, values of a panel)`. The
    activations of an input lie together, inputs by the stride of x apart; rows behind the last one repeat it.
    """
    lanes = code.target.lanes
    outputs = min(VECTORS[lanes][form.rows] * lanes, form.panels * PANEL)

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, y, weights, initial, last, x_stride, y_stride, initial_stride, inputs, panel = args
        numbers = [i64(row) for row in range(form.rows)]
        rows = [builder.select(builder.icmp_signed("<", number, last), number, last) for number in numbers]
        for first in range(0, form.panels * PANEL, outputs):
            block = _Block(code, builder, rows, range(first, first + outputs, lanes))
            sums = block.load(initial, initial_stride)
            turns = builder.sdiv(inputs, i64(TURN))
            block.store(block.multiply_add((x, x_stride), (weights, panel), (turns, sums)), y, y_stride)

    return code.function(f"dense_block_{form.rows}x{form.panels}", [POINTER] * 4 + [I64] * 6, body)


def dense_input(code: Code) -> ir.Function:
    """Return what adds one input to the sums of any number of rows and panels.

    It is `void (x, y, weights, stride of rows of y, values of a panel, rows, panels)`.
    """

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, y, weights, y_stride, panel, rows, panels = args
        lanes = code.lanes(builder)
        with counted_loop(builder, rows) as row, counted_loop(builder, panels) as number:
            value = lanes.splat(builder.load(float_at(builder, x, row), typ=FLOAT))
            first = builder.add(builder.mul(row, y_stride), builder.mul(number, i64(PANEL)))
            source, target = float_at(builder, weights, builder.mul(number, panel)), float_at(builder, y, first)
            for start in range(0, PANEL, lanes.width):
                place = float_at(builder, target, i64(start))
                weight = lanes.load(float_at(builder, source, i64(start)), FLOAT_BYTES * lanes.width)
                lanes.store(lanes.fma(value, weight, lanes.load(place)), place)

    return code.function("dense_input", [POINTER] * 3 + [I64] * 4, body)


@dataclass(frozen=True)
class _Block:
    """The code of some rows, whose numbers in memory are `rows`, and of the vectors of outputs from `starts`."""

    code: Code
    builder: ir.IRBuilder
    rows: Sequence[ir.Value]
    starts: range

    def load(self, address: ir.Value, stride: ir.Value) -> list[ir.Value]:
        """Return the sums of all rows at `address`."""
        lanes = self.code.lanes(self.builder)
        return [lanes.load(place) for place in self._places(address, stride)]

    def store(self, sums: Sequence[ir.Value], address: ir.Value, stride: ir.Value) -> None:
        """Write the sums of all rows to `address`."""
        lanes = self.code.lanes(self.builder)
        for value, place in zip(sums, self._places(address, stride), strict=True):
            lanes.store(value, place)

    def _places(self, address: ir.Value, stride: ir.Value) -> list[ir.Value]:
        builder = self.builder
        rows = [float_at(builder, address, builder.mul(stride, row)) for row in self.rows]
        return [float_at(builder, row, i64(start)) for row in rows for start in self.starts]

    def multiply_add(
        self, x: tuple[ir.Value, ir.Value], weights: tuple[ir.Value, ir.Value], state: tuple[ir.Value, list[ir.Value]]
    ) -> list[ir.Value]:
        """Return sums after some turns; x is (address, stride), weights (address, values of a panel)."""
        builder, (turns, sums) = self.builder, state
        numbers = dict.fromkeys(start // PANEL for start in self.starts)
        panels = {number: float_at(builder, weights[0], builder.mul(weights[1], i64(number))) for number in numbers}

        def turn(index: ir.Value, carried: Sequence[ir.Value]) -> list[ir.Value]:
            first = builder.mul(index, i64(TURN))
            entries = {
                number: float_at(builder, panel, builder.mul(first, i64(PANEL))) for number, panel in panels.items()
            }
            self._fetch(list(entries.values()), x, first)
            following = list(carried)
            for k in range(TURN):
                column = float_at(builder, x[0], builder.mul(builder.add(first, i64(k)), x[1]))
                following = self._add_input(column, (entries, k), following)
            return following

        return reduce_loop(builder, (i64(0), turns), sums, turn)

    def _fetch(self, entries: Sequence[ir.Value], x: tuple[ir.Value, ir.Value], first: ir.Value) -> None:
        """Emit the fetching of later weights than those at `entries`, and of the activations of later inputs."""
        builder = self.builder
        if self.starts[0] % PANEL == 0:
            for entry in entries:
                ahead = byte_at(builder, entry, i64(FETCH_DISTANCE))
                fetch_lines(builder, ahead, TURN * PANEL * FLOAT_BYTES // ALIGNMENT)
        if len(self.rows) >= MANY_ROWS:
            for k in range(INPUTS_AHEAD, INPUTS_AHEAD + TURN):
                column = float_at(builder, x[0], builder.mul(builder.add(first, i64(k)), x[1]))
                for row in (0, len(self.rows) - 1):
                    fetch_lines(builder, float_at(builder, column, i64(row)), 1)

    def _add_input(
        self, column: ir.Value, weights: tuple[dict[int, ir.Value], int], sums: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Return the sums after an input whose activations are at `column`; weights are those of a turn, and k."""
        lanes, builder, (entries, k) = self.code.lanes(self.builder), self.builder, weights
        places = [float_at(builder, entries[start // PANEL], i64(k * PANEL + start % PANEL)) for start in self.starts]
        operands = [lanes.load(place, FLOAT_BYTES * lanes.width) for place in places]
        following: list[ir.Value] = []
        for row in range(len(self.rows)):
            value = lanes.splat(builder.load(float_at(builder, column, i64(row)), typ=FLOAT))
            own = sums[row * len(operands) : (row + 1) * len(operands)]
            following += [lanes.fma(value, operand, total) for operand, total in zip(operands, own, strict=True)]
        return following
