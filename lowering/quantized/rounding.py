"""Floats to codes: bounded, rounded to the nearest (to the even one of two), stored as bytes or as floats again."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from ...dialect.attributes.codes import CodesAttr
from ..llvm.quotients import HALVES, rounded_quotient
from ..llvm.values import BYTE, FLOAT, I32, Bytes, Floats, Ints, Number
from ..llvm.vectors import Lanes

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
        return rounded_quotient(self.lanes, values, (self.scale, self.inverse), self._within)

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
