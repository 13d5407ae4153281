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
from ...dialect.ops.graphs import LOWEST
from ..kernels.kernel_form import activated, activation_key
from ..llvm.builder import Code
from ..llvm.flow import fold, loop, select
from ..llvm.values import ALIGNMENT, FLOAT_BYTES, Floats, Ints, Longs, Number
from ..llvm.vectors import Lanes
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

    of_targets: Ints
    of_all: Number


class Edges(NamedTuple):
    """Addresses of edges, as `redpebble.lowering.graphs.packing` packs them, or, with `last`, as a call sorts them."""

    pointers: Longs | Ints
    sources: Ints
    weights: Floats
    last: LastEdge | None = None
    targets: Ints | None = None
    """Address of the targets in their order; None for that of their numbers."""

    def row_of(self, place: Number) -> Number:
        """Return the target at a place of the order."""
        return place if self.targets is None else self.targets[place]

    def of_target(self, target: Number) -> tuple[Number, Number]:
        """Return the first edge of a target, and the one behind its last."""
        if self.last is None:
            following = target + 1
            return self.pointers[target], self.pointers[following]
        return self.pointers[target], self.last.of_targets[target]

    def ahead(self, index: Number) -> Number:
        """Return an edge to fetch; behind the last one, packed edges have room."""
        ahead = index + AHEAD
        return ahead if self.last is None else ahead.smaller(self.last.of_all)


class NodeValues(NamedTuple):
    """Addresses of what nodes have, of the bias, and of the result."""

    x: Floats
    bias: Floats
    y: Floats


class Range(NamedTuple):
    """Targets from `begin` to the one before `end`."""

    begin: Number
    end: Number


def aggregate_targets(code: Code, form: AggregateForm) -> ir.Function:
    """Return `void (x, bias, y, pointers, sources, weights, order, begin, end)`: targets from place `begin` on."""

    @code.kernel(form.key)
    def kernel(
        values: NodeValues, pointers: Longs, sources: Ints, weights: Floats, order: Ints, targets: Range
    ) -> None:
        edges = Edges(pointers, sources, weights, None, order if form.walks else None)
        aggregate_rows(code, form, edges, values, targets)

    return kernel


def aggregate_rows(code: Code, form: AggregateForm, edges: Edges, values: NodeValues, targets: Range) -> None:
    """Emit the sums of some targets."""
    with loop(targets.end - targets.begin) as done:
        target = targets.begin + done
        row = values.y.at(edges.row_of(target) * form.features)
        for group in pieces_of(form.features, code.target.lanes):
            sums = _Sums(code, form, group)
            sums.store(sums.over(edges, values.x, target), values.bias, row)


@dataclass(frozen=True)
class _Sums:
    """The sums of one target over some of its features."""

    code: Code
    form: AggregateForm
    pieces: Sequence[Piece]

    def over(self, edges: Edges, x: Floats, target: Number) -> list[ir.Value]:
        """Return the sums over the edges of a target."""
        first, end = edges.of_target(target)
        lanes = [self.code.lanes(x, piece.width) for piece in self.pieces]

        def edge(index: Number, sums: list[ir.Value]) -> list[ir.Value]:
            source = self._features(x, edges.sources[index])
            if self.form.fetches:
                self._features(x, edges.sources[edges.ahead(index)]).fetch(self._lines())
            weight = edges.weights[index]
            return [
                self._added(vectors, weight, source.at(piece.first - self.pieces[0].first), total)
                for vectors, piece, total in zip(lanes, self.pieces, sums, strict=True)
            ]

        start = LOWEST if self.form.maximum else 0.0
        sums = fold(end, [vectors.splat(start) for vectors in lanes], edge, start=first)
        if not self.form.maximum:
            return sums
        # a target without edges has zeros
        is_alone = first == end
        return [select(is_alone, vectors.splat(0.0), value) for vectors, value in zip(lanes, sums, strict=True)]

    def store(self, sums: Sequence[ir.Value], bias: Floats, row: Floats) -> None:
        """Write what becomes of the sums."""
        for piece, value in zip(self.pieces, sums, strict=True):
            lanes = self.code.lanes(row, piece.width)
            if self.form.biased:
                value = lanes.add(value, lanes.load(bias.at(piece.first)))
            lanes.store(activated(lanes, self.form.activation, [value])[0], row.at(piece.first))

    def _added(self, lanes: Lanes, weight: ir.Value, source: Floats, total: ir.Value) -> ir.Value:
        features = lanes.load(source)
        if self.form.maximum:
            # the first operand's NaN is kept by max, and so is that of the edge
            larger = lanes.max(total, features)
            return lanes.select(lanes.is_nan(features), features, larger)
        return lanes.fma(lanes.splat(weight), features, total)

    def _features(self, x: Floats, node: Number) -> Floats:
        """Return the address of the first of these features of a node."""
        return x.at(node * self.form.features + self.pieces[0].first)

    def _lines(self) -> int:
        count = sum(piece.width for piece in self.pieces)
        return min(MOST_LINES, -(-count * FLOAT_BYTES // ALIGNMENT))
