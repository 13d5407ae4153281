"""Codes that are found at each call: the range of a tensor, their scale and zero, and what these make of a layer.

low[4], high[4]   vectors of 4 running minima and maxima, which meet at the end
scale             (high - low) / 255, or 1 where all values are 0
zero              the nearest integer to -low / scale, ties to even
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from llvmlite import ir

from ..llvm.builder import (
    FLOAT_BYTES,
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
from ..llvm.quotients import HALVES
from ..llvm.vectors import Lanes

BOUNDS_BYTES: Final = 64
"""Bytes that the words of `CodeBounds` take at most."""

RUNNING_VECTORS: Final = 4
"""Vectors whose minima and maxima are found at once."""


class FoundCodes(NamedTuple):
    """Addresses of what was found: the words of `CodeBounds`, the bias of sums, and their multiplier."""

    bounds: ir.Value
    bias: ir.Value
    multiplier: ir.Value

    @staticmethod
    def at(builder: ir.IRBuilder, memory: ir.Value, outputs: int) -> "FoundCodes":
        """Return the places for a layer of so many outputs, padded to whole vectors, in memory."""
        offsets = (0, BOUNDS_BYTES, BOUNDS_BYTES + FLOAT_BYTES * outputs)
        return FoundCodes(*(byte_at(builder, memory, i64(offset)) for offset in offsets))


def found_bytes(outputs: int) -> int:
    """Return the bytes of what is found for so many outputs, padded to whole vectors."""
    return BOUNDS_BYTES + 2 * FLOAT_BYTES * outputs


def find_codes(code: Code, lanes: int) -> ir.Function:
    """Return `void (x, number of values, sums of weights, multiplier, outputs, bounds, bias, multiplier)`.

    The last three are addresses of results; outputs are padded to whole vectors.
    """

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, count, sums, multiplier, outputs = args[:5]
        found = FoundCodes(*args[5:])
        single = Lanes(builder, code.target, 1)
        low, high = _range(Lanes(builder, code.target, lanes), x, count)
        is_zero = single.compare("==", low, high)
        scale = single.select(is_zero, single.splat(1.0), single.div(single.sub(high, low), 255.0))
        bounded = single.min(single.max(0.0, single.neg(single.div(low, scale))), 255.0)
        zero = single.sub(single.add(bounded, HALVES), HALVES)
        code_of_zero = builder.fptosi(zero, single.int_vector)
        # the words of `CodeBounds`
        words = (single.neg(zero), single.sub(255.0, zero), scale, single.div(1.0, scale), code_of_zero)
        for index, word in enumerate(words):
            builder.store(word, byte_at(builder, found.bounds, i64(FLOAT_BYTES * index)), align=FLOAT_BYTES)
        wide = Lanes(builder, code.target, lanes)
        every_scale = wide.splat(builder.extract_element(scale, ir.Constant(I32, 0)))
        zeros = wide.splat(builder.extract_element(zero, ir.Constant(I32, 0)))
        every_zero = builder.fptosi(zeros, wide.int_vector)
        with counted_loop(builder, outputs, lanes) as output:
            weights = builder.load(float_at(builder, sums, output), align=FLOAT_BYTES, typ=wide.int_vector)
            bias = builder.neg(builder.mul(weights, every_zero))
            builder.store(bias, float_at(builder, found.bias, output), align=FLOAT_BYTES)
            product = wide.mul(wide.load(float_at(builder, multiplier, output)), every_scale)
            wide.store(product, float_at(builder, found.multiplier, output))

    return code.function(f"find_codes_{lanes}", [POINTER, I64, POINTER, POINTER, I64, POINTER, POINTER, POINTER], body)


def _range(lanes: Lanes, x: ir.Value, count: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the least and the greatest of some values and 0, vectors of one lane."""
    builder, block = lanes.builder, RUNNING_VECTORS * lanes.width
    blocks = builder.udiv(count, i64(block))
    nothing = [lanes.splat(0.0)] * (2 * RUNNING_VECTORS)

    def step(start: ir.Value, before: Sequence[ir.Value]) -> list[ir.Value]:
        offsets = [builder.add(start, i64(lanes.width * vector)) for vector in range(RUNNING_VECTORS)]
        values = [lanes.load(float_at(builder, x, offset)) for offset in offsets]
        # a NaN is no bound
        lows = [lanes.min(low, value) for low, value in zip(before[:RUNNING_VECTORS], values, strict=True)]
        highs = [lanes.max(high, value) for high, value in zip(before[RUNNING_VECTORS:], values, strict=True)]
        return [*lows, *highs]

    ends = reduce_loop(builder, blocks, nothing, lambda index, before: step(builder.mul(index, i64(block)), before))
    low, high = ends[0], ends[RUNNING_VECTORS]
    for vector in range(1, RUNNING_VECTORS):
        low, high = lanes.min(low, ends[vector]), lanes.max(high, ends[RUNNING_VECTORS + vector])
    single = Lanes(builder, lanes.target, 1)
    first = [single.neg(single.splat(lanes.horizontal_max(lanes.neg(low)))), single.splat(lanes.horizontal_max(high))]

    def one(index: ir.Value, before: Sequence[ir.Value]) -> list[ir.Value]:
        value = single.load(float_at(builder, x, index))
        return [single.min(before[0], value), single.max(before[1], value)]

    low, high = reduce_loop(builder, count, first, one, start=builder.mul(blocks, i64(block)))
    return low, high
