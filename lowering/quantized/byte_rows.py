"""Rows of codes that a network reads or yields: copied, as vectors reach beyond a row, or rounded from floats.

Signed ones become unsigned ones; those that panels had in another order are put into theirs.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.byte_lookup import VECTOR
from ..llvm.builder import BYTE, I64, POINTER, Code, byte_at, counted_loop, float_at, i64
from ..llvm.intrinsics import call_intrinsic
from ..llvm.vectors import Lanes, int_constants
from .byte_lanes import PLACING
from .rounding import Rounding

SIGN: Final = 0x80
"""The bit by which codes of both kinds differ."""

WIDEST_COPY: Final = 64


class Strided(NamedTuple):
    """Rows: the address of the first one, and the bytes from one to the next."""

    address: ir.Value
    stride: ir.Value

    def row(self, builder: ir.IRBuilder, row: ir.Value) -> "Strided":
        """Return the rows from another one on."""
        return Strided(byte_at(builder, self.address, builder.mul(row, self.stride)), self.stride)


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


def placed_codes(code: Code, vectors: int) -> ir.Function:
    """Return `void (y, y stride, places, rows)`, which puts the codes of each vector of rows in order, in place.

    `places` says of each code where it lies in its vector.
    """

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        y, stride, places, rows = args
        kind = ir.VectorType(BYTE, VECTOR)
        with counted_loop(builder, i64(VECTOR * vectors), VECTOR) as start:
            order = builder.load(byte_at(builder, places, start), align=VECTOR, typ=kind)
            with counted_loop(builder, rows) as row:
                place = byte_at(builder, byte_at(builder, y, builder.mul(row, stride)), start)
                codes = builder.load(place, align=1, typ=kind)
                builder.store(call_intrinsic(builder, PLACING, kind, [codes, order]), place, align=1)

    return code.function(f"placed_codes_{vectors}", [POINTER, I64, POINTER, I64], body)


def quantizing(code: Code, features: int) -> ir.Function:
    """Return `void (x, x stride, y, y stride, bounds, rows)`, strides in bytes: rows of floats to rows of codes."""
    width = code.target.lanes if features >= code.target.lanes else 1

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, y, bounds, rows = Strided(*args[:2]), Strided(*args[2:4]), args[4], args[5]
        lanes = Lanes(builder, code.target, width)
        rounding = Rounding.read(lanes, bounds)
        with counted_loop(builder, rows) as row:
            source, target = x.row(builder, row).address, y.row(builder, row).address
            with counted_loop(builder, i64(features), width) as start:
                # the last vector lies over the one before, so that nothing behind the row is read
                last = i64(features - width)
                first = builder.select(builder.icmp_signed("<", start, last), start, last)
                values = lanes.load(float_at(builder, source, first))
                codes = rounding.code(rounding.quotient(values))
                builder.store(codes, byte_at(builder, target, first), align=1)

    return code.function(f"quantize_{features}", [POINTER, I64, POINTER, I64, POINTER, I64], body)


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
