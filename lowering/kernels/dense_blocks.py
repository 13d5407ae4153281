"""Blocks of a dense product whose vectors run over outputs: some rows times some panels of weights.

Registers, for R rows r and V vectors v of outputs, one lane an output (R V + V + 1 of 16 or 32 registers):

    w[v]       weights of an input k          V loads from panels [K, 16]
    x          activation of row r in every lane          a broadcast for each row
    sum[r][v] += x * w[v]                                 R V fma an input

A sum takes its products one after the other in the order of the inputs, so its bits depend on nothing but its row and
its weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.formats.dense_outputs import PANEL, VECTORS
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
    reduce_loop,
)
from ..llvm.prefetch import fetch_lines
from ..llvm.vectors import FLOAT

UNROLL: Final = 2
"""Inputs in one pass of the innermost loop."""

FETCH_DISTANCE: Final = 4096
"""Bytes by which weights are fetched ahead of their use."""


MANY_ROWS: Final = 8
INPUTS_AHEAD: Final = 8
"""Rows of a block from which activations are fetched ahead, and by how many inputs: each is in a line of its own, and
too far from the one before for the processor to see that they follow each other."""


class BlockForm(NamedTuple):
    """The form that the code of a block is specialised on."""

    rows: int
    panels: int


class Rows(NamedTuple):
    """Rows of floats, or inputs or panels: the address of the first one, and the values from one to the next."""

    address: ir.Value
    stride: ir.Value

    def at(self, builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
        """Return the address of a row."""
        return float_at(builder, self.address, builder.mul(self.stride, number))


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
            sums = block.load(Rows(initial, initial_stride))
            passes = builder.sdiv(inputs, i64(UNROLL))
            sums = block.multiply_add(Rows(x, x_stride), Rows(weights, panel), passes, sums)
            block.store(sums, Rows(y, y_stride))

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
                address = float_at(builder, target, i64(start))
                weight = lanes.load(float_at(builder, source, i64(start)), FLOAT_BYTES * lanes.width)
                lanes.store(lanes.fma(value, weight, lanes.load(address)), address)

    return code.function("dense_input", [POINTER] * 3 + [I64] * 4, body)


@dataclass(frozen=True)
class _Block:
    """The code of some rows, whose numbers in memory are `rows`, and of the vectors of outputs from `starts`."""

    code: Code
    builder: ir.IRBuilder
    rows: Sequence[ir.Value]
    starts: range

    def load(self, source: Rows) -> list[ir.Value]:
        """Return the sums of all rows."""
        lanes = self.code.lanes(self.builder)
        return [lanes.load(address) for address in self._addresses(source)]

    def store(self, sums: Sequence[ir.Value], target: Rows) -> None:
        """Write the sums of all rows."""
        lanes = self.code.lanes(self.builder)
        for value, address in zip(sums, self._addresses(target), strict=True):
            lanes.store(value, address)

    def _addresses(self, buffer: Rows) -> list[ir.Value]:
        rows = [buffer.at(self.builder, row) for row in self.rows]
        return [float_at(self.builder, row, i64(start)) for row in rows for start in self.starts]

    def multiply_add(self, x: Rows, weights: Rows, passes: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """Return sums after some passes of the loop over the inputs of x and the panels of weights."""
        builder = self.builder
        numbers = dict.fromkeys(start // PANEL for start in self.starts)
        panels = {number: weights.at(builder, i64(number)) for number in numbers}
        # the address of a pass is carried, as its stride is known at run time alone: nothing is multiplied in the loop
        strides = [builder.mul(x.stride, i64(k)) for k in (*range(UNROLL), *range(INPUTS_AHEAD, INPUTS_AHEAD + UNROLL))]
        step = builder.mul(x.stride, i64(UNROLL))

        def inputs(index: ir.Value, carried: Sequence[ir.Value]) -> list[ir.Value]:
            address, *following = carried
            first = builder.mul(index, i64(UNROLL * PANEL))
            entries = {number: float_at(builder, panel, first) for number, panel in panels.items()}
            columns = [float_at(builder, address, stride) for stride in strides]
            self._fetch(list(entries.values()), columns[UNROLL:])
            for k, column in enumerate(columns[:UNROLL]):
                following = self._add_input(column, entries, k, following)
            return [float_at(builder, address, step), *following]

        _, *result = reduce_loop(builder, passes, [x.address, *sums], inputs)
        return result

    def _fetch(self, entries: Sequence[ir.Value], columns: Sequence[ir.Value]) -> None:
        """Emit the fetching of later weights than those at `entries`, and of the activations of later `columns`."""
        builder = self.builder
        if self.starts[0] % PANEL == 0:
            for entry in entries:
                ahead = byte_at(builder, entry, i64(FETCH_DISTANCE))
                fetch_lines(builder, ahead, UNROLL * PANEL * FLOAT_BYTES // ALIGNMENT)
        if len(self.rows) >= MANY_ROWS:
            for column in columns:
                for row in (0, len(self.rows) - 1):
                    fetch_lines(builder, float_at(builder, column, i64(row)), 1)

    def _add_input(
        self, column: ir.Value, entries: Mapping[int, ir.Value], k: int, sums: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Return the sums after input k of a pass, whose activations are at `column`; `entries` is by panel."""
        lanes, builder = self.code.lanes(self.builder), self.builder
        weights = [float_at(builder, entries[start // PANEL], i64(k * PANEL + start % PANEL)) for start in self.starts]
        operands = [lanes.load(address, FLOAT_BYTES * lanes.width) for address in weights]
        following: list[ir.Value] = []
        for row in range(len(self.rows)):
            value = lanes.splat(builder.load(float_at(builder, column, i64(row)), typ=FLOAT))
            own = sums[row * len(operands) : (row + 1) * len(operands)]
            following += [lanes.fma(value, operand, total) for operand, total in zip(operands, own, strict=True)]
        return following
