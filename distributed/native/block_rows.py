"""Rows of feature-major blocks into messages and out of them; rows that are zero for a whole block are left out.

A message holds a flag byte for every (block, row), 1 where the row follows; from the next multiple of 64 bytes on the
rows themselves, `width` floats each, block by block. A row that is left out becomes zeros again. (A row of negative
zeros is no row of zeros: it is the bits that count.)
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from llvmlite import ir

from ...lowering.llvm.builder import (
    ALIGNMENT,
    BYTE,
    I32,
    I64,
    POINTER,
    Code,
    byte_at,
    counted_loop,
    float_at,
    i64,
    reduce_loop,
)
from .block_layout import PACK_ARITY, UNPACK_ARITY


class Position(NamedTuple):
    """A row of a message: its block, its index among the rows, and the index of its flag."""

    block: ir.Value
    row: ir.Value
    flag: ir.Value


class Counts(NamedTuple):
    """Numbers of rows of a message, and of blocks of each row."""

    rows: ir.Value
    blocks: ir.Value


class Signature(NamedTuple):
    """The arguments of a function: so many pointers and sizes, and which of the pointers is the message."""

    pointers: int
    sizes: int
    message: int


Step = Callable[[Position, ir.Value], ir.Value]
"""Emits the work on a row, for the rows in the message so far; returns the rows then."""


def emit_pack(code: Code, symbol: str, width: int) -> None:
    """Emit the function `symbol` that writes a message."""

    def step(builder: ir.IRBuilder, args: Sequence[ir.Argument], start: ir.Value) -> Step:
        values, numbers, message, _, _, _, stride = args
        lanes = code.lanes(builder, code.column_lanes(width))

        def one(position: Position, count: ir.Value) -> ir.Value:
            block, index, flag_index = position
            number = builder.load(builder.gep(numbers, [index], source_etype=I64), typ=I64)
            source = float_at(builder, values, builder.add(builder.mul(block, stride), builder.mul(number, i64(width))))
            target = float_at(builder, start, builder.mul(count, i64(width)))
            any_bit: ir.Value = lanes.ints(0)
            for first in range(0, width, lanes.width):
                vector = lanes.load(float_at(builder, source, i64(first)))
                lanes.store(vector, float_at(builder, target, i64(first)))
                any_bit = builder.or_(any_bit, lanes.bits(vector))
            flag = builder.zext(_is_any(builder, any_bit, lanes.width), BYTE)
            builder.store(flag, byte_at(builder, message, flag_index))
            return builder.add(count, builder.zext(flag, I64))

        return one

    _emit(code, symbol, Signature(*PACK_ARITY, message=2), step)


def emit_unpack(code: Code, symbol: str, width: int) -> None:
    """Emit the function `symbol` that reads a message."""

    def step(builder: ir.IRBuilder, args: Sequence[ir.Argument], start: ir.Value) -> Step:
        message, values, _, _, _, stride, first_row = args
        lanes = code.lanes(builder, code.column_lanes(width))

        def one(position: Position, count: ir.Value) -> ir.Value:
            block, index, flag_index = position
            flag = builder.load(byte_at(builder, message, flag_index), typ=BYTE)
            source = float_at(builder, start, builder.mul(count, i64(width)))
            row = builder.mul(builder.add(first_row, index), i64(width))
            target = float_at(builder, values, builder.add(builder.mul(block, stride), row))
            present = builder.icmp_unsigned("!=", flag, ir.Constant(BYTE, 0))
            with builder.if_else(present) as (there, left_out):
                with there:
                    for first in range(0, width, lanes.width):
                        vector = lanes.load(float_at(builder, source, i64(first)))
                        lanes.store(vector, float_at(builder, target, i64(first)))
                with left_out:
                    for first in range(0, width, lanes.width):
                        lanes.store(0.0, float_at(builder, target, i64(first)))
            return builder.add(count, builder.zext(present, I64))

        return one

    _emit(code, symbol, Signature(*UNPACK_ARITY, message=0), step)


def _emit(
    code: Code,
    symbol: str,
    signature: Signature,
    step: Callable[[ir.IRBuilder, Sequence[ir.Argument], ir.Value], Step],
) -> None:
    """Emit a function that does `step` for every row.

    The last of its pointers is where the number of rows in the message goes;
    the first two sizes are those of rows and blocks.
    """
    pointers = signature.pointers

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        counts = Counts(args[pointers], args[pointers + 1])
        start = _rows_of(builder, args[signature.message], counts)
        builder.store(_over_rows(builder, counts, step(builder, args, start)), args[pointers - 1])

    code.function(symbol, [POINTER] * pointers + [I64] * signature.sizes, body, exported=True)


def _rows_of(builder: ir.IRBuilder, message: ir.Value, counts: Counts) -> ir.Value:
    flags = builder.add(builder.mul(*counts), i64(ALIGNMENT - 1))
    return byte_at(builder, message, builder.and_(flags, i64(-ALIGNMENT)))


def _over_rows(builder: ir.IRBuilder, counts: Counts, one: Step) -> ir.Value:
    """Emit a loop over blocks and rows; return the rows in the message."""
    rows, blocks = counts
    total = builder.alloca(I64)
    builder.store(i64(0), total)
    with counted_loop(builder, blocks) as block:

        def step(index: ir.Value, carried: Sequence[ir.Value]) -> list[ir.Value]:
            flag_index = builder.add(builder.mul(block, rows), index)
            return [one(Position(block, index, flag_index), carried[0])]

        before = builder.load(total, typ=I64)
        (after,) = reduce_loop(builder, rows, [before], step)
        builder.store(after, total)
    return builder.load(total, typ=I64)


def _is_any(builder: ir.IRBuilder, bits: ir.Value, lanes: int) -> ir.Value:
    """Return whether any bit of a vector of integers is set."""
    if lanes == 1:
        return builder.icmp_unsigned("!=", builder.extract_element(bits, ir.Constant(I32, 0)), ir.Constant(I32, 0))
    whole = builder.bitcast(bits, ir.IntType(32 * lanes))
    return builder.icmp_unsigned("!=", whole, ir.Constant(ir.IntType(32 * lanes), 0))
