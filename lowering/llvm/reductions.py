"""Reductions over the features of each sample inside a tile: softmax, normalisations, mean.

Registers, for tiles of columns [features, width]:

    sum[v]   one lane a column, v < 2 vectors of columns: sum[v] += step(x[k][v]) for k = 0, 1, ..., features - 1
    y[k][v]  = map(x[k][v], sum[v])       a second loop; means, maxima and deviations stay in registers

No lane ever meets another one. A tile of one column is a row of features instead:

    sum      one lane every lanes-th feature; lanes behind the last feature keep what they had
    total    = horizontal sum (or maximum) of the lanes, then broadcast to every lane
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from .builder import Cell, Code, ColumnChunk, Parameters, column_chunks
from .flow import fold, loop
from .transcendental import exp, log
from .values import FLOAT, Floats, Number
from .vectors import Lanes

Vectors = list[ir.Value]

Step = Callable[[ir.Value, ir.Value, int], ir.Value]
"""(sum so far, value, index of the vector) -> next sum."""

Map = Callable[[ir.Value, Number, int], ir.Value]
"""(value, feature, index of the vector) -> result."""


class Columns:
    """A few vectors of batch columns, seen through all features: sums over them, and maps from x to y.

    A tile of one column is seen as vectors of features instead; what a fold finds is then the same in every lane.
    """

    def __init__(self, code: Code, features: Number, width: int, chunk: ColumnChunk) -> None:
        """Look at a chunk of the columns of a tile of `width` columns."""
        self.features = features
        self.width, self.first, self.vectors = width, *chunk
        self.single = self.width == 1
        self.lanes: Lanes = code.lanes(features, code.target.lanes if self.single else code.column_lanes(self.width))

    def _cells(self, buffer: Floats, feature: Number) -> list[Floats]:
        columns = [self.first + index * self.lanes.width for index in range(self.vectors)]
        return [Cell(feature, self.width, column).of(buffer) for column in columns]

    def at(self, buffer: Floats, feature: Number) -> Vectors:
        """Return the vectors of `feature`, or the vector of features from there on."""
        return [self.lanes.load(address, self.lanes.size) for address in self._cells(buffer, feature)]

    def put(self, buffer: Floats, feature: Number, values: Sequence[ir.Value]) -> None:
        """Store the vectors of `feature`, or the vector of features from there on."""
        for address, value in zip(self._cells(buffer, feature), values, strict=True):
            self.lanes.store(value, address, self.lanes.size)

    def total(self, buffer: Floats, step: Step) -> Vectors:
        """Return step(step(0, x[0]), x[1]) ... over all features, for a step that adds something of x."""
        sums = self._fold(0.0, buffer, step)
        return [self.lanes.splat(self.lanes.horizontal_sum(value)) for value in sums] if self.single else sums

    def sums(self, buffer: Floats) -> Vectors:
        """Return the sum over all features."""
        return self.total(buffer, lambda total, value, _: self.lanes.add(total, value))

    def highest(self, buffer: Floats) -> Vectors:
        """Return the largest value over all features."""
        values = self._fold(float("-inf"), buffer, lambda total, value, _: self.lanes.max(total, value))
        return [self.lanes.splat(self.lanes.horizontal_max(value)) for value in values] if self.single else values

    def _fold(self, initial: float, buffer: Floats, step: Step) -> Vectors:
        lanes, count = self.lanes, self.features

        def one(index: Number, sums: Vectors) -> Vectors:
            feature = index * lanes.width if self.single else index
            pairs = zip(sums, self.at(buffer, feature), strict=True)
            following = [step(total, value, index) for index, (total, value) in enumerate(pairs)]
            # behind the last feature a row holds garbage
            return [self._where_features(feature, following[0], sums[0])] if self.single else following

        if self.single:
            count = (count + (lanes.width - 1)).quotient(lanes.width)
        return fold(count, [lanes.splat(initial)] * self.vectors, one)

    def _where_features(self, first: Number, inside: ir.Value, outside: ir.Value) -> ir.Value:
        """Return `inside` in the lanes of features from `first` on, and `outside` in those behind the last one."""
        return self.lanes.select(self.lanes.below(self.features - first), inside, outside)

    def map(self, source: Floats, target: Floats, step: Map) -> None:
        """Store step(x, feature, vector's index) for all features."""
        with loop(self.features, self.lanes.width if self.single else 1) as feature:
            values = [step(value, feature, index) for index, value in enumerate(self.at(source, feature))]
            self.put(target, feature, values)

    def parameter(self, values: Floats, feature: Number) -> ir.Value:
        """Return a parameter of `feature` in every lane, or those of the features from there on."""
        return self.lanes.load(values.at(feature)) if self.single else self.lanes.splat(values[feature])

    def per_feature(self, values: Sequence[ir.Value]) -> Vectors:
        """Return sums over features divided by their number."""
        count = self.lanes.splat(self.lanes.builder.sitofp(self.features.value, FLOAT))
        return [self.lanes.div(value, count) for value in values]


MOST = 2
"""Vectors of columns that one loop over the features serves; more would spill in softmax on AVX2."""


@dataclass(frozen=True)
class ColumnForm:
    """The form of a function: the width of the tile, and which of how many parts of its columns it does."""

    width: int
    part: int = 0
    parts: int = 1

    def chunks(self, lanes: int) -> list[ColumnChunk]:
        """Return the columns that one loop each works on."""
        vectors = self.width // lanes
        first, end = (vectors * part // self.parts for part in (self.part, self.part + 1))
        chunks = column_chunks((end - first) * lanes, lanes, MOST)
        return [ColumnChunk(first * lanes + chunk.first, chunk.vectors) for chunk in chunks]

    @property
    def key(self) -> str:
        """A name for functions of this form."""
        return f"w{self.width}_{self.part}_{self.parts}" if self.parts > 1 else f"w{self.width}"


def column_parts(code: Code, width: int, most: int) -> int:
    """Return the number of parts, at most `most`, into which the columns of a tile can be cut."""
    return max(1, min(most, width // code.column_lanes(width)))


def for_columns(code: Code, name: str, form: ColumnForm) -> Callable[[Callable[..., None]], ir.Function]:
    """Return a decorator: `def body(columns: Columns, x: Floats, ...)` becomes `name`, `void (x, ..., features)`."""

    def define(body: Callable[..., None]) -> ir.Function:
        parameters = Parameters([*Parameters.of(body).kinds[1:], Number], ["features"])

        def kernel(*given: Floats, features: Number) -> None:
            for chunk in form.chunks(code.column_lanes(form.width)):
                body(Columns(code, features, form.width, chunk), *given)

        return code.function(f"{name}_{form.key}", parameters, kernel)

    return define


def softmax(code: Code, form: ColumnForm) -> ir.Function:
    """Return `void (x, y, features)`."""

    @for_columns(code, "softmax", form)
    def kernel(columns: Columns, x: Floats, y: Floats) -> None:
        # the powers stand in y until their sums are known
        lanes, highest = columns.lanes, columns.highest(x)
        columns.map(x, y, lambda value, _, index: exp(lanes, lanes.sub(value, highest[index])))
        totals = columns.sums(y)
        columns.map(y, y, lambda value, _, index: lanes.div(value, totals[index]))

    return kernel


def log_softmax(code: Code, form: ColumnForm) -> ir.Function:
    """Return `void (x, y, features)`."""

    @for_columns(code, "log_softmax", form)
    def kernel(columns: Columns, x: Floats, y: Floats) -> None:
        lanes, highest = columns.lanes, columns.highest(x)
        totals = columns.total(
            x, lambda total, value, index: lanes.add(total, exp(lanes, lanes.sub(value, highest[index])))
        )
        logarithms = [log(lanes, total) for total in totals]
        columns.map(x, y, lambda value, _, index: lanes.sub(lanes.sub(value, highest[index]), logarithms[index]))

    return kernel


def layer_norm(code: Code, form: ColumnForm, epsilon: float) -> ir.Function:
    """Return `void (x, scale, bias, y, features)`."""

    @for_columns(code, f"layer_norm_{_symbol(epsilon)}", form)
    def kernel(columns: Columns, x: Floats, scale: Floats, bias: Floats, y: Floats) -> None:
        lanes, means = columns.lanes, columns.per_feature(columns.sums(x))

        def square(total: ir.Value, value: ir.Value, index: int) -> ir.Value:
            centred = lanes.sub(value, means[index])
            return lanes.fma(centred, centred, total)

        inverses = _inverse_deviations(columns, columns.total(x, square), epsilon)

        def scaled(value: ir.Value, feature: Number, index: int) -> ir.Value:
            normal = lanes.mul(lanes.sub(value, means[index]), inverses[index])
            return lanes.fma(normal, columns.parameter(scale, feature), columns.parameter(bias, feature))

        columns.map(x, y, scaled)

    return kernel


def rms_norm(code: Code, form: ColumnForm, epsilon: float) -> ir.Function:
    """Return `void (x, scale, y, features)`."""

    @for_columns(code, f"rms_norm_{_symbol(epsilon)}", form)
    def kernel(columns: Columns, x: Floats, scale: Floats, y: Floats) -> None:
        lanes = columns.lanes
        squares = columns.total(x, lambda total, value, _: lanes.fma(value, value, total))
        inverses = _inverse_deviations(columns, squares, epsilon)

        def scaled(value: ir.Value, feature: Number, index: int) -> ir.Value:
            return lanes.mul(lanes.mul(value, inverses[index]), columns.parameter(scale, feature))

        columns.map(x, y, scaled)

    return kernel


def _inverse_deviations(columns: Columns, squares: Sequence[ir.Value], epsilon: float) -> Vectors:
    """Return 1 / sqrt(mean of squares + epsilon): a division takes four times as long as the rest of a value's work."""
    lanes = columns.lanes
    roots = (lanes.sqrt(lanes.add(value, lanes.splat(epsilon))) for value in columns.per_feature(squares))
    return [lanes.div(1.0, root) for root in roots]


def reduce_mean(code: Code, form: ColumnForm) -> ir.Function:
    """Return `void (x, y, features)`; y has one row."""

    @for_columns(code, "reduce_mean", form)
    def kernel(columns: Columns, x: Floats, y: Floats) -> None:
        columns.put(y, columns.features.constant(0), columns.per_feature(columns.sums(x)))

    return kernel


def _symbol(value: float) -> str:
    """Return a number as part of a symbol."""
    return value.hex().replace(".", "_").replace("-", "m").replace("+", "p")
