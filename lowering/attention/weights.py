"""Scores to weights, for a block of keys: the softmax as far as it can be known.

Registers, one lane a query, V vectors of queries v, keys t of the block one after the other:

    m[v]  = max(highest[v], s[0][v], s[1][v], ...)    one maximum a key
    s[t][v] = exp(s[t][v] - m[v])                     written in place; sum[v] += s[t][v]
    correction[v] = exp(highest[v] - m[v])            what sums over earlier blocks are to be multiplied with

A NaN among the scores of a query makes its sum NaN, as it does in a softmax at once. Where all scores are -inf so far,
0 is subtracted instead, and the sum is 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from llvmlite import ir

from ..llvm.activations import emit_activation
from ..llvm.builder import (
    FLOAT_BYTES,
    I32,
    I64,
    POINTER,
    Code,
    counted_loop,
    float_at,
    i64,
    reduce_loop,
)
from ..llvm.transcendental import exp_of_negative
from ..llvm.vectors import FLOAT, Lanes, int_constants
from .form import AttentionForm, Registers


def scores_to_weights(code: Code, width: int) -> ir.Function:
    """Return `void (scores, highest, total, correction, number of keys)`."""
    registers = Registers.of(code.target, width)

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        scores, *states, count = args
        with counted_loop(builder, i64(width), registers.columns) as column:
            columns = _Columns(builder, code.lanes(builder), registers, width, float_at(builder, scores, column))
            columns.weigh([float_at(builder, state, column) for state in states], count)

    return code.function(f"attention_weights_{width}", [POINTER] * 4 + [I64], body)


@dataclass(frozen=True)
class _Columns:
    """Some columns of the scores, from `first` on."""

    builder: ir.IRBuilder
    lanes: Lanes
    registers: Registers
    width: int
    first: ir.Value

    def weigh(self, states: Sequence[ir.Value], count: ir.Value) -> None:
        """Emit the weights of some keys; `states` are the addresses of largest score, sum and correction."""
        lanes, (highest, total, correction) = self.lanes, states
        before = self._vectors(highest)
        largest = reduce_loop(self.builder, count, before, lambda key, found: self._pairwise(lanes.max, found, key))
        # infinities would make NaN of their difference
        subtracted = [lanes.select(lanes.compare("==", one, -inf), 0.0, one) for one in largest]
        factors = [exp_of_negative(lanes, lanes.sub(*pair)) for pair in zip(before, subtracted, strict=True)]

        def powers(key: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
            row = self._row(key)
            scores = zip(self._vectors(row), subtracted, strict=True)
            weights = [exp_of_negative(lanes, lanes.sub(*pair)) for pair in scores]
            self._store(weights, row)
            return [lanes.add(*pair) for pair in zip(sums, weights, strict=True)]

        start = [lanes.mul(*pair) for pair in zip(self._vectors(total), factors, strict=True)]
        self._store(reduce_loop(self.builder, count, start, powers), total)
        self._store(largest, highest)
        self._store(factors, correction)

    def change(self, changed: Callable[[ir.Value, ir.Value], ir.Value], factors: ir.Value, count: ir.Value) -> None:
        """Emit other values in the place of those of all keys, by a number for each query."""
        known = self._vectors(factors)
        with counted_loop(self.builder, count) as key:
            row = self._row(key)
            self._store([changed(*pair) for pair in zip(self._vectors(row), known, strict=True)], row)

    def _pairwise(
        self, combine: Callable[[ir.Value, ir.Value], ir.Value], found: Sequence[ir.Value], key: ir.Value
    ) -> list[ir.Value]:
        return [combine(*pair) for pair in zip(found, self._vectors(self._row(key)), strict=True)]

    def _row(self, key: ir.Value) -> ir.Value:
        return float_at(self.builder, self.first, self.builder.mul(key, i64(self.width)))

    def _vectors(self, address: ir.Value) -> list[ir.Value]:
        return [self.lanes.load(memory, FLOAT_BYTES * self.lanes.width) for memory in self._addresses(address)]

    def _store(self, values: Sequence[ir.Value], address: ir.Value) -> None:
        for value, memory in zip(values, self._addresses(address), strict=True):
            self.lanes.store(value, memory, FLOAT_BYTES * self.lanes.width)

    def _addresses(self, address: ir.Value) -> list[ir.Value]:
        starts = range(0, self.registers.columns, self.registers.lanes)
        return [float_at(self.builder, address, i64(start)) for start in starts]


def rounded_weights(code: Code, form: AttentionForm, width: int) -> ir.Function:
    """Return `void (weights, factors, number of keys)`: weights of all keys, times a factor a query, are rounded."""
    registers = Registers.of(code.target, width)
    nothing = form.nan_as_zero

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        weights, factors, count = args
        lanes = code.lanes(builder)

        def rounded(value: ir.Value, factor: ir.Value) -> ir.Value:
            weight = lanes.mul(value, factor)
            weight = lanes.select(lanes.is_nan(weight), 0.0, weight) if nothing else weight
            for one in form.roundings.weights:
                weight = emit_activation(lanes, one.kind, one.values, weight)
            return weight

        with counted_loop(builder, i64(width), registers.columns) as column:
            columns = _Columns(builder, lanes, registers, width, float_at(builder, weights, column))
            columns.change(rounded, float_at(builder, factors, column), count)

    return code.function(f"attention_rounded_{form.key}_{width}", [POINTER] * 2 + [I64], body)


def spread_mask(code: Code, width: int) -> ir.Function:
    """Return `void (mask, scores, number of keys, step)`, which makes scores[t][:] = mask[t step]."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        mask, scores, count, step = args
        lanes = code.lanes(builder)
        with counted_loop(builder, count) as key:
            value = lanes.splat(builder.load(float_at(builder, mask, builder.mul(key, step)), typ=FLOAT))
            row = float_at(builder, scores, builder.mul(key, i64(width)))
            for start in range(0, width, lanes.width):
                lanes.store(value, float_at(builder, row, i64(start)), FLOAT_BYTES * lanes.width)

    return code.function(f"attention_mask_{width}", [POINTER] * 2 + [I64] * 2, body)


def repeat_scores(code: Code, width: int) -> ir.Function:
    """Return `void (scores, number of keys)`, which makes scores[t][:] = scores[0][:]."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        scores, count = args
        lanes = code.lanes(builder)
        with counted_loop(builder, count) as key:
            row = float_at(builder, scores, builder.mul(key, i64(width)))
            for start in range(0, width, lanes.width):
                value = lanes.load(float_at(builder, scores, i64(start)))
                lanes.store(value, float_at(builder, row, i64(start)), FLOAT_BYTES * lanes.width)

    return code.function(f"attention_repeat_{width}", [POINTER, I64], body)


def hide_later_keys(code: Code, width: int) -> ir.Function:
    """Return `void (scores, number of keys, distance)`: -inf wherever key t > distance + query; else what is there."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        scores, count, distance = args
        lanes = code.lanes(builder)
        with counted_loop(builder, count) as key:
            row = float_at(builder, scores, builder.mul(key, i64(width)))
            first = builder.trunc(builder.sub(key, distance), I32)
            undefined = ir.Constant(lanes.int_vector, ir.Undefined)
            one = builder.insert_element(undefined, first, ir.Constant(I32, 0))
            every = builder.shuffle_vector(one, undefined, lanes.ints(0))
            for start in range(0, width, lanes.width):
                query = int_constants(range(start, start + lanes.width))
                memory = float_at(builder, row, i64(start))
                reads = builder.icmp_signed(">=", query, every)
                lanes.store(lanes.select(reads, lanes.load(memory), -inf), memory, FLOAT_BYTES * lanes.width)

    return code.function(f"attention_later_keys_{width}", [POINTER, I64, I64], body)
