"""Scores to weights, for a block of keys: the softmax as far as it can be known.

Registers, one lane a query, V vectors of queries v, keys t of the block one after the other:

    m[v]  = max(highest[v], s[0][v], s[1][v], ...)    one maximum a key
    s[t][v] = exp(s[t][v] - m[v])                     written in place; sum[v] += s[t][v]
    correction[v] = exp(highest[v] - m[v])            what sums over earlier blocks are to be multiplied with

A NaN among the scores of a query makes its sum NaN, as it does in a softmax at once. Where all scores are -inf so far,
0 is subtracted instead, and the sum is 0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from llvmlite import ir

from ..llvm.activations import emit_activation
from ..llvm.builder import Code
from ..llvm.flow import fold, loop
from ..llvm.transcendental import exp_of_negative
from ..llvm.values import I32, Floats, Number
from ..llvm.vectors import Lanes, int_constants
from .form import AttentionForm, Registers

Vectors = list[ir.Value]


class Sums(NamedTuple):
    """Addresses of what a block of queries has of the keys so far, a number for each query."""

    highest: Floats
    """The largest score."""
    total: Floats
    """The sum of weights."""
    correction: Floats
    """The factors of sums over earlier keys."""

    def at(self, column: Number) -> "Sums":
        """Return the addresses from a query on."""
        return Sums(*(one.at(column) for one in self))


def scores_to_weights(code: Code, width: int) -> ir.Function:
    """Return `void (scores, highest, total, correction, number of keys)`."""
    registers = Registers.of(code.target, width)

    @code.kernel(f"attention_weights_{width}")
    def kernel(scores: Floats, sums: Sums, count: Number) -> None:
        with loop(count.constant(width), registers.columns) as column:
            _Columns(code.lanes(scores), registers, width, scores.at(column)).weigh(sums.at(column), count)

    return kernel


@dataclass(frozen=True)
class _Columns:
    """Some columns of the scores, from `first` on."""

    lanes: Lanes
    registers: Registers
    width: int
    first: Floats

    def weigh(self, sums: Sums, count: Number) -> None:
        """Emit the weights of some keys."""
        lanes = self.lanes
        before = self._vectors(sums.highest)
        # a first walk for the largest scores, a second one for weights and their sums
        largest = fold(count, before, lambda key, found: _each(lanes.max, found, self._vectors(self._row(key))))
        # infinities would make NaN of their difference
        subtracted = [lanes.select(lanes.compare("==", one, -inf), 0.0, one) for one in largest]
        factors = self._powers(before, subtracted)

        def add_weights(key: Number, totals: Vectors) -> Vectors:
            row = self._row(key)
            weights = self._powers(self._vectors(row), subtracted)
            lanes.put(row, weights)
            return _each(lanes.add, totals, weights)

        start = _each(lanes.mul, self._vectors(sums.total), factors)
        lanes.put(sums.total, fold(count, start, add_weights))
        lanes.put(sums.highest, largest)
        lanes.put(sums.correction, factors)

    def _powers(self, scores: Vectors, subtracted: Vectors) -> Vectors:
        return [exp_of_negative(self.lanes, self.lanes.sub(*pair)) for pair in zip(scores, subtracted, strict=True)]

    def change(self, changed: Callable[[ir.Value, ir.Value], ir.Value], factors: Floats, count: Number) -> None:
        """Emit other values in the place of those of all keys, by a number for each query."""
        known = self._vectors(factors)
        with loop(count) as key:
            row = self._row(key)
            self.lanes.put(row, _each(changed, self._vectors(row), known))

    def _row(self, key: Number) -> Floats:
        return self.first.at(key * self.width)

    def _vectors(self, address: Floats) -> Vectors:
        return list(self.lanes.vectors(address, self.registers.vectors))


def _each(combine: Callable[[ir.Value, ir.Value], ir.Value], some: Vectors, others: Vectors) -> Vectors:
    return [combine(*pair) for pair in zip(some, others, strict=True)]


def rounded_weights(code: Code, form: AttentionForm, width: int) -> ir.Function:
    """Return `void (weights, factors, number of keys)`: weights of all keys, times a factor a query, are rounded."""
    registers = Registers.of(code.target, width)

    @code.kernel(f"attention_rounded_{form.key}_{width}")
    def kernel(weights: Floats, factors: Floats, count: Number) -> None:
        lanes = code.lanes(weights)

        def rounded(value: ir.Value, factor: ir.Value) -> ir.Value:
            weight = lanes.mul(value, factor)
            if form.nan_as_zero:
                weight = lanes.select(lanes.is_nan(weight), 0.0, weight)
            for one in form.roundings.weights:
                weight = emit_activation(lanes, one.kind, one.values, weight)
            return weight

        with loop(count.constant(width), registers.columns) as column:
            columns = _Columns(lanes, registers, width, weights.at(column))
            columns.change(rounded, factors.at(column), count)

    return kernel


def spread_mask(code: Code, width: int) -> ir.Function:
    """Return `void (mask, scores, number of keys, step)`, which makes scores[t][:] = mask[t step]."""

    @code.kernel(f"attention_mask_{width}")
    def kernel(mask: Floats, scores: Floats, count: Number, step: Number) -> None:
        lanes = code.lanes(mask)
        with loop(count) as key:
            value = lanes.splat(mask[key * step])
            lanes.put(scores.at(key * width), [value] * (width // lanes.width))

    return kernel


def repeat_scores(code: Code, width: int) -> ir.Function:
    """Return `void (scores, number of keys)`, which makes scores[t][:] = scores[0][:]."""

    @code.kernel(f"attention_repeat_{width}")
    def kernel(scores: Floats, count: Number) -> None:
        lanes = code.lanes(scores)
        with loop(count) as key:
            row = scores.at(key * width)
            lanes.put(row, (lanes.load(scores.at(start)) for start in range(0, width, lanes.width)))

    return kernel


def hide_later_keys(code: Code, width: int) -> ir.Function:
    """Return `void (scores, number of keys, distance)`: -inf wherever key t > distance + query; else what is there."""

    @code.kernel(f"attention_later_keys_{width}")
    def kernel(scores: Floats, count: Number, distance: Number) -> None:
        lanes = code.lanes(scores)
        with loop(count) as key:
            row = scores.at(key * width)
            # the first query that reads the key, against the numbers of the queries in the lanes
            first = lanes.splat_int((key - distance).narrow(I32))
            for start in range(0, width, lanes.width):
                queries, address = int_constants(range(start, start + lanes.width)), row.at(start)
                reads = lanes.builder.icmp_signed(">=", queries, first)
                known = lanes.load(address)
                lanes.store(lanes.select(reads, known, -inf), address, lanes.size)

    return kernel
