"""Sums over the edges of nodes: y[t] = activation(sum of weight x[s] over the edges s -> t + bias).

Registers, for V vectors of features (V + 2 of 16 or 32 registers):

    w          weight of the edge in every lane        a broadcast for each edge
    sum[v]    += w * x[s][v]                           V fma for each edge, x[s] from memory

The features of a node lie side by side, so nothing is transposed. Where the values of all nodes are more than the
second-level cache holds, those of the edge some places ahead are fetched meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from llvmlite import ir

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.graphs.aggregate import LOWEST
from ..kernels.kernel_form import activated, activation_key
from ..llvm.builder import (
    ALIGNMENT,
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
from ..llvm.prefetch import fetch_lines
from ..llvm.vectors import FLOAT, Lanes
from .packing import AHEAD

SUMS: Final = {16: 16, 8: 8, 4: 8}
"""Vectors of sums that stay in registers, by the floats of one."""

MOST_LINES: Final = 8
"""Cache lines of a node that are fetched ahead: hardware follows by itself from there."""


@dataclass(frozen=True)
class AggregateForm:
    """Form of the code: features of a node, and what becomes of the edges."""

    features: int
    activation: ActivationAttr | None
    biased: bool
    maximum: bool
    fetches: bool
    """Whether values are fetched ahead."""
    walks: bool = False
    """Whether targets have another order than their numbers."""

    @property
    def key(self) -> str:
        """A name for functions of this form."""
        known = {"b": self.biased, "m": self.maximum, "f": self.fetches, "w": self.walks}
        flags = "".join(letter for letter, is_set in known.items() if is_set)
        return f"aggregate_{self.features}_{activation_key(self.activation)}_{flags}"


class Piece(NamedTuple):
    """A vector of features: the first one, and how many."""

    first: int
    width: int


def pieces_of(features: int, lanes: int) -> list[list[Piece]]:
    """Return the vectors that cover all features once, in groups whose sums stay in registers."""
    pieces: list[Piece] = []
    first, width = 0, lanes
    while first < features:
        while first + width > features:
            width //= 2
        pieces.append(Piece(first, width))
        first += width
    return [pieces[start : start + SUMS[lanes]] for start in range(0, len(pieces), SUMS[lanes])]


class LastEdge(NamedTuple):
    """The ends of sorted edges: the one behind the last edge of each target, and the last one of all."""

    of_targets: ir.Value
    of_all: ir.Value


class Edges(NamedTuple):
    """Addresses of edges, as `redpebble.lowering.graphs.packing` packs them, or, with `last`, as a call sorts them."""

    pointers: ir.Value
    sources: ir.Value
    weights: ir.Value
    last: LastEdge | None = None
    targets: ir.Value | None = None
    """Address of the targets in their order; None for that of their numbers."""

    def row_of(self, builder: ir.IRBuilder, place: ir.Value) -> ir.Value:
        """Return the target at a place of the order."""
        return place if self.targets is None else builder.zext(integer_at(builder, self.targets, place, I32), I64)

    def of_target(self, builder: ir.IRBuilder, target: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return the first edge of a target, and the one behind its last."""
        if self.last is None:
            following = builder.add(target, i64(1))
            return integer_at(builder, self.pointers, target, I64), integer_at(builder, self.pointers, following, I64)
        first, end = (integer_at(builder, table, target, I32) for table in (self.pointers, self.last.of_targets))
        return builder.zext(first, I64), builder.zext(end, I64)

    def ahead(self, builder: ir.IRBuilder, index: ir.Value) -> ir.Value:
        """Return an edge to fetch; behind the last one, packed edges have room."""
        ahead = builder.add(index, i64(AHEAD))
        if self.last is None:
            return ahead
        return builder.select(builder.icmp_signed("<", ahead, self.last.of_all), ahead, self.last.of_all)


def aggregate_targets(code: Code, form: AggregateForm) -> ir.Function:
    """Return `void (x, bias, y, pointers, sources, weights, order, begin, end)`: targets from place `begin` on."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, bias, y, pointers, sources, weights, order, *targets = args
        values, edges = NodeValues(x, bias, y), Edges(pointers, sources, weights, None, order if form.walks else None)
        aggregate_rows(Kernel(code, builder, form), edges, values, Range(*targets))

    return code.function(form.key, [POINTER] * 7 + [I64] * 2, body)


class NodeValues(NamedTuple):
    """Addresses of what nodes have, of the bias, and of the result."""

    x: ir.Value
    bias: ir.Value
    y: ir.Value


class Range(NamedTuple):
    """Targets from `begin` to the one before `end`."""

    begin: ir.Value
    end: ir.Value


class Kernel(NamedTuple):
    """A function of a form under construction."""

    code: Code
    builder: ir.IRBuilder
    form: AggregateForm


def aggregate_rows(kernel: Kernel, edges: Edges, values: NodeValues, targets: Range) -> None:
    """Emit the sums of some targets."""
    code, builder, form = kernel
    with counted_loop(builder, builder.sub(targets.end, targets.begin)) as done:
        target = builder.add(targets.begin, done)
        row = float_at(builder, values.y, builder.mul(edges.row_of(builder, target), i64(form.features)))
        for group in pieces_of(form.features, code.target.lanes):
            sums = _Sums(code, builder, form, group)
            sums.store(sums.over(edges, values.x, target), values.bias, row)


@dataclass(frozen=True)
class _Sums:
    """The sums of one target over some of its features."""

    code: Code
    builder: ir.IRBuilder
    form: AggregateForm
    pieces: Sequence[Piece]

    def over(self, edges: Edges, x: ir.Value, target: ir.Value) -> list[ir.Value]:
        """Return the sums over the edges of a target."""
        builder = self.builder
        first, end = edges.of_target(builder, target)

        def edge(index: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
            source = self._row(edges, x, index)
            if self.form.fetches:
                ahead = self._row(edges, x, edges.ahead(builder, index))
                fetch_lines(builder, self._at(ahead, 0), self._lines())
            weight = builder.load(float_at(builder, edges.weights, index), typ=FLOAT)
            return [self._added(weight, source, *pair) for pair in zip(range(len(sums)), sums, strict=True)]

        start = LOWEST if self.form.maximum else 0.0
        sums = reduce_loop(builder, end, [self._lanes(piece).splat(start) for piece in self.pieces], edge, start=first)
        if not self.form.maximum:
            return sums
        is_alone = builder.icmp_signed("==", first, end)
        return [
            builder.select(is_alone, self._lanes(piece).splat(0.0), value)
            for piece, value in zip(self.pieces, sums, strict=True)
        ]

    def store(self, sums: Sequence[ir.Value], bias: ir.Value, row: ir.Value) -> None:
        """Write what becomes of the sums."""
        for piece, value in zip(self.pieces, sums, strict=True):
            lanes, offset = self._lanes(piece), i64(piece.first)
            if self.form.biased:
                value = lanes.add(value, lanes.load(float_at(self.builder, bias, offset)))
            lanes.store(activated(lanes, self.form.activation, [value])[0], float_at(self.builder, row, offset))

    def _added(self, weight: ir.Value, source: ir.Value, number: int, value: ir.Value) -> ir.Value:
        lanes = self._lanes(self.pieces[number])
        features = lanes.load(self._at(source, self.pieces[number].first - self.pieces[0].first))
        if self.form.maximum:
            # the first operand's NaN is kept by max, and so is that of the edge
            larger = lanes.max(value, features)
            return lanes.select(lanes.is_nan(features), features, larger)
        return lanes.fma(lanes.splat(weight), features, value)

    def _row(self, edges: Edges, x: ir.Value, index: ir.Value) -> ir.Value:
        """Return the address of the first of these features at the source of an edge."""
        source = self.builder.zext(integer_at(self.builder, edges.sources, index, I32), I64)
        offset = self.builder.add(self.builder.mul(source, i64(self.form.features)), i64(self.pieces[0].first))
        return float_at(self.builder, x, offset)

    def _at(self, row: ir.Value, feature: int) -> ir.Value:
        return float_at(self.builder, row, i64(feature))

    def _lines(self) -> int:
        count = sum(piece.width for piece in self.pieces)
        return min(MOST_LINES, -(-count * FLOAT_BYTES // ALIGNMENT))

    def _lanes(self, piece: Piece) -> Lanes:
        return self.code.lanes(self.builder, piece.width)


def integer_at(builder: ir.IRBuilder, table: ir.Value, index: ir.Value, kind: ir.IntType) -> ir.Value:
    """Return an entry of a table of integers."""
    return builder.load(builder.gep(table, [index], source_etype=kind), typ=kind)
