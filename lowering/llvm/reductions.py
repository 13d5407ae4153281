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

from .builder import (
    FLOAT_BYTES,
    I32,
    I64,
    POINTER,
    Cell,
    Code,
    ColumnChunk,
    column_chunks,
    counted_loop,
    float_at,
    i64,
    reduce_loop,
)
from .transcendental import exp, log
from .vectors import FLOAT, Lanes, int_constants

Step = Callable[[ir.Value, ir.Value, int], ir.Value]
"""(sum so far, value, index of the vector) -> next sum, or (value, feature, index of the vector) -> result."""


class Columns:
    """A few vectors of batch columns, seen through all features: sums over them, and maps from x to y.

    A tile of one column is seen as vectors of features instead; what a fold finds is then the same in every lane.
    """

    def __init__(self, code: Code, builder: ir.IRBuilder, features: ir.Value, width: int, chunk: ColumnChunk) -> None:
        """Look at a chunk of the columns of a tile of `width` columns."""
        self.builder = builder
        self.features = features
        self.width, self.first, self.vectors = width, *chunk
        self.single = self.width == 1
        self.lanes: Lanes = code.lanes(builder, code.target.lanes if self.single else code.column_lanes(self.width))

    def _cells(self, buffer: ir.Value, feature: ir.Value) -> list[ir.Value]:
        columns = [self.first + index * self.lanes.width for index in range(self.vectors)]
        return [Cell(feature, self.width, column).address(self.builder, buffer) for column in columns]

    def at(self, buffer: ir.Value, feature: ir.Value) -> list[ir.Value]:
        """Return the vectors of `feature`, or the vector of features from there on."""
        return [self.lanes.load(address, FLOAT_BYTES * self.lanes.width) for address in self._cells(buffer, feature)]

    def put(self, buffer: ir.Value, feature: ir.Value, values: Sequence[ir.Value]) -> None:
        """Store the vectors of `feature`, or the vector of features from there on."""
        for address, value in zip(self._cells(buffer, feature), values, strict=True):
            self.lanes.store(value, address, FLOAT_BYTES * self.lanes.width)

    def total(self, buffer: ir.Value, step: Step) -> list[ir.Value]:
        """Return step(step(0, x[0]), x[1]) ... over all features, for a step that adds something of x."""
        sums = self._fold(0.0, buffer, step)
        return [self.lanes.splat(self.lanes.horizontal_sum(value)) for value in sums] if self.single else sums

    def highest(self, buffer: ir.Value) -> list[ir.Value]:
        """Return the largest value over all features."""
        values = self._fold(float("-inf"), buffer, lambda total, value, _: self.lanes.max(total, value))
        return [self.lanes.splat(self.lanes.horizontal_max(value)) for value in values] if self.single else values

    def _fold(self, initial: float, buffer: ir.Value, step: Step) -> list[ir.Value]:
        def body(step_index: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
            feature = self.builder.mul(step_index, i64(self.lanes.width)) if self.single else step_index
            pairs = zip(sums, self.at(buffer, feature), strict=True)
            following = [step(total, value, index) for index, (total, value) in enumerate(pairs)]
            # behind the last feature a row holds garbage
            return [self._where_features(feature, following[0], sums[0])] if self.single else following

        start = [self.lanes.splat(initial)] * self.vectors
        return reduce_loop(self.builder, self._step_count(), start, body)

    def _step_count(self) -> ir.Value:
        if not self.single:
            return self.features
        return self.builder.sdiv(self.builder.add(self.features, i64(self.lanes.width - 1)), i64(self.lanes.width))

    def _where_features(self, first: ir.Value, inside: ir.Value, outside: ir.Value) -> ir.Value:
        """Return `inside` in the lanes of features from `first` on, and `outside` in those behind the last one."""
        left = self.builder.trunc(self.builder.sub(self.features, first), I32)
        vector = self.lanes.int_vector
        lane = int_constants(range(self.lanes.width))
        one = self.builder.insert_element(ir.Constant(vector, ir.Undefined), left, ir.Constant(I32, 0))
        every = self.builder.shuffle_vector(one, one, int_constants([0] * self.lanes.width))
        return self.builder.select(self.builder.icmp_signed("<", lane, every), inside, outside)

    def map(self, source: ir.Value, target: ir.Value, step: Step) -> None:
        """Store step(x, feature, vector's index) for all features."""
        with counted_loop(self.builder, self.features, self.lanes.width if self.single else 1) as feature:
            values = [step(value, feature, index) for index, value in enumerate(self.at(source, feature))]
            self.put(target, feature, values)

    def parameter(self, pointer: ir.Value, feature: ir.Value) -> ir.Value:
        """Return a parameter of `feature` in every lane, or those of the features from there on."""
        address = float_at(self.builder, pointer, feature)
        return self.lanes.load(address) if self.single else self.lanes.splat(self.builder.load(address, typ=FLOAT))

    def per_feature(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        """Return sums over features divided by their number."""
        count = self.lanes.splat(self.builder.sitofp(self.features, FLOAT))
        return [self.lanes.div(value, count) for value in values]


ColumnBody = Callable[[Columns, Sequence[ir.Argument]], None]
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


def for_columns(code: Code, name: str, form: ColumnForm, pointers: int, body: ColumnBody) -> ir.Function:
    """Return the function `name` of so many pointers and the number of features."""

    def fill(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        for chunk in form.chunks(code.column_lanes(form.width)):
            body(Columns(code, builder, args[-1], form.width, chunk), args)

    return code.function(f"{name}_{form.key}", [POINTER] * pointers + [I64], fill)


def softmax(code: Code, form: ColumnForm) -> ir.Function:
    """Return `void (x, y, features)`."""

    def body(columns: Columns, args: Sequence[ir.Argument]) -> None:
        x, y, _ = args
        lanes = columns.lanes
        highest = columns.highest(x)
        columns.map(x, y, lambda value, _, index: exp(lanes, lanes.sub(value, highest[index])))
        totals = columns.total(y, lambda total, value, _: lanes.add(total, value))
        columns.map(y, y, lambda value, _, index: lanes.div(value, totals[index]))

    return for_columns(code, "softmax", form, 2, body)


def log_softmax(code: Code, form: ColumnForm) -> ir.Function:
    """Return `void (x, y, features)`."""

    def body(columns: Columns, args: Sequence[ir.Argument]) -> None:
        x, y, _ = args
        lanes = columns.lanes
        highest = columns.highest(x)
        totals = columns.total(
            x, lambda total, value, index: lanes.add(total, exp(lanes, lanes.sub(value, highest[index])))
        )
        logarithms = [log(lanes, total) for total in totals]
        columns.map(x, y, lambda value, _, index: lanes.sub(lanes.sub(value, highest[index]), logarithms[index]))

    return for_columns(code, "log_softmax", form, 2, body)


def layer_norm(code: Code, form: ColumnForm, epsilon: float) -> ir.Function:
    """Return `void (x, scale, bias, y, features)`."""

    def body(columns: Columns, args: Sequence[ir.Argument]) -> None:
        x, scale, bias, y, _ = args
        lanes = columns.lanes
        means = columns.per_feature(columns.total(x, lambda total, value, _: lanes.add(total, value)))

        def square(total: ir.Value, value: ir.Value, index: int) -> ir.Value:
            centred = lanes.sub(value, means[index])
            return lanes.fma(centred, centred, total)

        deviations = _deviations(columns, columns.total(x, square), epsilon)

        def scaled(value: ir.Value, feature: ir.Value, index: int) -> ir.Value:
            normal = lanes.div(lanes.sub(value, means[index]), deviations[index])
            return lanes.fma(normal, columns.parameter(scale, feature), columns.parameter(bias, feature))

        columns.map(x, y, scaled)

    return for_columns(code, f"layer_norm_{_symbol(epsilon)}", form, 4, body)


def rms_norm(code: Code, form: ColumnForm, epsilon: float) -> ir.Function:
    """Return `void (x, scale, y, features)`."""

    def body(columns: Columns, args: Sequence[ir.Argument]) -> None:
        x, scale, y, _ = args
        lanes = columns.lanes
        squares = columns.total(x, lambda total, value, _: lanes.fma(value, value, total))
        deviations = _deviations(columns, squares, epsilon)

        def scaled(value: ir.Value, feature: ir.Value, index: int) -> ir.Value:
            return lanes.mul(lanes.div(value, deviations[index]), columns.parameter(scale, feature))

        columns.map(x, y, scaled)

    return for_columns(code, f"rms_norm_{_symbol(epsilon)}", form, 3, body)


def _deviations(columns: Columns, squares: Sequence[ir.Value], epsilon: float) -> list[ir.Value]:
    """Return sqrt(mean of squares + epsilon)."""
    lanes = columns.lanes
    return [lanes.sqrt(lanes.add(value, lanes.splat(epsilon))) for value in columns.per_feature(squares)]


def reduce_mean(code: Code, form: ColumnForm) -> ir.Function:
    """Return `void (x, y, features)`; y has one row."""

    def body(columns: Columns, args: Sequence[ir.Argument]) -> None:
        x, y, _ = args
        totals = columns.total(x, lambda total, value, _: columns.lanes.add(total, value))
        columns.put(y, i64(0), columns.per_feature(totals))

    return for_columns(code, "reduce_mean", form, 2, body)


def _symbol(value: float) -> str:
    """Return a number as part of a symbol."""
    return value.hex().replace(".", "_").replace("-", "m").replace("+", "p")
