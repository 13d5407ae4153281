"""Sums over edges that gradients of an attention read: logarithms of totals, and weights times their slopes.

Registers, for V vectors of features and K of heads (2 V + 4 K + 2 of 16 or 32 registers):

    q[k]       = w exp(score(z[k]) - total[k])       z = from[s] + to[t], total of the target
    slope[k]   = q[k] or, where z[k] <= 0, q[k] times the slope of the score there
    sum[v]    += q[head of each lane] * x[n][v]      n is the source of a target, or the target of a source
    other[v]  += slope[head of each lane] * x[n][v]
    heads[k]  += slope[k] * d[n][k]

Rows of two numbers a head are read in halves, and a second half from no further than its row ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from llvmlite import ir
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.graphs import LOWEST
from ...dialect.ops.training.edge_slopes import EdgeSlopesOp, EdgeTotalsOp
from ...dialect.symbolic_sizes import Size
from ...dialect.tensors import shape_of
from ..kernels.kernel_form import activated
from ..llvm.builder import Code
from ..llvm.flow import call, fold, loop, select
from ..llvm.transcendental import exp, log
from ..llvm.values import FLOAT_BYTES, Floats, Ints, Longs, Number
from ..program import TiledRows, TileTime
from ..tiles.row_major import RowMajorStep
from .aggregate import SUMS, Edges, Piece, Range
from .attend import AttendForm, HeadBlock, Means, ScoredValues, head_blocks, head_width
from .packing import block_count, pack_edges
from .step import BLOCK_US, FETCH_FROM

VECTORS_OF_HEADS: Final = 4
"""Vectors of heads whose totals are summed up at a time."""


def edge_totals(code: Code, form: AttendForm) -> ir.Function:
    """Return `void (scores, y, pointers, sources, weights, begin, end)`: totals of targets from `begin` on."""

    @code.kernel(f"totals_{form.key}")
    def kernel(scores: Floats, y: Floats, pointers: Longs, sources: Ints, weights: Floats, targets: Range) -> None:
        edges, heads = Edges(pointers, sources, weights), form.softmax.heads
        width = head_width(heads, code.target.lanes)
        with loop(targets.end - targets.begin) as done:
            for first in range(0, heads, VECTORS_OF_HEADS * width):
                vectors = min(VECTORS_OF_HEADS, -(-(heads - first) // width))
                block = HeadBlock([], first, vectors, width)
                _Totals(code, form, block, edges, ScoredValues(scores, scores, scores, y)).store_totals(
                    targets.begin + done
                )

    return kernel


def edge_slopes(code: Code, form: AttendForm, *, of_sources: bool) -> ir.Function:
    """Return `void (x, scores, totals, y, pointers, neighbours, weights, begin, end)`: sums of some nodes."""

    @code.kernel(f"slopes_{'of_sources_' if of_sources else ''}{form.key}")
    def kernel(values: ScoredValues, pointers: Longs, neighbours: Ints, weights: Floats, nodes: Range) -> None:
        edges, lanes = Edges(pointers, neighbours, weights), code.target.lanes
        with loop(nodes.end - nodes.begin) as done:
            for block in head_blocks(form.features, form.softmax.heads, lanes, (SUMS[lanes] - 4) // 2):
                _Slopes(code, form, block, edges, values, of_sources).store_sums(nodes.begin + done)

    return kernel


@dataclass(frozen=True)
class _OfHeads(Means):
    """Vectors of heads in rows of one or two numbers a head."""

    def first_half(self, rows: Floats, node: Number) -> list[ir.Value]:
        """Return the first number of each head of the block in rows of two."""
        row, heads = node * (2 * self.form.softmax.heads) + self.block.first, self.heads()
        return [heads.load(rows.at(row + heads.width * number)) for number in range(self.block.vectors)]

    def second_half(self, rows: Floats, node: Number) -> list[ir.Value]:
        """Return the second number of each head of the block in rows of two."""
        return [self.second_of(rows, node, number) for number in range(self.block.vectors)]

    def whole(self, rows: Floats, node: Number) -> list[ir.Value]:
        """Return the number of each head of the block in rows of one."""
        return [
            self.heads().load_chosen(rows.at(place), chosen)
            for place, chosen in self._places(node, self.form.softmax.heads)
        ]

    def put(self, rows: Floats, node: Number, row: int, first: int, values: Sequence[ir.Value]) -> None:
        """Write the number of each head of the block into rows of `row` numbers, from `first` on."""
        for value, (place, chosen) in zip(values, self._places(node, row), strict=True):
            self.heads().store_chosen(value, rows.at(place + first), chosen)

    def _places(self, node: Number, row: int) -> list[tuple[Number, ir.Value]]:
        """Return where each vector of heads lies in rows of `row` numbers, and the lanes that are heads."""
        heads, start = self.heads(), node * row + self.block.first
        found = list[tuple[Number, ir.Value]]()
        for number in range(self.block.vectors):
            left = self.form.softmax.heads - self.block.first - number * heads.width
            truths = [lane < left for lane in range(heads.width)]
            chosen = ir.Constant(ir.VectorType(ir.IntType(1), heads.width), truths)
            found.append((start + heads.width * number, chosen))
        return found


class _Totals(_OfHeads):
    """The logarithms of the totals of one target over a block of heads."""

    def store_totals(self, target: Number) -> None:
        heads, (first, end) = self.heads(), self.edges.of_target(target)
        to = self.second_half(self.values.scores, target)
        largest = self.largest(first, end, to)

        def edge(index: Number, totals: list[ir.Value]) -> list[ir.Value]:
            count = heads.splat(self.edges.weights[index])
            scores = self.scores(self.edges.sources[index], to)
            return [
                heads.fma(count, exp(heads, heads.sub(score, most)), total)
                for score, most, total in zip(scores, largest, totals, strict=True)
            ]

        totals = fold(end, [heads.splat(0.0) for _ in to], edge, start=first)
        alone = first == end
        logarithms = [
            select(alone, heads.splat(LOWEST), heads.add(most, log(heads, heads.add(total, self.form.softmax.epsilon))))
            for most, total in zip(largest, totals, strict=True)
        ]
        self.put(self.values.y, target, self.form.softmax.heads, 0, logarithms)


class _Sums(NamedTuple):
    """Sums of one node, in registers: of q x, of q' x, and of q' d."""

    weighted: list[ir.Value]
    sloped: list[ir.Value]
    heads: list[ir.Value]


@dataclass(frozen=True)
class _Slopes(_OfHeads):
    """The sums of one node over a block of features; its neighbours are the targets of `of_sources`."""

    of_sources: bool

    def store_sums(self, node: Number) -> None:
        features, count = self.form.features, self.form.softmax.heads
        row, pieces = 2 * features + count, self.block.pieces
        sums = self._summed(node)
        start = self.values.y.at(node * row)
        for piece, weighted, sloped in zip(pieces, sums.weighted, sums.sloped, strict=True):
            self.lanes(piece).store(weighted, start.at(piece.first))
            self.lanes(piece).store(sloped, start.at(features + piece.first))
        self.put(self.values.y, node, row, 2 * features, sums.heads)

    def _summed(self, node: Number) -> _Sums:
        heads, values, (first, end) = self.heads(), self.values, self.edges.of_target(node)
        own = self.first_half(values.scores, node) if self.of_sources else self.second_half(values.scores, node)
        total_of_node = [] if self.of_sources else self.whole(values.bias, node)

        def edge(index: Number, known: _Sums) -> _Sums:
            neighbour = self.edges.sources[index]
            if self.form.fetches:
                self.fetch(self.edges.sources[self.edges.ahead(index)])
            other = (self.second_half if self.of_sources else self.first_half)(values.scores, neighbour)
            totals = self.first_half(values.bias, neighbour) if self.of_sources else total_of_node
            count = heads.splat(self.edges.weights[index])
            added = [heads.add(*both) for both in zip(own, other, strict=True)]
            scores = activated(heads, self.form.softmax.activation, added)
            weights = [
                heads.mul(count, exp(heads, heads.sub(score, total)))
                for score, total in zip(scores, totals, strict=True)
            ]
            slopes = [self._sloped(*both) for both in zip(added, weights, strict=True)]
            features = values.x.at(neighbour * self.form.features)
            return _Sums(
                [self._added(weights, features, *both) for both in zip(self.block.pieces, known.weighted, strict=True)],
                [self._added(slopes, features, *both) for both in zip(self.block.pieces, known.sloped, strict=True)],
                [
                    heads.fma(slope, factor, total)
                    for slope, factor, total in zip(slopes, self._factors(neighbour), known.heads, strict=True)
                ],
            )

        zeros = [self.lanes(piece).splat(0.0) for piece in self.block.pieces]
        return fold(end, _Sums(zeros, zeros, [heads.splat(0.0) for _ in own]), edge, start=first)

    def _factors(self, neighbour: Number) -> list[ir.Value]:
        """Return what the slopes of an edge are multiplied by: d of the target, or 1."""
        if self.of_sources:
            return self.second_half(self.values.bias, neighbour)
        return [self.heads().splat(1.0)] * self.block.vectors

    def _sloped(self, added: ir.Value, weight: ir.Value) -> ir.Value:
        heads, activation = self.heads(), self.form.softmax.activation
        if activation is None:
            return weight
        return heads.select(heads.compare(">", added, 0.0), weight, heads.mul(weight, activation.values[0]))

    def _added(self, of_heads: Sequence[ir.Value], row: Floats, piece: Piece, total: ir.Value) -> ir.Value:
        return self.lanes(piece).fma(self.spread(of_heads, piece), self.features(row, piece), total)


# Both as steps of a program, whose rows are blocks of targets.


def emit_edge_totals(op: EdgeTotalsOp, step: RowMajorStep) -> None:
    """Emit the totals of some blocks."""
    heads = op.softmax.heads
    form = AttendForm(heads, op.softmax, None, False, False)
    _over_blocks(edge_totals(step.code, form), op, step, [op.scores, op.result])


def emit_edge_slopes(op: EdgeSlopesOp, step: RowMajorStep) -> None:
    """Emit the sums of some blocks."""
    nodes, features = shape_of(op.x)
    form = AttendForm(features, op.softmax, None, False, nodes * features * FLOAT_BYTES > FETCH_FROM)
    kernel = edge_slopes(step.code, form, of_sources=op.sources is not None)
    _over_blocks(kernel, op, step, [op.x, op.scores, op.totals, op.result])


def _over_blocks(
    kernel: ir.Function, op: EdgeTotalsOp | EdgeSlopesOp, step: RowMajorStep, values: Sequence[SSAValue]
) -> None:
    assert isinstance(op.graph.owner, Operation)
    first, *edges = step.arrays((op.graph, "edges"), pack_edges, op.graph.owner)
    borders, (begin, end) = first.cast(Longs), step.rows
    with loop(end - begin) as done:
        targets = [borders[index] for index in (begin + done, begin + done + 1)]
        call(kernel, [step.pointers[value] for value in values], *edges, *targets)


def slope_rows(op: EdgeTotalsOp | EdgeSlopesOp) -> Size:
    """Return the rows of the step: blocks of targets."""
    return Size.known(block_count(op.edges))


def slope_tiles() -> TiledRows:
    """Return how threads may cut those rows."""
    return TiledRows((TileTime(1, 1, BLOCK_US),), 1)
