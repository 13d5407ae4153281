"""Dense kernel family whose vectors run over outputs, for any number of rows of activations.

A batch of 17 rows costs 17 rows, though its tile is wider. Weights stand in panels [outputs / 16, K, 16] of 16 outputs.
Four panels are in work at a time: all rows pass a chunk of their inputs, in the blocks of `dense_blocks`, while it is
in the second-level cache. Activations are read feature-major, as in all tiles; outputs are written that way, too, or as
the rows that leave the tile. Registers: see `dense_blocks`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from llvmlite import ir

from ...dialect.attributes.activations import ActivationAttr
from ...kernels.formats.dense_outputs import BULK_ROWS, GROUP, PANEL, VECTORS
from ...kernels.tile_widths import TILE_WIDTHS
from ..llvm.builder import ALIGNMENT, I64, POINTER, Code, counted_loop, float_at, i64
from ..llvm.strided import Strided, StridedMap, emit_strided
from ..llvm.transposition import rows_to_columns
from ..llvm.vectors import FLOAT
from .dense_blocks import (
    UNROLL,
    BlockForm,
    Rows,
    dense_block,
    dense_input,
    panels_at_once,
)
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
    whole = emit_rows(code, form)

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        builder.call(whole, [*args, i64(form.width)])

    return code.function(f"dense_outputs_{form.key}", [POINTER] * 4 + [I64] * 2, body)


def emit_rows(code: Code, form: LinearForm) -> ir.Function:
    """Return the same with a last argument, the number of rows; the columns behind them repeat the last one.

    Raises:
        ValueError: the tile has more columns than there may be.
    """
    whole = _product(code, form, code.column_lanes(form.width) if form.width > 1 else 0)

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        builder.call(whole, [*args, i64(form.width), args[5]])

    return code.function(f"dense_rows_{form.key}", [POINTER] * 4 + [I64] * 3, body)


def emit_leaving(code: Code, form: LinearForm) -> ir.Function:
    """Return the same with another argument, the values between rows of y: that is no tile but rows.

    Raises:
        ValueError: the tile has more columns than there may be.
    """
    whole = _product(code, form, 0)

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        *others, apart = args
        builder.call(whole, [*others, i64(form.width), apart])

    return code.function(f"dense_leaving_{form.key}", [POINTER] * 4 + [I64] * 4, body)


def _product(code: Code, form: LinearForm, column_lanes: int) -> ir.Function:
    """Return the loop over panels, whose results are rows, or columns in vectors of `column_lanes`; 0: rows.

    It is `void (x, y, weights, bias, inputs, outputs, rows, columns of the tile, stride of the rows of y)`.
    """
    if form.width > MOST_COLUMNS:
        raise ValueError(f"dense_outputs has code for up to {MOST_COLUMNS} batch columns, the tile has {form.width}")

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        aside = builder.alloca(ir.ArrayType(FLOAT, MOST_COLUMNS * GROUP))
        aside.align = ALIGNMENT
        x, y, weights, bias, inputs, outputs, rows, columns, y_stride = args
        operands = _Operands(x, y, weights, bias, inputs, outputs, rows, columns, y_stride, aside)
        product = _Product(code, builder, form.activation, column_lanes, operands)
        panels = builder.sdiv(builder.add(product.operands.outputs, i64(PANEL - 1)), i64(PANEL))
        grouped = builder.mul(builder.sdiv(panels, i64(PANELS_AT_ONCE)), i64(PANELS_AT_ONCE))
        with counted_loop(builder, grouped, PANELS_AT_ONCE) as panel:
            product.emit(panel, PANELS_AT_ONCE)
        with counted_loop(builder, builder.sub(panels, grouped)) as further:
            product.emit(builder.add(grouped, further), 1)

    name = f"dense_product_{column_lanes or 'rows'}_{activation_key(form.activation)}"
    return code.function(name, [POINTER] * 4 + [I64] * 5, body)


class _Operands(NamedTuple):
    """Arguments of a product, and memory for sums [rows][outputs of a group]; strides are in values."""

    x: ir.Value
    y: ir.Value
    weights: ir.Value
    bias: ir.Value
    inputs: ir.Value
    outputs: ir.Value
    rows: ir.Value
    columns: ir.Value
    y_stride: ir.Value
    aside: ir.Value


class _Sums(NamedTuple):
    """Sums of some panels: where they are written, and where they come from."""

    target: Rows
    initial: Rows


class _Inputs(NamedTuple):
    """A chunk of inputs: the first one, their number, and whether they are the last ones."""

    first: ir.Value
    number: ir.Value
    are_last: ir.Value


class _BlockRows(NamedTuple):
    """The operands of some rows: their activations, sums, initial sums, the panels of weights, and their number."""

    x: ir.Value
    y: Rows
    initial: Rows
    weights: Rows
    rows: ir.Value


@dataclass(frozen=True)
class _Product:
    """The code of some panels for all rows."""

    code: Code
    builder: ir.IRBuilder
    activation: ActivationAttr | None
    column_lanes: int
    """Columns of a vector where results are columns, 0 where they are rows."""
    operands: _Operands

    def emit(self, panel: ir.Value, count: int) -> None:
        """Emit `count` panels from `panel` on: where they are whole right into y, else by way of other memory."""
        builder, operands, column_lanes = self.builder, self.operands, self.column_lanes
        first, aside = builder.mul(panel, i64(PANEL)), Rows(operands.aside, i64(GROUP))
        features = _least(builder, builder.sub(operands.outputs, first), i64(PANEL * count))
        if column_lanes:
            self._emit_chunks(panel, count, aside)
            target = float_at(builder, operands.y, builder.mul(first, operands.columns))
            arguments = [operands.aside, target, i64(GROUP), features, operands.rows, operands.columns]
            builder.call(rows_to_columns(self.code, column_lanes), arguments)
            return
        target = float_at(builder, operands.y, first)
        whole = builder.icmp_signed("==", features, i64(PANEL * count))
        pairs = zip((target, operands.y_stride), aside, strict=True)
        self._emit_chunks(panel, count, Rows(*(builder.select(whole, *pair) for pair in pairs)))
        with builder.if_then(builder.not_(whole)):
            copy = StridedMap(Strided(target, (operands.y_stride, 1)), [Strided(operands.aside, (i64(GROUP), 1))])
            emit_strided(self.code, builder, [operands.rows, features], copy)

    def _emit_chunks(self, panel: ir.Value, count: int, target: Rows) -> None:
        """Emit all inputs, a chunk after the other; a layer without inputs has an empty one."""
        builder, inputs = self.builder, self.operands.inputs
        biases = float_at(builder, self.operands.bias, builder.mul(panel, i64(PANEL)))
        few = builder.icmp_signed("<=", inputs, i64(FEW_INPUTS))
        size = builder.select(few, i64(FEW_INPUTS), i64(CHUNK))
        chunks = builder.add(builder.sdiv(builder.sub(inputs, i64(1)), size), i64(1))
        with counted_loop(builder, chunks) as number:
            first = builder.mul(number, size)
            is_first, left = builder.icmp_signed("==", first, i64(0)), builder.sub(inputs, first)
            chunk = _least(builder, left, size)
            pairs = zip((biases, i64(0)), target, strict=True)
            sums = _Sums(target, Rows(*(builder.select(is_first, *pair) for pair in pairs)))
            inputs_of_chunk = _Inputs(first, chunk, builder.icmp_signed("==", left, chunk))
            self._emit_rows(panel, count, inputs_of_chunk, sums)

    def _emit_rows(self, panel: ir.Value, count: int, inputs: _Inputs, sums: _Sums) -> None:
        """Emit a chunk for all rows, in blocks."""
        builder, operands = self.builder, self.operands
        lanes = self.code.target.lanes
        apart = builder.mul(operands.inputs, i64(PANEL))
        entry = builder.add(builder.mul(panel, operands.inputs), inputs.first)
        weights = float_at(builder, operands.weights, builder.mul(entry, i64(PANEL)))
        column = float_at(builder, operands.x, builder.mul(inputs.first, operands.columns))
        few = builder.icmp_signed("<=", operands.rows, i64(max(VECTORS[lanes])))
        bulk = i64(BULK_ROWS[lanes])
        needed = builder.sdiv(builder.add(operands.rows, builder.sub(bulk, i64(1))), bulk)
        blocks = builder.select(few, i64(1), needed)
        # the last two are about equal, so that none has few rows; only the last one may repeat a row
        whole = builder.select(few, i64(0), builder.sub(blocks, i64(2)))
        rest = builder.sub(operands.rows, builder.mul(whole, bulk))
        half = builder.mul(builder.sdiv(builder.add(rest, i64(3)), i64(4)), i64(2))
        half = builder.select(few, i64(0), half)
        with counted_loop(builder, blocks) as block:
            is_last = builder.icmp_signed("==", block, builder.sub(blocks, i64(1)))
            row = builder.mul(_least(builder, block, whole), bulk)
            row = builder.add(row, builder.select(is_last, half, i64(0)))
            rows = builder.select(is_last, builder.sub(operands.rows, row), half)
            rows = builder.select(builder.icmp_signed("<", block, whole), bulk, rows)
            y, initial = (buffer._replace(address=buffer.at(builder, row)) for buffer in sums)
            some = _BlockRows(float_at(builder, column, row), y, initial, Rows(weights, apart), rows)
            self._emit_choice(count, some, inputs.number)
            self._emit_end(count, some, inputs)

    def _emit_choice(self, count: int, some: _BlockRows, inputs: ir.Value) -> None:
        """Emit the call of the least block for a number of rows that only the call knows."""
        builder, lanes = self.builder, self.code.target.lanes
        done = builder.append_basic_block("done")
        choice, fewer = builder.switch(some.rows, done), 0
        for rows in VECTORS[lanes]:
            case = builder.append_basic_block(f"rows{rows}")
            for number in range(fewer, rows):
                choice.add_case(i64(number + 1), case)
            fewer = rows
            builder.position_at_end(case)
            at_once = min(count, panels_at_once(lanes, rows))
            function = dense_block(self.code, BlockForm(rows, at_once))
            with counted_loop(builder, i64(count), at_once) as panel:
                output = builder.mul(panel, i64(PANEL))
                y, initial = (float_at(builder, buffer.address, output) for buffer in (some.y, some.initial))
                strides = [self.operands.columns, some.y.stride, some.initial.stride]
                numbers = [builder.sub(some.rows, i64(1)), *strides, inputs, some.weights.stride]
                builder.call(function, [some.x, y, some.weights.at(builder, panel), initial, *numbers])
            builder.branch(done)
        builder.position_at_end(done)

    def _emit_end(self, count: int, some: _BlockRows, inputs: _Inputs) -> None:
        """Emit the last one of an odd number of inputs, and the activation of complete sums, just after their block."""
        builder, y = self.builder, some.y
        even = builder.mul(builder.sdiv(inputs.number, i64(UNROLL)), i64(UNROLL))
        with builder.if_then(builder.icmp_signed("<", even, inputs.number)):
            x = float_at(builder, some.x, builder.mul(even, self.operands.columns))
            weights = float_at(builder, some.weights.address, builder.mul(even, i64(PANEL)))
            arguments = [x, y.address, weights, y.stride, some.weights.stride, some.rows, i64(count)]
            builder.call(dense_input(self.code), arguments)
        if self.activation is not None:
            with builder.if_then(inputs.are_last):
                arguments = [y.address, y.stride, some.rows, i64(PANEL * count)]
                builder.call(_activate(self.code, self.activation), arguments)


def _least(builder: ir.IRBuilder, left: ir.Value, right: ir.Value) -> ir.Value:
    return builder.select(builder.icmp_signed("<", left, right), left, right)


def _activate(code: Code, activation: ActivationAttr) -> ir.Function:
    """Return `void (y, stride, rows, outputs)`, in place; outputs are whole panels."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        y, stride, rows, outputs = args
        lanes = code.lanes(builder)
        with counted_loop(builder, rows) as row, counted_loop(builder, outputs, lanes.width) as output:
            address = float_at(builder, y, builder.add(builder.mul(row, stride), output))
            (result,) = activated(lanes, activation, [lanes.load(address)])
            lanes.store(result, address)

    return code.function(f"dense_activation_{activation_key(activation)}", [POINTER, I64, I64, I64], body)
