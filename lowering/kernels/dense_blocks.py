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
from ..llvm.builder import Code
from ..llvm.flow import fold, loop
from ..llvm.values import ALIGNMENT, FLOAT_BYTES, Floats, Index, Number

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

    address: Floats
    stride: Number

    def at(self, number: Index) -> Floats:
        """Return the address of a row."""
        return self.address.at(self.stride * number)


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

    @code.kernel(f"dense_block_{form.rows}x{form.panels}")
    def kernel(
        x: Floats,
        y: Floats,
        weights: Floats,
        initial: Floats,
        last: Number,
        x_stride: Number,
        y_stride: Number,
        initial_stride: Number,
        inputs: Number,
        panel: Number,
    ) -> None:
        rows = [last.constant(row).smaller(last) for row in range(form.rows)]
        # as many outputs at a time as registers hold sums of all rows
        for first in range(0, form.panels * PANEL, outputs):
            block = _Block(code, rows, range(first, first + outputs, lanes))
            sums = block.load(Rows(initial, initial_stride))
            passes = inputs.quotient(UNROLL)
            sums = block.multiply_add(Rows(x, x_stride), Rows(weights, panel), passes, sums)
            block.store(sums, Rows(y, y_stride))

    return kernel


def dense_input(code: Code) -> ir.Function:
    """Return what adds one input to the sums of any number of rows and panels.

    It is `void (x, y, weights, stride of rows of y, values of a panel, rows, panels)`.
    """

    @code.kernel("dense_input")
    def kernel(
        x: Floats, y: Floats, weights: Floats, y_stride: Number, panel: Number, rows: Number, panels: Number
    ) -> None:
        lanes = code.lanes(x)
        with loop(rows) as row, loop(panels) as number:
            # the activation of a row, times a panel of weights
            value = lanes.splat(x[row])
            first = row * y_stride + number * PANEL
            source, target = weights.at(number * panel), y.at(first)
            for start in range(0, PANEL, lanes.width):
                address = target.at(start)
                weight = lanes.load(source.at(start), lanes.size)
                lanes.store(lanes.fma(value, weight, lanes.load(address)), address)

    return kernel


@dataclass(frozen=True)
class _Block:
    """The code of some rows, whose numbers in memory are `rows`, and of the vectors of outputs from `starts`."""

    code: Code
    rows: Sequence[Number]
    starts: range

    def load(self, source: Rows) -> list[ir.Value]:
        """Return the sums of all rows."""
        lanes = self.code.lanes(source.stride)
        return [lanes.load(address) for address in self._addresses(source)]

    def store(self, sums: Sequence[ir.Value], target: Rows) -> None:
        """Write the sums of all rows."""
        lanes = self.code.lanes(target.stride)
        for value, address in zip(sums, self._addresses(target), strict=True):
            lanes.store(value, address)

    def _addresses(self, buffer: Rows) -> list[Floats]:
        rows = [buffer.at(row) for row in self.rows]
        return [row.at(start) for row in rows for start in self.starts]

    def multiply_add(self, x: Rows, weights: Rows, passes: Number, sums: list[ir.Value]) -> list[ir.Value]:
        """Return sums after some passes of the loop over the inputs of x and the panels of weights."""
        numbers = dict.fromkeys(start // PANEL for start in self.starts)
        panels = {number: weights.at(number) for number in numbers}
        # the address of a pass is carried, as its stride is known at run time alone: nothing is multiplied in the loop
        strides = [x.stride * k for k in (*range(UNROLL), *range(INPUTS_AHEAD, INPUTS_AHEAD + UNROLL))]
        step = x.stride * UNROLL

        def inputs(index: Number, state: tuple[Floats, list[ir.Value]]) -> tuple[Floats, list[ir.Value]]:
            address, sums = state
            # the weights of the pass, and the activations of its inputs and of later ones
            first = index * (UNROLL * PANEL)
            entries = {number: panel.at(first) for number, panel in panels.items()}
            columns = [address.at(stride) for stride in strides]
            self._fetch(list(entries.values()), columns[UNROLL:])
            for k, column in enumerate(columns[:UNROLL]):
                sums = self._add_input(column, entries, k, sums)
            return address.at(step), sums

        return fold(passes, (x.address, sums), inputs)[1]

    def _fetch(self, entries: Sequence[Floats], columns: Sequence[Floats]) -> None:
        """Emit the fetching of later weights than those at `entries`, and of the activations of later `columns`."""
        if self.starts[0] % PANEL == 0:
            for entry in entries:
                entry.after(FETCH_DISTANCE).fetch(UNROLL * PANEL * FLOAT_BYTES // ALIGNMENT)
        if len(self.rows) >= MANY_ROWS:
            for column in columns:
                for row in (0, len(self.rows) - 1):
                    column.at(row).fetch(1)

    def _add_input(
        self, column: Floats, entries: Mapping[int, Floats], k: int, sums: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Return the sums after input k of a pass, whose activations are at `column`; `entries` is by panel."""
        lanes = self.code.lanes(column)
        weights = [entries[start // PANEL].at(k * PANEL + start % PANEL) for start in self.starts]
        operands = [lanes.load(address, lanes.size) for address in weights]
        return lanes.add_outer(sums, (column[row] for row in range(len(self.rows))), operands)
