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
from ...dialect.ops.graphs import LOWEST, EdgeSoftmax
from ..kernels.kernel_form import activated, activation_key
from ..llvm.builder import Code
from ..llvm.flow import fold, loop, select
from ..llvm.transcendental import exp
from ..llvm.values import ALIGNMENT, FLOAT_BYTES, Floats, Ints, Longs, Number
from ..llvm.vectors import Lanes, int_constants
from .aggregate import MOST_LINES, SUMS, Edges, Piece, Range


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


def head_width(heads: int, lanes: int) -> int:
    """Return how wide vectors of heads are: as wide as heads fill."""
    return lanes if heads >= lanes else 1 << (heads - 1).bit_length()


def head_blocks(features: int, heads: int, lanes: int, most: int | None = None) -> list[HeadBlock]:
    """Return blocks of up to `most` vectors that cover all features once."""
    width = head_width(heads, lanes)
    most = SUMS[lanes] - 4 if most is None else most
    of_head = features // heads
    pieces: list[Piece] = []
    first, wide = 0, lanes
    while first < features:
        while first + wide > features:
            wide //= 2
        pieces.append(Piece(first, wide))
        first += wide
    blocks: list[HeadBlock] = []
    for start in range(0, len(pieces), most):
        group = pieces[start : start + most]
        low = group[0].first // of_head // width
        high = (group[-1].first + group[-1].width - 1) // of_head // width
        blocks.append(HeadBlock(group, low * width, high - low + 1, width))
    return blocks


class ScoredValues(NamedTuple):
    """Addresses of what nodes have, their scores, the bias, and the result."""

    x: Floats
    scores: Floats
    bias: Floats
    y: Floats


def attend_targets(code: Code, form: AttendForm) -> ir.Function:
    """Return `void (x, scores, bias, y, pointers, sources, counts, order, begin, end)`: targets from `begin` on."""

    @code.kernel(form.key)
    def kernel(
        values: ScoredValues, pointers: Longs, sources: Ints, counts: Floats, order: Ints, targets: Range
    ) -> None:
        edges = Edges(pointers, sources, counts, None, order if form.walks else None)
        attend_rows(code, form, edges, values, targets)

    return kernel


def attend_rows(code: Code, form: AttendForm, edges: Edges, values: ScoredValues, targets: Range) -> None:
    """Emit the means of some targets."""
    with loop(targets.end - targets.begin) as done:
        target = targets.begin + done
        row = values.y.at(edges.row_of(target) * form.features)
        for block in head_blocks(form.features, form.softmax.heads, code.target.lanes):
            Means(code, form, block, edges, values).store(target, row)


@dataclass(frozen=True)
class Means:
    """The means of one target over a block of features."""

    code: Code
    form: AttendForm
    block: HeadBlock
    edges: Edges
    values: ScoredValues

    def store(self, target: Number, row: Floats) -> None:
        """Write what becomes of the means."""
        heads, pieces = self.heads(), self.block.pieces
        first, end = self.edges.of_target(target)
        own = self.edges.row_of(target)
        to = [self.second_of(self.values.scores, own, number) for number in range(self.block.vectors)]
        sums, totals = self._walk(first, end, to, self.largest(first, end, to))
        # a target without edges has zeros
        alone = first == end
        shares = [
            select(alone, heads.splat(0.0), heads.div(1.0, heads.add(total, self.form.softmax.epsilon)))
            for total in totals
        ]
        for piece, value in zip(pieces, sums, strict=True):
            lanes = self.lanes(piece)
            result = lanes.mul(value, self.spread(shares, piece))
            if self.form.biased:
                result = lanes.add(result, lanes.load(self.values.bias.at(piece.first)))
            lanes.store(activated(lanes, self.form.activation, [result])[0], row.at(piece.first))

    def largest(self, first: Number, end: Number, to: Sequence[ir.Value]) -> list[ir.Value]:
        heads = self.heads()
        start = 0.0 if self.form.softmax.from_zero else LOWEST

        def edge(index: Number, largest: list[ir.Value]) -> list[ir.Value]:
            scores = self.scores(self.edges.sources[index], to)
            return [heads.max(score, known) for score, known in zip(scores, largest, strict=True)]

        return fold(end, [heads.splat(start) for _ in to], edge, start=first)

    def _walk(
        self, first: Number, end: Number, to: Sequence[ir.Value], largest: Sequence[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """Return the sums of features and of the weights of edges."""
        heads, pieces = self.heads(), self.block.pieces

        def edge(index: Number, known: tuple[list[ir.Value], list[ir.Value]]) -> tuple[list[ir.Value], list[ir.Value]]:
            source = self.edges.sources[index]
            if self.form.fetches:
                self.fetch(self.edges.sources[self.edges.ahead(index)])
            # weights of the edge, a vector of heads after the other
            count = heads.splat(self.edges.weights[index])
            scores = self.scores(source, to)
            powers = [
                heads.mul(count, exp(heads, heads.sub(score, most)))
                for score, most in zip(scores, largest, strict=True)
            ]
            features = self.values.x.at(source * self.form.features)
            sums = [
                self.lanes(piece).fma(self.spread(powers, piece), self.features(features, piece), value)
                for piece, value in zip(pieces, known[0], strict=True)
            ]
            return sums, [heads.add(power, total) for power, total in zip(powers, known[1], strict=True)]

        zeros = [self.lanes(piece).splat(0.0) for piece in pieces], [heads.splat(0.0) for _ in to]
        return fold(end, zeros, edge, start=first)

    def scores(self, source: Number, to: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the scores of an edge, a vector of heads after the other."""
        heads, (count, activation, *_) = self.heads(), self.form.softmax
        row = source * (2 * count) + self.block.first
        sums = [
            heads.add(heads.load(self.values.scores.at(row + heads.width * number)), own)
            for number, own in enumerate(to)
        ]
        return activated(heads, activation, sums)

    def second_of(self, rows: Floats, node: Number, number: int) -> ir.Value:
        """Return a vector of the second half of rows of two numbers a head, read from no further than its row ends."""
        heads, count = self.heads(), self.form.softmax.heads
        wanted = count + self.block.first + number * heads.width
        first = min(wanted, 2 * count - heads.width)
        return self.shuffled(
            heads.load(rows.at(node * (2 * count) + first)),
            [min(wanted - first + lane, heads.width - 1) for lane in range(heads.width)],
        )

    def spread(self, of_heads: Sequence[ir.Value], piece: Piece) -> ir.Value:
        """Return in each lane of a piece what its head has."""
        of_head = self.form.features // self.form.softmax.heads
        heads = [(piece.first + lane) // of_head - self.block.first for lane in range(piece.width)]
        low = heads[0] // self.block.width
        high = min(low + 1, len(of_heads) - 1)
        lanes = [head - low * self.block.width for head in heads]
        return self.shuffled(of_heads[low], lanes, of_heads[high])

    def shuffled(self, vector: ir.Value, lanes: Sequence[int], other: ir.Value | None = None) -> ir.Value:
        builder = self.values.x.builder
        return builder.shuffle_vector(vector, vector if other is None else other, int_constants(lanes))

    def features(self, row: Floats, piece: Piece) -> ir.Value:
        return self.lanes(piece).load(row.at(piece.first))

    def fetch(self, source: Number) -> None:
        """Fetch the features and scores of a source."""
        pieces = self.block.pieces
        count = sum(piece.width for piece in pieces)
        features = self.values.x.at(source * self.form.features + pieces[0].first)
        features.fetch(min(MOST_LINES, -(-count * FLOAT_BYTES // ALIGNMENT)))
        self.values.scores.at(source * (2 * self.form.softmax.heads)).fetch(1)

    def heads(self) -> Lanes:
        return self.code.lanes(self.values.x, self.block.width)

    def lanes(self, piece: Piece) -> Lanes:
        return self.code.lanes(self.values.x, piece.width)
