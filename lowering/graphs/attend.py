"""Attention over the edges of nodes: y[t] = activation(sum of p x[s] over the edges s -> t / sum of p + bias).

Registers, for V vectors of features and K of heads (V + 3 K + 2 of 16 or 32 registers):

    largest[k] = max(largest[k], score(from[s][k] + to[k]))     a first walk over the edges, which reads scores alone
    p[k]       = w exp(score(from[s][k] + to[k]) - largest[k])  a second one
    total[k]  += p[k]
    sum[v]    += p[head of each lane] * x[s][v]                 a shuffle and an fma for each vector, x[s] from memory

A score is computed in both walks: to keep it would write and read as many bytes as lie in the cache already, where the
first walk has brought them. What heads have side by side are lanes, so exp runs for all of them at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.graphs.aggregate import LOWEST
from ...dialect.ops.graphs.attend_edges import EdgeSoftmax
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
from ..llvm.transcendental import exp
from ..llvm.vectors import FLOAT, Lanes, int_constants
from .aggregate import (
    MOST_LINES,
    SUMS,
    Edges,
    NodeValues,
    Piece,
    Range,
    integer_at,
)


@dataclass(frozen=True)
class AttendForm:
    """Form of the code: features of a node, and what becomes of scores and sums."""

    features: int
    softmax: EdgeSoftmax
    activation: ActivationAttr | None
    biased: bool
    fetches: bool
    """Whether values are fetched ahead."""
    walks: bool = False
    """Whether targets have another order than their numbers."""

    @property
    def key(self) -> str:
        """A name for functions of this form."""
        heads, score, epsilon, from_zero = self.softmax
        known = {"b": self.biased, "f": self.fetches, "z": from_zero, "w": self.walks}
        flags = "".join(letter for letter, is_set in known.items() if is_set)
        words = (self.features, heads, activation_key(score), float(epsilon).hex(), activation_key(self.activation))
        return f"attend_{'_'.join(map(str, words))}_{flags}".replace("-", "m").replace("+", "p")


class HeadBlock(NamedTuple):
    """Features whose sums stay in registers, and the vectors of heads that they belong to."""

    pieces: list[Piece]
    first: int
    """The first head."""
    vectors: int
    width: int
    """Heads of a vector; behind the last one stand lanes that nothing reads."""


def head_blocks(features: int, heads: int, lanes: int) -> list[HeadBlock]:
    """Return blocks that cover all features once; vectors of heads are as wide as heads fill."""
    width = lanes if heads >= lanes else 1 << (heads - 1).bit_length()
    of_head = features // heads
    pieces: list[Piece] = []
    first, wide = 0, lanes
    while first < features:
        while first + wide > features:
            wide //= 2
        pieces.append(Piece(first, wide))
        first += wide
    blocks: list[HeadBlock] = []
    for start in range(0, len(pieces), SUMS[lanes] - 4):
        group = pieces[start : start + SUMS[lanes] - 4]
        low = group[0].first // of_head // width
        high = (group[-1].first + group[-1].width - 1) // of_head // width
        blocks.append(HeadBlock(group, low * width, high - low + 1, width))
    return blocks


def attend_targets(code: Code, form: AttendForm) -> ir.Function:
    """Return `void (x, scores, bias, y, pointers, sources, counts, order, begin, end)`: targets from `begin` on."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, scores, bias, y, pointers, sources, counts, order, *targets = args
        edges = Edges(pointers, sources, counts, None, order if form.walks else None)
        values = ScoredValues(NodeValues(x, bias, y), scores)
        attend_rows(AttendKernel(code, builder, form), edges, values, Range(*targets))

    return code.function(form.key, [POINTER] * 8 + [I64] * 2, body)


class ScoredValues(NamedTuple):
    """Addresses of what nodes have, and of their scores."""

    of_nodes: NodeValues
    scores: ir.Value


class AttendKernel(NamedTuple):
    """A function of a form under construction."""

    code: Code
    builder: ir.IRBuilder
    form: AttendForm


def attend_rows(kernel: AttendKernel, edges: Edges, values: ScoredValues, targets: Range) -> None:
    """Emit the means of some targets."""
    (code, builder, form), (x, bias, y) = kernel, values.of_nodes
    with counted_loop(builder, builder.sub(targets.end, targets.begin)) as done:
        target = builder.add(targets.begin, done)
        row = float_at(builder, y, builder.mul(edges.row_of(builder, target), i64(form.features)))
        for block in head_blocks(form.features, form.softmax.heads, code.target.lanes):
            _Means(code, builder, form, block, edges, x, values.scores).store(target, bias, row)


@dataclass(frozen=True)
class _Means:
    """The means of one target over a block of features."""

    code: Code
    builder: ir.IRBuilder
    form: AttendForm
    block: HeadBlock
    edges: Edges
    x: ir.Value
    scores: ir.Value

    def store(self, target: ir.Value, bias: ir.Value, row: ir.Value) -> None:
        """Write what becomes of the means."""
        builder, pieces = self.builder, self.block.pieces
        first, end = self.edges.of_target(builder, target)
        own = self.edges.row_of(builder, target)
        to = [self._score_of_target(own, number) for number in range(self.block.vectors)]
        sums, totals = self._walk(first, end, to, self._largest(first, end, to))
        alone = builder.icmp_signed("==", first, end)
        heads = self._heads()
        shares = [
            builder.select(alone, heads.splat(0.0), heads.div(1.0, heads.add(total, self.form.softmax.epsilon)))
            for total in totals
        ]
        for piece, value in zip(pieces, sums, strict=True):
            lanes, offset = self.code.lanes(builder, piece.width), i64(piece.first)
            result = lanes.mul(value, self._spread(shares, piece))
            if self.form.biased:
                result = lanes.add(result, lanes.load(float_at(builder, bias, offset)))
            lanes.store(activated(lanes, self.form.activation, [result])[0], float_at(builder, row, offset))

    def _largest(self, first: ir.Value, end: ir.Value, to: Sequence[ir.Value]) -> list[ir.Value]:
        heads = self._heads()
        start = 0.0 if self.form.softmax.from_zero else LOWEST

        def edge(index: ir.Value, largest: Sequence[ir.Value]) -> list[ir.Value]:
            scores = self._scores(self._source(index), to)
            return [heads.max(score, known) for score, known in zip(scores, largest, strict=True)]

        return reduce_loop(self.builder, end, [heads.splat(start) for _ in to], edge, start=first)

    def _walk(
        self, first: ir.Value, end: ir.Value, to: Sequence[ir.Value], largest: Sequence[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """Return the sums of features and of the weights of edges."""
        builder, heads, pieces = self.builder, self._heads(), self.block.pieces

        def edge(index: ir.Value, known: Sequence[ir.Value]) -> list[ir.Value]:
            source = self._source(index)
            if self.form.fetches:
                self._fetch(self._source(self.edges.ahead(builder, index)))
            count = heads.splat(builder.load(float_at(builder, self.edges.weights, index), typ=FLOAT))
            scores = self._scores(source, to)
            powers = [
                heads.mul(count, exp(heads, heads.sub(score, most)))
                for score, most in zip(scores, largest, strict=True)
            ]
            features = float_at(builder, self.x, builder.mul(source, i64(self.form.features)))
            sums = [
                self._lanes(piece).fma(self._spread(powers, piece), self._features(features, piece), value)
                for piece, value in zip(pieces, known, strict=False)
            ]
            return sums + [heads.add(power, total) for power, total in zip(powers, known[len(pieces) :], strict=True)]

        start = [self._lanes(piece).splat(0.0) for piece in pieces] + [heads.splat(0.0) for _ in to]
        result = reduce_loop(builder, end, start, edge, start=first)
        return result[: len(pieces)], result[len(pieces) :]

    def _scores(self, source: ir.Value, to: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the scores of an edge, a vector of heads after the other."""
        heads, (count, activation, *_) = self._heads(), self.form.softmax
        row = self.builder.add(self.builder.mul(source, i64(2 * count)), i64(self.block.first))
        sums = [
            heads.add(heads.load(float_at(self.builder, self.scores, self.builder.add(row, i64(shift)))), own)
            for shift, own in zip(range(0, len(to) * heads.width, heads.width), to, strict=True)
        ]
        return activated(heads, activation, sums)

    def _score_of_target(self, target: ir.Value, number: int) -> ir.Value:
        """Return the scores of a node as a target, read from no further than its row ends."""
        heads, count = self._heads(), self.form.softmax.heads
        wanted = count + self.block.first + number * heads.width
        first = min(wanted, 2 * count - heads.width)
        offset = self.builder.add(self.builder.mul(target, i64(2 * count)), i64(first))
        return self._shuffled(
            heads.load(float_at(self.builder, self.scores, offset)),
            [min(wanted - first + lane, heads.width - 1) for lane in range(heads.width)],
        )

    def _spread(self, of_heads: Sequence[ir.Value], piece: Piece) -> ir.Value:
        """Return in each lane of a piece what its head has."""
        of_head = self.form.features // self.form.softmax.heads
        heads = [(piece.first + lane) // of_head - self.block.first for lane in range(piece.width)]
        low = heads[0] // self.block.width
        high = min(low + 1, len(of_heads) - 1)
        lanes = [head - low * self.block.width for head in heads]
        return self._shuffled(of_heads[low], lanes, of_heads[high])

    def _shuffled(self, vector: ir.Value, lanes: Sequence[int], other: ir.Value | None = None) -> ir.Value:
        return self.builder.shuffle_vector(vector, vector if other is None else other, int_constants(lanes))

    def _features(self, row: ir.Value, piece: Piece) -> ir.Value:
        return self._lanes(piece).load(float_at(self.builder, row, i64(piece.first)))

    def _source(self, index: ir.Value) -> ir.Value:
        return self.builder.zext(integer_at(self.builder, self.edges.sources, index, I32), I64)

    def _fetch(self, source: ir.Value) -> None:
        """Fetch the features and scores of a source."""
        builder, pieces = self.builder, self.block.pieces
        count = sum(piece.width for piece in pieces)
        offset = builder.add(builder.mul(source, i64(self.form.features)), i64(pieces[0].first))
        fetch_lines(builder, float_at(builder, self.x, offset), min(MOST_LINES, -(-count * FLOAT_BYTES // ALIGNMENT)))
        scores = builder.mul(source, i64(2 * self.form.softmax.heads))
        fetch_lines(builder, float_at(builder, self.scores, scores), 1)

    def _heads(self) -> Lanes:
        return self.code.lanes(self.builder, self.block.width)

    def _lanes(self, piece: Piece) -> Lanes:
        return self.code.lanes(self.builder, piece.width)
