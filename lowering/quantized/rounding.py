"""Floats to codes: bounded, rounded to the nearest (to the even one of two), stored as bytes or as floats again."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.lowering.llvm.builder import FLOAT_BYTES, I32, byte_at, i64
from redpebble.lowering.llvm.vectors import FLOAT, Lanes

HALVES: Final = 12582912.0
"""1.5 * 2^23: what is added to a float of up to 22 bits rounds it to an integer, which its last bits are then."""

HALVES_BITS: Final = 0x4B400000


class CodeBounds(NamedTuple):
    """Words by which code knows codes, as floats but for the last one."""

    low: float
    high: float
    scale: float
    unsigned_zero: int

    @staticmethod
    def of(codes: CodesAttr, *, positive: bool = False) -> "CodeBounds":
        """Return the bounds of code - zero; none below 0 where values are to be `positive`."""
        low = 0 if positive else codes.least - codes.zero
        return CodeBounds(low, codes.greatest - codes.zero, codes.scale, codes.unsigned_zero)

    def words(self) -> NDArray[np.int32]:
        """Return them as code reads them."""
        floats = np.array([self.low, self.high, self.scale], dtype=np.float32)
        return np.append(floats.view(np.int32), np.int32(self.unsigned_zero)).astype(np.int32)


@dataclass(frozen=True)
class Rounding:
    """The vectors that rounding needs, read from the words of `CodeBounds`."""

    lanes: Lanes
    words: ir.Value

    def rounded(self, multiples: ir.Value) -> ir.Value:
        """Return `HALVES` and the nearest integer within bounds of multiples of the scale; a NaN is the least one."""
        lanes = self.lanes
        within = lanes.min(lanes.max(self._float(0), multiples), self._float(1))
        return lanes.add(within, HALVES)

    def divided(self, values: ir.Value) -> ir.Value:
        """Return values as multiples of the scale."""
        return self.lanes.div(values, self._float(2))

    def value(self, rounded: ir.Value) -> ir.Value:
        """Return the values of what has been rounded."""
        return self.lanes.mul(self.lanes.sub(rounded, HALVES), self._float(2))

    def code(self, rounded: ir.Value) -> ir.Value:
        """Return the bytes of what has been rounded, the least code as 0."""
        lanes, builder = self.lanes, self.lanes.builder
        zero = builder.load(byte_at(builder, self.words, i64(3 * FLOAT_BYTES)), typ=I32)
        offset = builder.sub(zero, ir.Constant(I32, HALVES_BITS))
        splat = lanes.bits(lanes.splat(builder.bitcast(offset, FLOAT)))
        codes = builder.add(lanes.bits(rounded), splat)
        return builder.trunc(codes, ir.VectorType(ir.IntType(8), lanes.width))

    def _float(self, index: int) -> ir.Value:
        builder = self.lanes.builder
        return self.lanes.splat(builder.load(byte_at(builder, self.words, i64(FLOAT_BYTES * index)), typ=FLOAT))
