"""Dense kernel family whose vectors run over outputs, for any number of rows of activations.

A batch of 17 rows costs 17 rows, though its tile is wider. Weights stand in panels [outputs / 16, K, 16] of 16 outputs.
Four panels are in work at a time: all rows pass a chunk of their inputs, in the blocks of `dense_blocks`, while it is
in the second-level cache. Activations are read feature-major, as in all tiles; outputs are written that way, too, or as
the rows that leave the tile. Registers: see `dense_blocks`.
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from llvmlite import ir

from ...dialect.attributes.activations import ActivationAttr
from ...kernels.formats.dense_outputs import BULK_ROWS, GROUP, PANEL, VECTORS
from ...kernels.tile_widths import TILE_WIDTHS
from ..llvm.builder import Code
from ..llvm.flow import allocated, branch, call, choose, loop, select, when
from ..llvm.strided import Strided, StridedMap, emit_strided
from ..llvm.transposition import rows_to_columns
from ..llvm.values import Floats, Number, Truth
from .dense_blocks import (
    UNROLL,
    BlockForm,
    Rows,
    dense_block,
    dense_input,
    panels_at_once,
)
from .dense_columns import DenseLayer, dense_columns, fits
from .kernel_form import LinearForm, activated, activation_key

PANELS_AT_ONCE: Final = GROUP // PANEL
"""Panels in work at a time."""

MOST_COLUMNS: Final = TILE_WIDTHS[-1]
"""Columns of a tile, at most: weights that come from memory are used often enough then."""

FEW_INPUTS: Final = 1024
"""The activations of so many stay in the second-level cache, which is enough."""

CHUNK: Final = 256
"""Inputs after which sums are put aside, a multiple of `UNROLL`: those of a block of rows stay in the first level."""


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return `void (x, y, weights, bias, inputs, outputs)` for all columns of tiles of `form.width` columns.

    Raises:
        ValueError: the tile has more columns than there may be.
    """
    whole, columns = emit_rows(code, form), dense_columns(code, form) if fits(code, form) else None

    @code.kernel(f"dense_outputs_{form.key}")
    def kernel(layer: DenseLayer) -> None:
        if columns is None:
            call(whole, layer, form.width)
            return
        few = layer.inputs <= FEW_INPUTS
        branch(few, partial(call, columns, layer), partial(call, whole, layer, form.width))

    return kernel


def emit_rows(code: Code, form: LinearForm) -> ir.Function:
    """Return the same with a last argument, the number of rows; the columns behind them repeat the last one.

    Raises:
        ValueError: the tile has more columns than there may be.
    """
    whole = _product(code, form, code.column_lanes(form.width) if form.width > 1 else 0)

    @code.kernel(f"dense_rows_{form.key}")
    def kernel(layer: DenseLayer, rows: Number) -> None:
        call(whole, layer, rows, form.width, layer.outputs)

    return kernel


def emit_leaving(code: Code, form: LinearForm) -> ir.Function:
    """Return the same with another argument, the values between rows of y: that is no tile but rows.

    Raises:
        ValueError: the tile has more columns than there may be.
    """
    whole = _product(code, form, 0)

    @code.kernel(f"dense_leaving_{form.key}")
    def kernel(layer: DenseLayer, rows: Number, apart: Number) -> None:
        call(whole, layer, rows, form.width, apart)

    return kernel


def _product(code: Code, form: LinearForm, column_lanes: int) -> ir.Function:
    """Return the loop over panels, whose results are rows, or columns in vectors of `column_lanes`; 0: rows.

    It is `void (x, y, weights, bias, inputs, outputs, rows, columns of the tile, stride of the rows of y)`.
    """
    if form.width > MOST_COLUMNS:
        raise ValueError(f"dense_outputs has code for up to {MOST_COLUMNS} batch columns, the tile has {form.width}")

    @code.kernel(f"dense_product_{column_lanes or 'rows'}_{activation_key(form.activation)}")
    def kernel(layer: DenseLayer, rows: Number, columns: Number, y_stride: Number) -> None:
        aside = allocated(rows, Floats, MOST_COLUMNS * GROUP)
        product = _Product(code, form.activation, column_lanes, _Operands(*layer, rows, columns, y_stride, aside))
        # groups of panels, then single ones
        panels = (layer.outputs + (PANEL - 1)).quotient(PANEL)
        grouped = panels.quotient(PANELS_AT_ONCE) * PANELS_AT_ONCE
        with loop(grouped, PANELS_AT_ONCE) as panel:
            product.emit(panel, PANELS_AT_ONCE)
        with loop(panels - grouped) as further:
            product.emit(grouped + further, 1)

    return kernel


class _Operands(NamedTuple):
    """Arguments of a product, and memory for sums [rows][outputs of a group]; strides are in values."""

    x: Floats
    y: Floats
    weights: Floats
    bias: Floats
    inputs: Number
    outputs: Number
    rows: Number
    columns: Number
    y_stride: Number
    aside: Floats


class _Sums(NamedTuple):
    """Sums of some panels: where they are written, and where they come from."""

    target: Rows
    initial: Rows


class _Inputs(NamedTuple):
    """A chunk of inputs: the first one, their number, and whether they are the last ones."""

    first: Number
    number: Number
    are_last: Truth


class _BlockRows(NamedTuple):
    """The operands of some rows: their activations, sums, initial sums, the panels of weights, and their number."""

    x: Floats
    y: Rows
    initial: Rows
    weights: Rows
    rows: Number


@dataclass(frozen=True)
class _Product:
    """The code of some panels for all rows."""

    code: Code
    activation: ActivationAttr | None
    column_lanes: int
    """Columns of a vector where results are columns, 0 where they are rows."""
    operands: _Operands

    def emit(self, panel: Number, count: int) -> None:
        """Emit `count` panels from `panel` on: where they are whole right into y, else by way of other memory."""
        operands, column_lanes = self.operands, self.column_lanes
        first, aside = panel * PANEL, Rows(operands.aside, panel.constant(GROUP))
        features = (operands.outputs - first).smaller(PANEL * count)
        if column_lanes:
            # rows of sums lie aside, and are transposed into y
            self._emit_chunks(panel, count, aside)
            target = operands.y.at(first * operands.columns)
            to_columns = rows_to_columns(self.code, column_lanes)
            call(to_columns, operands.aside, target, GROUP, features, operands.rows, operands.columns)
            return
        y = Rows(operands.y.at(first), operands.y_stride)
        whole = features == PANEL * count
        self._emit_chunks(panel, count, select(whole, y, aside))
        with when(~whole):
            copy = StridedMap(Strided(y.address, (y.stride, 1)), [Strided(aside.address, (aside.stride, 1))])
            emit_strided(self.code, [operands.rows, features], copy)

    def _emit_chunks(self, panel: Number, count: int, target: Rows) -> None:
        """Emit all inputs, a chunk after the other; a layer without inputs has an empty one."""
        inputs, biases = self.operands.inputs, self.operands.bias.at(panel * PANEL)
        size = select(inputs <= FEW_INPUTS, FEW_INPUTS, CHUNK)
        chunks = (inputs - 1).quotient(size) + 1
        with loop(chunks) as number:
            # the sums of the first chunk come from the bias, those of others from where the one before has put them
            first = number * size
            is_first, left = first == 0, inputs - first
            chunk = left.smaller(size)
            sums = _Sums(target, select(is_first, Rows(biases, first.constant(0)), target))
            self._emit_rows(panel, count, _Inputs(first, chunk, left == chunk), sums)

    def _emit_rows(self, panel: Number, count: int, inputs: _Inputs, sums: _Sums) -> None:
        """Emit a chunk for all rows, in blocks."""
        operands, lanes = self.operands, self.code.target.lanes
        apart = operands.inputs * PANEL
        entry = panel * operands.inputs + inputs.first
        weights = operands.weights.at(entry * PANEL)
        column = operands.x.at(inputs.first * operands.columns)
        few = operands.rows <= max(VECTORS[lanes])
        bulk = BULK_ROWS[lanes]
        needed = (operands.rows + (bulk - 1)).quotient(bulk)
        blocks = select(few, 1, needed)
        # the last two are about equal, so that none has few rows; only the last one may repeat a row
        whole = select(few, 0, blocks - 2)
        rest = operands.rows - whole * bulk
        half = select(few, 0, (rest + 3).quotient(4) * 2)
        with loop(blocks) as block:
            is_last = block == blocks - 1
            row = block.smaller(whole) * bulk
            row = row + select(is_last, half, 0)
            rows = select(is_last, operands.rows - row, half)
            rows = select(block < whole, bulk, rows)
            y, initial = (buffer._replace(address=buffer.at(row)) for buffer in sums)
            some = _BlockRows(column.at(row), y, initial, Rows(weights, apart), rows)
            self._emit_choice(count, some, inputs.number)
            self._emit_end(count, some, inputs)

    def _emit_choice(self, count: int, some: _BlockRows, inputs: Number) -> None:
        """Emit the call of the least block for a number of rows that only the call knows."""
        sizes = list(VECTORS[self.code.target.lanes])
        choose(
            some.rows,
            (
                (f"rows{rows}", range(fewer + 1, rows + 1), partial(self._emit_block, count, some, inputs, rows))
                for fewer, rows in pairwise([0, *sizes])
            ),
        )

    def _emit_block(self, count: int, some: _BlockRows, inputs: Number, rows: int) -> None:
        """Emit the calls of the block of `rows` rows for some panels."""
        at_once = min(count, panels_at_once(self.code.target.lanes, rows))
        function = dense_block(self.code, BlockForm(rows, at_once))
        with loop(inputs.constant(count), at_once) as panel:
            output = panel * PANEL
            y, initial = some.y.address.at(output), some.initial.address.at(output)
            strides = self.operands.columns, some.y.stride, some.initial.stride
            numbers = some.rows - 1, *strides, inputs, some.weights.stride
            call(function, some.x, y, some.weights.at(panel), initial, *numbers)

    def _emit_end(self, count: int, some: _BlockRows, inputs: _Inputs) -> None:
        """Emit the last one of an odd number of inputs, and the activation of complete sums, just after their block."""
        y = some.y
        even = inputs.number.quotient(UNROLL) * UNROLL
        with when(even < inputs.number):
            x = some.x.at(even * self.operands.columns)
            weights = some.weights.address.at(even * PANEL)
            call(dense_input(self.code), x, y.address, weights, y.stride, some.weights.stride, some.rows, count)
        if self.activation is not None:
            with when(inputs.are_last):
                call(_activate(self.code, self.activation), *y, some.rows, PANEL * count)


def _activate(code: Code, activation: ActivationAttr) -> ir.Function:
    """Return `void (y, stride, rows, outputs)`, in place; outputs are whole panels."""

    @code.kernel(f"dense_activation_{activation_key(activation)}")
    def kernel(y: Floats, stride: Number, rows: Number, outputs: Number) -> None:
        lanes = code.lanes(y)
        with loop(rows) as row, loop(outputs, lanes.width) as output:
            address = y.at(row * stride + output)
            (result,) = activated(lanes, activation, [lanes.load(address)])
            lanes.store(result, address)

    return kernel
