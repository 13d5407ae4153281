"""Rows of feature-major blocks into messages and out of them; rows that are zero for a whole block are left out.

A message holds a flag byte for every (block, row), 1 where the row follows; from the next multiple of 64 bytes on the
rows themselves, `width` floats each, block by block. A row that is left out becomes zeros again. (A row of negative
zeros is no row of zeros: it is the bits that count.)
"""

from collections.abc import Callable

from llvmlite import ir

from ...lowering.llvm.builder import Code
from ...lowering.llvm.flow import branch, fold, loop
from ...lowering.llvm.values import ALIGNMENT, BYTE, I32, I64, Bytes, Floats, Longs, Number, Truth
from ...lowering.llvm.vectors import Lanes

Step = Callable[[Number, Number, Number, Number], Number]
"""Emits the work on a row: its block, its index, that of its flag, and the rows in the message so far; returns the rows
then."""


def emit_pack(code: Code, symbol: str, width: int) -> None:
    """Emit the function `symbol` that writes a message."""

    @code.kernel(symbol, exported=True)
    def pack(
        values: Floats, numbers: Longs, message: Bytes, total: Longs, rows: Number, blocks: Number, stride: Number
    ) -> None:
        start = _rows_of(message, rows, blocks)
        lanes = code.lanes(values, code.column_lanes(width))

        def one(block: Number, index: Number, flag_index: Number, count: Number) -> Number:
            number = numbers[index]
            source, target = values.at(block * stride + number * width), start.at(count * width)
            # the row is written in any case, and then written over where it is zero
            any_bit: ir.Value = lanes.ints(0)
            for first in range(0, width, lanes.width):
                vector = lanes.load(source.at(first))
                lanes.store(vector, target.at(first))
                any_bit = lanes.builder.or_(any_bit, lanes.bits(vector))
            flag = Number(lanes.builder, lanes.builder.zext(_is_any(lanes, any_bit).value, BYTE))
            message[flag_index] = flag
            return count + flag.wide()

        total[0] = _over_rows(rows, blocks, one)


def emit_unpack(code: Code, symbol: str, width: int) -> None:
    """Emit the function `symbol` that reads a message."""

    @code.kernel(symbol, exported=True)
    def unpack(
        message: Bytes,
        values: Floats,
        total: Longs,
        rows: Number,
        blocks: Number,
        stride: Number,
        first_row: Number,
    ) -> None:
        start = _rows_of(message, rows, blocks)
        lanes = code.lanes(values, code.column_lanes(width))

        def one(block: Number, index: Number, flag_index: Number, count: Number) -> Number:
            flag = message.narrow(flag_index)
            source = start.at(count * width)
            row = (first_row + index) * width
            target = values.at(block * stride + row)
            is_there = flag != 0

            def copied() -> None:
                for first in range(0, width, lanes.width):
                    lanes.store(lanes.load(source.at(first)), target.at(first))

            def zeros() -> None:
                for first in range(0, width, lanes.width):
                    lanes.store(0.0, target.at(first))

            branch(is_there, copied, zeros)
            return count + is_there.number()

        total[0] = _over_rows(rows, blocks, one)


def _rows_of(message: Bytes, rows: Number, blocks: Number) -> Floats:
    """Return where the rows of a message begin."""
    return message.at((rows * blocks + (ALIGNMENT - 1)) & -ALIGNMENT).cast(Floats)


def _over_rows(rows: Number, blocks: Number, one: Step) -> Number:
    """Emit a loop over blocks and rows; return the rows in the message."""
    builder = rows.builder
    total = Longs(builder, builder.alloca(I64))
    total[0] = 0
    with loop(blocks) as block:

        def step(index: Number, count: Number) -> Number:
            return one(block, index, block * rows + index, count)

        total[0] = fold(rows, total[0], step)
    return total[0]


def _is_any(lanes: Lanes, bits: ir.Value) -> Truth:
    """Return whether any bit of a vector of integers is set."""
    builder = lanes.builder
    whole = (
        builder.extract_element(bits, ir.Constant(I32, 0))
        if lanes.width == 1
        else builder.bitcast(bits, ir.IntType(32 * lanes.width))
    )
    return Number(builder, whole) != 0
