"""Rows of feature-major blocks into messages and out of them; rows that are zero for a whole block are left out.

A message holds a flag byte for every (block, row), 1 where the row follows; from the next multiple of 64 bytes on the
rows themselves, `width` floats or codes each, block by block. A row that is left out becomes zeros again: bytes of 0,
or the code of 0. (A row of negative zeros is no row of zeros: it is the bits that count.)
"""

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from ...lowering.llvm.builder import Code
from ...lowering.llvm.flow import branch, fold, loop
from ...lowering.llvm.values import ALIGNMENT, BYTE, FLOAT_BYTES, I64, Bytes, Longs, Number, Truth
from ...lowering.llvm.vectors import broadcast

Step = Callable[[Number, Number, Number, Number], Number]
"""Emits the work on a row: its block, its index, that of its flag, and the rows in the message so far; returns the rows
then."""


def emit_pack(code: Code, symbol: str, row: int) -> None:
    """Emit the function `symbol` that writes a message of rows of so many bytes."""
    vectors = _Vectors.of(code, row)

    @code.kernel(symbol, exported=True)
    def pack(
        values: Bytes,
        numbers: Longs,
        message: Bytes,
        total: Longs,
        rows: Number,
        blocks: Number,
        stride: Number,
        zero: Number,
    ) -> None:
        start, zeros = _rows_of(message, rows, blocks), vectors.splat(zero)

        def one(block: Number, index: Number, flag_index: Number, count: Number) -> Number:
            source, target = values.at(block * stride + numbers[index] * row), start.at(count * row)
            # the row is written in any case, and then written over where it is zero
            any_bit: ir.Value = ir.Constant(vectors.kind, None)
            for first in vectors.firsts:
                vector = vectors.load(source.at(first))
                vectors.store(vector, target.at(first))
                any_bit = zero.builder.or_(any_bit, zero.builder.xor(vector, zeros))
            is_there = vectors.is_any(zero.builder, any_bit)
            message[flag_index] = is_there.number(BYTE)
            return count + is_there.number()

        total[0] = _over_rows(rows, blocks, one)


def emit_unpack(code: Code, symbol: str, row: int) -> None:
    """Emit the function `symbol` that reads a message of rows of so many bytes."""
    vectors = _Vectors.of(code, row)

    @code.kernel(symbol, exported=True)
    def unpack(
        message: Bytes,
        values: Bytes,
        total: Longs,
        rows: Number,
        blocks: Number,
        stride: Number,
        zero: Number,
        first_row: Number,
    ) -> None:
        start, zeros = _rows_of(message, rows, blocks), vectors.splat(zero)

        def one(block: Number, index: Number, flag_index: Number, count: Number) -> Number:
            flag = message.narrow(flag_index)
            source = start.at(count * row)
            target = values.at(block * stride + (first_row + index) * row)
            is_there = flag != 0

            def copied() -> None:
                for first in vectors.firsts:
                    vectors.store(vectors.load(source.at(first)), target.at(first))

            def absent() -> None:
                for first in vectors.firsts:
                    vectors.store(zeros, target.at(first))

            branch(is_there, copied, absent)
            return count + is_there.number()

        total[0] = _over_rows(rows, blocks, one)


@dataclass(frozen=True)
class _Vectors:
    """The vectors of bytes that a row consists of."""

    row: int
    size: int
    """Bytes of a vector, which divide those of a row."""

    @staticmethod
    def of(code: Code, row: int) -> "_Vectors":
        """Return the widest ones of a target."""
        return _Vectors(row, min(row & -row, FLOAT_BYTES * code.target.lanes))

    @property
    def kind(self) -> ir.VectorType:
        """The type of a vector."""
        return ir.VectorType(BYTE, self.size)

    @property
    def firsts(self) -> range:
        """The first byte of each."""
        return range(0, self.row, self.size)

    def splat(self, byte: Number) -> ir.Value:
        """Return a vector of the lowest byte of a number."""
        return broadcast(byte.builder, byte.narrow(BYTE).value, self.size)

    def load(self, place: Bytes) -> ir.Value:
        """Return a vector of a row."""
        return place.load(self.kind, self.size)

    def store(self, vector: ir.Value, place: Bytes) -> None:
        """Write a vector of a row."""
        place.store(vector, self.size)

    def is_any(self, builder: ir.IRBuilder, bits: ir.Value) -> Truth:
        """Return whether any bit of a vector is set."""
        return Number(builder, builder.bitcast(bits, ir.IntType(8 * self.size))) != 0


def _rows_of(message: Bytes, rows: Number, blocks: Number) -> Bytes:
    """Return where the rows of a message begin."""
    return message.at((rows * blocks + (ALIGNMENT - 1)) & -ALIGNMENT)


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
