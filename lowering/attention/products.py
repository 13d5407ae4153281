"""Products of a block of queries: with keys, to scores, and of weights with values.

Registers, for R rows r and V vectors v of queries, one lane a query (R V + V + 1 of 16 or 32 registers):

    b[v]       column block of the right operand at depth x     V loads from [depth, width]
    a          left operand of row r at depth x in every lane   a broadcast for each row
    sum[r][v] += a * b[v]                                       R V fma a step of the depth

For scores a row is a key and the depth runs over its features; for values a row is a feature and the depth runs over
the keys. So keys and values are read as they lie in memory, and nothing is transposed but queries and results.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from ...dialect.attributes.activations import ActivationAttr
from ..llvm.activations import emit_activation, nearest_steps
from ..llvm.builder import Code
from ..llvm.flow import call, fold, loop
from ..llvm.values import Floats, Number
from ..llvm.vectors import Lanes
from .form import AttentionForm, Registers

Operand = Callable[[Number], Sequence[Floats]]
"""Returns the addresses of all rows of a left operand at a depth."""

Sums = list[ir.Value]
"""The vectors of the first row, then those of the second one, ..."""


def scores(code: Code, form: AttentionForm, width: int) -> ir.Function:
    """Return `void (keys, queries, scores, stride of keys, number of keys)`.

    scores[t][:] = keys[t] queries, rounded as the form says, and added to what is there where it is biased. Rows behind
    the last key may be written, up to a multiple of the rows in registers.
    """
    registers = Registers.of(code.target, width)

    @code.kernel(f"attention_scores_{form.key}_{width}")
    def kernel(keys: Floats, queries: Floats, target: Floats, stride: Number, count: Number) -> None:
        last = count - 1
        product = _Product(code.lanes(keys), registers, width)
        with loop(count.constant(width), registers.columns) as column, loop(count, registers.rows) as first:
            # rows behind the last key read it once more
            wanted = [first + row for row in range(registers.rows)]
            numbers = [last.smaller(row) for row in wanted]
            rows = [keys.at(number * stride) for number in numbers]

            def features(depth: Number, rows: Sequence[Floats] = rows) -> list[Floats]:
                return [row.at(depth) for row in rows]

            # their products with the queries, which are columns
            sums = product.sums(queries.at(column), count.constant(form.key_size), features)
            start = target.at(first * width + column)
            sums = product.rounded_products(sums, form.roundings.products)
            if form.biased:
                sums = product.added(sums, start)
            product.store(product.rounded(sums, form.roundings.scores), start)

    return kernel


def weighted_values(code: Code, form: AttentionForm, width: int) -> ir.Function:
    """Return `void (values, weights, correction, sums, stride of values, number of keys)`.

    sums[e][:] = sums[e][:] * correction + values^T[e] weights.
    """
    registers = Registers.of(code.target, width)
    # groups of features, whose sizes differ by one at most, the larger groups first
    groups = -(-form.value_size // registers.rows)
    small, larger = divmod(form.value_size, groups)

    @code.kernel(f"attention_values_{form.value_size}_{width}")
    def kernel(
        values: Floats, weights: Floats, correction: Floats, sums: Floats, stride: Number, count: Number
    ) -> None:
        first = 0
        for rows, number in ((small + 1, larger), (small, groups - larger)):
            if number:
                function = _some_values(code, width, registers._replace(rows=rows))
                with loop(count.constant(rows * number), rows) as offset:
                    feature = offset + first
                    target = sums.at(feature * width)
                    call(function, values.at(feature), weights, correction, target, stride, count)
            first += rows * number

    return kernel


def _some_values(code: Code, width: int, registers: Registers) -> ir.Function:
    """Return what `weighted_values` does for as many features as there are rows in registers."""

    @code.kernel(f"attention_some_values_{registers.rows}_{width}")
    def kernel(
        values: Floats, weights: Floats, correction: Floats, sums: Floats, stride: Number, count: Number
    ) -> None:
        product = _Product(code.lanes(values), registers, width)

        def features(key: Number) -> list[Floats]:
            value = values.at(key * stride)
            return [value.at(row) for row in range(registers.rows)]

        with loop(count.constant(width), registers.columns) as column:
            # the sums so far, corrected, stay in registers while all keys of the block pass
            start = sums.at(column)
            initial = product.scaled(start, correction.at(column))
            product.store(product.sums(weights.at(column), count, features, initial), start)

    return kernel


@dataclass(frozen=True)
class _Product:
    """The sums in registers, for some columns of arrays [rows, width]."""

    lanes: Lanes
    registers: Registers
    width: int

    def sums(self, right: Floats, count: Number, left: Operand, initial: Sums | None = None) -> Sums:
        """Return the sums over `count` steps of the depth, added to the initial ones."""
        lanes, registers = self.lanes, self.registers

        def step(depth: Number, known: Sums) -> Sums:
            vectors = self._vectors(right.at(depth * self.width))
            return lanes.add_outer(known, (address[0] for address in left(depth)), vectors)

        return fold(count, initial or [lanes.splat(0.0)] * (registers.rows * registers.vectors), step)

    def _vectors(self, address: Floats) -> list[ir.Value]:
        return list(self.lanes.vectors(address, self.registers.vectors))

    def _rows(self, start: Floats) -> list[Floats]:
        return [start.at(row * self.width) for row in range(self.registers.rows)]

    def added(self, sums: Sums, start: Floats) -> Sums:
        """Return the sums of sums and of what lies in their memory."""
        there = [vector for row in self._rows(start) for vector in self._vectors(row)]
        return [self.lanes.add(one, other) for one, other in zip(sums, there, strict=True)]

    def scaled(self, start: Floats, factors: Floats) -> Sums:
        """Return what lies in the memory of the sums, each column times its factor."""
        vectors = self._vectors(factors)
        return [
            self.lanes.mul(value, factor)
            for row in self._rows(start)
            for value, factor in zip(self._vectors(row), vectors, strict=True)
        ]

    def rounded_products(self, sums: Sums, roundings: Sequence[ActivationAttr]) -> Sums:
        """Return the products of sums that count steps of the first codes, rounded."""
        if not roundings:
            return sums
        lanes, (first, *others) = self.lanes, roundings
        scale, zero = first.values
        return self.rounded([lanes.mul(nearest_steps(lanes, one, zero), scale) for one in sums], others)

    def rounded(self, sums: Sums, roundings: Sequence[ActivationAttr]) -> Sums:
        """Return the sums, rounded to codes."""
        for one in roundings:
            sums = [emit_activation(self.lanes, one.kind, one.values, value) for value in sums]
        return sums

    def store(self, sums: Sums, start: Floats) -> None:
        """Write the sums to memory."""
        vectors = self.registers.vectors
        for row, address in enumerate(self._rows(start)):
            self.lanes.put(address, sums[row * vectors : (row + 1) * vectors])
