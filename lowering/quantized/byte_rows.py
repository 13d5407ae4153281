"""Rows of codes that a network reads or yields: copied, as vectors reach beyond a row, signed ones to unsigned ones."""

from collections.abc import Sequence
from typing import Final

from llvmlite import ir

from redpebble.lowering.llvm.builder import BYTE, I64, POINTER, Code, byte_at, counted_loop, i64
from redpebble.lowering.llvm.vectors import int_constants

SIGN: Final = 0x80
"""The bit by which codes of both kinds differ."""

WIDEST_COPY: Final = 64


def copy_codes(code: Code, features: int, *, signed: bool) -> ir.Function:
    """Return `void (x, x stride, y, y stride, rows)`, strides in bytes; `signed` ones change their kind."""
    width = min(WIDEST_COPY, 1 << max(0, features.bit_length() - 1))

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, x_stride, y, y_stride, rows = args
        with counted_loop(builder, rows) as row:
            source, target = (
                byte_at(builder, start, builder.mul(row, stride)) for start, stride in ((x, x_stride), (y, y_stride))
            )
            with counted_loop(builder, i64(features), width) as start:
                # the last vector lies over the one before, so that nothing behind the row is touched
                last = i64(features - width)
                first = builder.select(builder.icmp_signed("<", start, last), start, last)
                values = builder.load(byte_at(builder, source, first), align=1, typ=ir.VectorType(BYTE, width))
                made = other_kind(builder, values) if signed else values
                builder.store(made, byte_at(builder, target, first), align=1)

    key = f"copy_codes_{features}{'_signed' if signed else ''}"
    return code.function(key, [POINTER, I64, POINTER, I64, I64], body)


def other_kind(builder: ir.IRBuilder, codes: ir.Value) -> ir.Value:
    """Return a vector of signed codes as unsigned ones, or the other way round."""
    kind = codes.type
    assert isinstance(kind, ir.VectorType)
    return builder.xor(codes, ir.Constant(kind, [SIGN] * kind.count))


def store_first(builder: ir.IRBuilder, values: ir.Value, place: ir.Value, count: int) -> None:
    """Write the first `count` values of a vector, in as few pieces as there are powers of two in it."""
    kind, done = values.type, 0
    assert isinstance(kind, ir.VectorType)
    bytes_each = getattr(kind.element, "width", 32) // 8
    for size in (8, 4, 2, 1):
        if count & size:
            chosen = int_constants(range(done, done + size))
            part = builder.shuffle_vector(values, values, chosen)
            builder.store(part, byte_at(builder, place, i64(bytes_each * done)), align=bytes_each)
            done += size
