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
from ..llvm.builder import (
    FLOAT_BYTES,
    I64,
    POINTER,
    Code,
    counted_loop,
    float_at,
    i64,
    reduce_loop,
)
from ..llvm.vectors import FLOAT, Lanes
from .form import AttentionForm, Registers

Operand = Callable[[ir.Value], Sequence[ir.Value]]
"""Returns the addresses of all rows of a left operand at a depth."""


def scores(code: Code, form: AttentionForm, width: int) -> ir.Function:
    """Return `void (keys, queries, scores, stride of keys, number of keys)`.

    scores[t][:] = keys[t] queries, rounded as the form says, and added to what is there where it is biased. Rows behind
    the last key may be written, up to a multiple of the rows in registers.
    """
    registers = Registers.of(code.target, width)

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        keys, queries, target, stride, count = args
        last = builder.sub(count, i64(1))
        with (
            counted_loop(builder, i64(width), registers.columns) as column,
            counted_loop(builder, count, registers.rows) as first,
        ):
            product = _Product(code, builder, registers, width)
            wanted = [builder.add(first, i64(row)) for row in range(registers.rows)]
            numbers = [builder.select(builder.icmp_signed("<", last, row), last, row) for row in wanted]
            rows = [float_at(builder, keys, builder.mul(number, stride)) for number in numbers]

            def features(depth: ir.Value, rows: Sequence[ir.Value] = rows) -> list[ir.Value]:
                return [float_at(builder, row, depth) for row in rows]

            sums = product.sums(float_at(builder, queries, column), i64(form.key_size), features)
            start = product.at(target, first, column)
            sums = product.rounded_products(sums, form.roundings.products)
            if form.biased:
                sums = product.added(sums, start)
            product.store(product.rounded(sums, form.roundings.scores), start)

    return code.function(f"attention_scores_{form.key}_{width}", [POINTER] * 3 + [I64] * 2, body)


def weighted_values(code: Code, form: AttentionForm, width: int) -> ir.Function:
    """Return `void (values, weights, correction, sums, stride of values, number of keys)`.

    sums[e][:] = sums[e][:] * correction + values^T[e] weights.
    """
    registers = Registers.of(code.target, width)
    groups = -(-form.value_size // registers.rows)
    small, larger = divmod(form.value_size, groups)

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        first = 0
        for rows, number in ((small + 1, larger), (small, groups - larger)):
            if number:
                function = _some_values(code, width, registers._replace(rows=rows))
                with counted_loop(builder, i64(rows * number), rows) as offset:
                    feature = builder.add(offset, i64(first))
                    values, weights, correction, sums, stride, count = args
                    target = float_at(builder, sums, builder.mul(feature, i64(width)))
                    builder.call(
                        function, [float_at(builder, values, feature), weights, correction, target, stride, count]
                    )
            first += rows * number

    return code.function(f"attention_values_{form.value_size}_{width}", [POINTER] * 4 + [I64] * 2, body)


def _some_values(code: Code, width: int, registers: Registers) -> ir.Function:
    """Return what `weighted_values` does for as many features as there are rows in registers."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        values, weights, correction, sums, stride, count = args
        with counted_loop(builder, i64(width), registers.columns) as column:
            product = _Product(code, builder, registers, width)
            start = product.at(sums, i64(0), column)
            initial = product.scaled(start, float_at(builder, correction, column))

            def features(depth: ir.Value) -> list[ir.Value]:
                value = float_at(builder, values, builder.mul(depth, stride))
                return [float_at(builder, value, i64(row)) for row in range(registers.rows)]

            product.store(product.sums(float_at(builder, weights, column), count, features, initial), start)

    return code.function(f"attention_some_values_{registers.rows}_{width}", [POINTER] * 4 + [I64] * 2, body)


@dataclass(frozen=True)
class _Product:
    """The sums in registers, for some columns of arrays [rows, width]."""

    code: Code
    builder: ir.IRBuilder
    registers: Registers
    width: int

    @property
    def _lanes(self) -> Lanes:
        return self.code.lanes(self.builder)

    def at(self, array: ir.Value, row: ir.Value, column: ir.Value) -> ir.Value:
        """Return the address of an entry of an array."""
        builder = self.builder
        return float_at(builder, array, builder.add(builder.mul(row, i64(self.width)), column))

    def sums(
        self, right: ir.Value, count: ir.Value, left: Operand, initial: Sequence[ir.Value] | None = None
    ) -> list[ir.Value]:
        """Return the sums over `count` steps of the depth, added to the initial ones."""
        builder, lanes = self.builder, self._lanes
        number = self.registers.rows * self.registers.vectors

        def step(depth: ir.Value, carried: Sequence[ir.Value]) -> list[ir.Value]:
            vectors = self._vectors(float_at(builder, right, builder.mul(depth, i64(self.width))))
            following: list[ir.Value] = []
            for row, address in enumerate(left(depth)):
                value = lanes.splat(builder.load(address, typ=FLOAT))
                own = carried[row * len(vectors) : (row + 1) * len(vectors)]
                following += [lanes.fma(value, vector, total) for vector, total in zip(vectors, own, strict=True)]
            return following

        return reduce_loop(builder, count, [lanes.splat(0.0)] * number if initial is None else initial, step)

    def _vectors(self, address: ir.Value) -> list[ir.Value]:
        """Return the vectors of queries at an address."""
        starts = range(0, self.registers.columns, self.registers.lanes)
        size = FLOAT_BYTES * self.registers.lanes
        return [self._lanes.load(float_at(self.builder, address, i64(start)), size) for start in starts]

    def _rows(self, start: ir.Value) -> list[ir.Value]:
        """Return the addresses of all rows from one on."""
        return [float_at(self.builder, start, i64(row * self.width)) for row in range(self.registers.rows)]

    def added(self, sums: Sequence[ir.Value], start: ir.Value) -> list[ir.Value]:
        """Return the sums of sums and of what lies in their memory."""
        there = [vector for row in self._rows(start) for vector in self._vectors(row)]
        return [self._lanes.add(one, other) for one, other in zip(sums, there, strict=True)]

    def scaled(self, start: ir.Value, factors: ir.Value) -> list[ir.Value]:
        """Return what lies in the memory of the sums, each column times its factor."""
        vectors = self._vectors(factors)
        return [
            self._lanes.mul(value, factor)
            for row in self._rows(start)
            for value, factor in zip(self._vectors(row), vectors, strict=True)
        ]

    def rounded_products(self, sums: Sequence[ir.Value], roundings: Sequence[ActivationAttr]) -> list[ir.Value]:
        """Return the products of sums that count steps of the first codes, rounded."""
        if not roundings:
            return [*sums]
        lanes, (first, *others) = self._lanes, roundings
        scale, zero = first.values
        return self.rounded([lanes.mul(nearest_steps(lanes, one, zero), scale) for one in sums], others)

    def rounded(self, sums: Sequence[ir.Value], roundings: Sequence[ActivationAttr]) -> list[ir.Value]:
        """Return the sums, rounded to codes."""
        for one in roundings:
            sums = [emit_activation(self._lanes, one.kind, one.values, value) for value in sums]
        return [*sums]

    def store(self, sums: Sequence[ir.Value], start: ir.Value) -> None:
        """Write the sums to memory."""
        size, vectors = FLOAT_BYTES * self.registers.lanes, self.registers.vectors
        for row, address in enumerate(self._rows(start)):
            for index in range(vectors):
                memory = float_at(self.builder, address, i64(index * self.registers.lanes))
                self._lanes.store(sums[row * vectors + index], memory, size)
