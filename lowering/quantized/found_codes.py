"""Codes that are found at each call: the range of a tensor, their scale and zero, and what these make of a layer.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).

low[4], high[4]   vectors of 4 running minima and maxima, which meet at the end
scale             (high - low) / 255, or 1 where all values are 0
zero              the nearest integer to -low / scale, ties to even
"""

from functools import reduce
from typing import Final, NamedTuple

from llvmlite import ir

from ..llvm.builder import Code
from ..llvm.flow import fold, loop
from ..llvm.gather_scatter import load_ints
from ..llvm.quotients import HALVES
from ..llvm.values import FLOAT_BYTES, I32, Bytes, Floats, Ints, Number
from ..llvm.vectors import Lanes

BOUNDS_BYTES: Final = 64
"""Bytes that the words of `CodeBounds` take at most."""

RUNNING_VECTORS: Final = 4
"""Vectors whose minima and maxima are found at once."""


_Bounds = tuple[list[ir.Value], list[ir.Value]]
"""Running minima and maxima."""


class FoundCodes(NamedTuple):
    """Addresses of what was found: the words of `CodeBounds`, the bias of sums, and their multiplier."""

    bounds: Bytes
    bias: Ints
    multiplier: Floats

    @staticmethod
    def at(memory: Bytes, outputs: int) -> "FoundCodes":
        """Return the places for a layer of so many outputs, padded to whole vectors, in memory."""
        bias = memory.after(BOUNDS_BYTES).cast(Ints)
        return FoundCodes(memory, bias, memory.after(BOUNDS_BYTES + FLOAT_BYTES * outputs).cast(Floats))


def found_bytes(outputs: int) -> int:
    """Return the bytes of what is found for so many outputs, padded to whole vectors."""
    return BOUNDS_BYTES + 2 * FLOAT_BYTES * outputs


def find_codes(code: Code, lanes: int) -> ir.Function:
    """Return `void (x, number of values, sums of weights, multiplier, outputs, bounds, bias, multiplier)`.

    The last three are addresses of results; outputs are padded to whole vectors.
    """

    @code.kernel(f"find_codes_{lanes}")
    def kernel(x: Floats, count: Number, sums: Ints, multiplier: Floats, outputs: Number, found: FoundCodes) -> None:
        builder, single, wide = x.builder, code.lanes(x, 1), code.lanes(x, lanes)
        # scale and zero of the range, in vectors of one lane
        low, high = _range(wide, single, x, count)
        is_zero = single.compare("==", low, high)
        scale = single.select(is_zero, single.splat(1.0), single.div(single.sub(high, low), 255.0))
        bounded = single.min(single.max(0.0, single.neg(single.div(low, scale))), 255.0)
        zero = single.sub(single.add(bounded, HALVES), HALVES)
        code_of_zero = builder.fptosi(zero, single.int_vector)
        # the words of `CodeBounds`
        words = (single.neg(zero), single.sub(255.0, zero), scale, single.div(1.0, scale), code_of_zero)
        for index, word in enumerate(words):
            found.bounds.after(FLOAT_BYTES * index).store(word, FLOAT_BYTES)
        # bias and multiplier of all outputs
        every_scale = wide.splat(builder.extract_element(scale, ir.Constant(I32, 0)))
        zeros = wide.splat(builder.extract_element(zero, ir.Constant(I32, 0)))
        every_less = builder.sub(wide.ints(code.target.code_center), builder.fptosi(zeros, wide.int_vector))
        with loop(outputs, lanes) as output:
            weights = load_ints(wide, sums.at(output))
            found.bias.at(output).store(builder.mul(weights, every_less), FLOAT_BYTES)
            product = wide.mul(wide.load(multiplier.at(output)), every_scale)
            wide.store(product, found.multiplier.at(output))

    return kernel


def _range(lanes: Lanes, single: Lanes, x: Floats, count: Number) -> tuple[ir.Value, ir.Value]:
    """Return the least and the greatest of some values and 0, vectors of one lane."""
    block = RUNNING_VECTORS * lanes.width
    blocks = count // block

    def step(index: Number, before: _Bounds) -> _Bounds:
        start = index * block
        offsets = [start + lanes.width * vector for vector in range(RUNNING_VECTORS)]
        values = [lanes.load(x.at(offset)) for offset in offsets]
        # a NaN is no bound
        lows = [lanes.min(low, value) for low, value in zip(before[0], values, strict=True)]
        return lows, [lanes.max(high, value) for high, value in zip(before[1], values, strict=True)]

    nothing = [lanes.splat(0.0)] * RUNNING_VECTORS
    lows, highs = fold(blocks, (nothing, nothing), step)
    low, high = reduce(lanes.min, lows), reduce(lanes.max, highs)
    first = single.neg(single.splat(lanes.horizontal_max(lanes.neg(low)))), single.splat(lanes.horizontal_max(high))

    def one(index: Number, before: tuple[ir.Value, ir.Value]) -> tuple[ir.Value, ir.Value]:
        value = single.load(x.at(index))
        return single.min(before[0], value), single.max(before[1], value)

    # what is left behind the last block
    return fold(count, first, one, start=blocks * block)
