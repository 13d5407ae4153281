"""Floats to codes: bounded, rounded to the nearest (to the even one of two), stored as bytes or as floats again.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).

Rows of codes that a network reads or yields are rounded from floats, or copied, as vectors reach beyond a row. Signed
ones become unsigned ones; those that panels had in another order are put into theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from ...dialect.attributes.codes import CodesAttr
from ...kernels.byte_lookup import VECTOR
from ..llvm.builder import Code
from ..llvm.flow import loop
from ..llvm.intrinsics import call_intrinsic
from ..llvm.quotients import HALVES, rounded_quotients
from ..llvm.values import BYTE, FLOAT, FLOAT_BYTES, I32, Bytes, Floats, Index, Ints, Number
from ..llvm.vectors import Lanes, broadcast, int_constants
from .byte_lanes import PLACING

HALVES_BITS: Final = 0x4B400000


class CodeBounds(NamedTuple):
    """Words by which code knows codes, as floats but for the last one."""

    low: float
    high: float
    scale: float
    inverse: float
    unsigned_zero: int

    @staticmethod
    def of(codes: CodesAttr, *, positive: bool = False) -> "CodeBounds":
        """Return the bounds of code - zero; none below 0 where values are to be `positive`."""
        low = 0 if positive else codes.least - codes.zero
        inverse = float(np.float32(1) / np.float32(codes.scale))
        return CodeBounds(low, codes.greatest - codes.zero, codes.scale, inverse, codes.unsigned_zero)

    def words(self) -> NDArray[np.int32]:
        """Return them as code reads them."""
        floats = np.array([self.low, self.high, self.scale, self.inverse], dtype=np.float32)
        return np.append(floats.view(np.int32), np.int32(self.unsigned_zero)).astype(np.int32)


WORDS: Final = len(CodeBounds._fields)


@dataclass(frozen=True)
class Rounding:
    """The vectors that rounding needs."""

    lanes: Lanes
    low: ir.Value
    high: ir.Value
    scale: ir.Value
    inverse: ir.Value
    offset: ir.Value
    """The code of 0 less `HALVES_BITS`, integers."""
    zero: Number
    """The code of 0, of 32 bits."""
    least: Number
    """The least code within bounds, of 32 bits."""

    @staticmethod
    def read(lanes: Lanes, words: Bytes) -> "Rounding":
        """Return the vectors that the words of `CodeBounds` make."""
        builder, floats = lanes.builder, words.cast(Floats)
        low, high, scale, inverse = (lanes.splat(floats[index]) for index in range(4))
        zero = words.cast(Ints).narrow(4)
        offset = builder.bitcast((zero - HALVES_BITS).value, FLOAT)
        first = builder.extract_element(low, ir.Constant(I32, 0))
        least = zero + Number(builder, builder.fptosi(first, I32))
        return Rounding(lanes, low, high, scale, inverse, lanes.bits(lanes.splat(offset)), zero, least)

    def rounded(self, multiples: ir.Value) -> ir.Value:
        """Return `HALVES` and the nearest integer within bounds of multiples of the scale; a NaN is the least one."""
        lanes = self.lanes
        return lanes.add(self._within(multiples), HALVES)

    def quotient(self, values: ir.Value) -> ir.Value:
        """Return the same of values divided by the scale, by a division only where a product does not tell."""
        (rounded,) = self.quotients([values])
        return rounded

    def quotients(self, vectors: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the same of some vectors."""
        return rounded_quotients(self.lanes, vectors, (self.scale, self.inverse), self._within)

    def _within(self, multiples: ir.Value) -> ir.Value:
        return self.lanes.min(self.lanes.max(self.low, multiples), self.high)

    def divided(self, values: ir.Value) -> ir.Value:
        """Return values as multiples of the scale."""
        return self.lanes.div(values, self.scale)

    def value(self, rounded: ir.Value) -> ir.Value:
        """Return the values of what has been rounded."""
        return self.lanes.mul(self.lanes.sub(rounded, HALVES), self.scale)

    def code(self, rounded: ir.Value) -> ir.Value:
        """Return the bytes of what has been rounded, the least code as 0."""
        return self.lanes.builder.trunc(self.code_words(rounded), ir.VectorType(BYTE, self.lanes.width))

    def code_words(self, rounded: ir.Value) -> ir.Value:
        """Return the same as integers of 32 bits."""
        return self.lanes.builder.add(self.lanes.bits(rounded), self.offset)


SIGN: Final = 0x80
"""The bit by which codes of both kinds differ."""

WIDEST_COPY: Final = 64

TESTED_VECTORS: Final = 4
"""Vectors of floats that are rounded together."""


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


def quantizing(code: Code, features: int, *, signed: bool = False) -> ir.Function:
    """Return `void (x, x stride, y, y stride, bounds, rows)`, strides in bytes: rows of floats to rows of codes.

    The least code is 0; where codes are `signed`, they are written as these.
    """
    width = code.target.lanes if features >= code.target.lanes else 1
    # some vectors have one test together of whether all products tell
    vectors = min(TESTED_VECTORS, features // width)

    @code.kernel(f"quantize_{features}{'_signed' if signed else ''}")
    def kernel(x: Strided, y: Strided, bounds: Bytes, rows: Number) -> None:
        lanes = code.lanes(rows, width)
        rounding = Rounding.read(lanes, bounds)
        with loop(rows) as row:
            source, target = x.row(row).address.cast(Floats), y.row(row).address
            with loop(rows.constant(features), width * vectors) as start:
                # the last vectors lie over those before, so that nothing behind the row is read
                first = start.smaller(features - width * vectors)
                places = [first + width * vector for vector in range(vectors)]
                rounded = rounding.quotients([lanes.load(source.at(place)) for place in places])
                for place, one in zip(places, rounded, strict=True):
                    codes = rounding.code(one)
                    target.at(place).store(other_kind(rows.builder, codes) if signed else codes, 1)

    return kernel


def values_of_codes(code: Code, features: int, *, signed: bool) -> ir.Function:
    """Return `void (x, x stride, y, y stride, bounds, rows)`, strides in bytes: rows of codes to rows of floats."""
    width = code.target.lanes if features >= code.target.lanes else 1

    @code.kernel(f"values_of_codes_{features}{'_signed' if signed else ''}")
    def kernel(x: Strided, y: Strided, bounds: Bytes, rows: Number) -> None:
        lanes, builder = code.lanes(rows, width), rows.builder
        rounding = Rounding.read(lanes, bounds)
        with loop(rows) as row:
            source, target = x.row(row).address, y.row(row).address.cast(Floats)
            with loop(rows.constant(features), width) as start:
                # the last vector lies over the one before, so that nothing behind the row is written
                first = start.smaller(features - width)
                codes = source.at(first).load(ir.VectorType(BYTE, width), 1)
                codes = other_kind(builder, codes) if signed else codes
                words = builder.zext(codes, lanes.int_vector)
                steps = builder.sub(words, broadcast(builder, rounding.zero.value, width))
                lanes.store(lanes.mul(lanes.to_float(steps), rounding.scale), target.at(first))

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
