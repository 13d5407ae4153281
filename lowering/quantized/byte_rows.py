"""Rows of codes that a network reads or yields: copied, as vectors reach beyond a row, or rounded from floats.

Signed ones become unsigned ones; those that panels had in another order are put into theirs.
"""

from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.byte_lookup import VECTOR
from ..llvm.builder import Code
from ..llvm.flow import loop
from ..llvm.intrinsics import call_intrinsic
from ..llvm.values import BYTE, FLOAT_BYTES, Bytes, Floats, Index, Number
from ..llvm.vectors import int_constants
from .byte_lanes import PLACING
from .rounding import Rounding

SIGN: Final = 0x80
"""The bit by which codes of both kinds differ."""

WIDEST_COPY: Final = 64


class Strided(NamedTuple):
    """Rows: the address of the first one, and the bytes from one to the next."""

    address: Bytes
    stride: Number

    def row(self, row: Index) -> "Strided":
        """Return the rows from another one on."""
        return Strided(self.address.at(row * self.stride), self.stride)


def copy_codes(code: Code, features: int, *, signed: bool) -> ir.Function:
    """Return `void (x, x stride, y, y stride, rows)`, strides in bytes; `signed` ones change their kind."""
    width = min(WIDEST_COPY, 1 << max(0, features.bit_length() - 1))
    kind = ir.VectorType(BYTE, width)

    @code.kernel(f"copy_codes_{features}{'_signed' if signed else ''}")
    def kernel(x: Strided, y: Strided, rows: Number) -> None:
        with loop(rows) as row:
            source, target = x.row(row).address, y.row(row).address
            with loop(rows.constant(features), width) as start:
                # the last vector lies over the one before, so that nothing behind the row is touched
                first = start.smaller(features - width)
                values = source.at(first).load(kind, 1)
                target.at(first).store(other_kind(rows.builder, values) if signed else values, 1)

    return kernel


def placed_codes(code: Code, vectors: int) -> ir.Function:
    """Return `void (y, y stride, places, rows)`, which puts the codes of each vector of rows in order, in place.

    `places` says of each code where it lies in its vector.
    """
    kind = ir.VectorType(BYTE, VECTOR)

    @code.kernel(f"placed_codes_{vectors}")
    def kernel(y: Strided, places: Bytes, rows: Number) -> None:
        with loop(rows.constant(VECTOR * vectors), VECTOR) as start:
            order = places.at(start).load(kind, VECTOR)
            with loop(rows) as row:
                place = y.row(row).address.at(start)
                placed = call_intrinsic(rows.builder, PLACING, kind, [place.load(kind, 1), order])
                place.store(placed, 1)

    return kernel


def quantizing(code: Code, features: int) -> ir.Function:
    """Return `void (x, x stride, y, y stride, bounds, rows)`, strides in bytes: rows of floats to rows of codes."""
    width = code.target.lanes if features >= code.target.lanes else 1

    @code.kernel(f"quantize_{features}")
    def kernel(x: Strided, y: Strided, bounds: Bytes, rows: Number) -> None:
        lanes = code.lanes(rows, width)
        rounding = Rounding.read(lanes, bounds)
        with loop(rows) as row:
            source, target = x.row(row).address.cast(Floats), y.row(row).address
            with loop(rows.constant(features), width) as start:
                # the last vector lies over the one before, so that nothing behind the row is read
                first = start.smaller(features - width)
                codes = rounding.code(rounding.quotient(lanes.load(source.at(first))))
                target.at(first).store(codes, 1)

    return kernel


def other_kind(builder: ir.IRBuilder, codes: ir.Value) -> ir.Value:
    """Return a vector of signed codes as unsigned ones, or the other way round."""
    kind = codes.type
    assert isinstance(kind, ir.VectorType)
    return builder.xor(codes, ir.Constant(kind, [SIGN] * kind.count))


def store_first(values: ir.Value, place: Bytes | Floats, count: int) -> None:
    """Write the first `count` values of a vector, in as few pieces as there are powers of two in it."""
    done = 0
    bytes_each = FLOAT_BYTES if isinstance(place, Floats) else 1
    for size in (8, 4, 2, 1):
        if count & size:
            chosen = int_constants(range(done, done + size))
            place.at(done).store(place.builder.shuffle_vector(values, values, chosen), bytes_each)
            done += size
