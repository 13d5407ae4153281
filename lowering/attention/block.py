"""A block of queries of one head against all keys, block by block, so that no more scores exist than those of a block.

```
Q      = queries of the block, transposed and scaled         [features, width]
for each block of keys:
    S  = mask of the block, transposed, where there is one    [keys, width]
    S  = K Q (+ S)                                            products.scores
    S, sum, correction = weights of S                         weights.scores_to_weights
    O  = O correction + V^T S                                 products.weighted_values
result = O / sum, transposed
```

Where weights are rounded, their sum has to be known before: all blocks of keys are gone through twice, unless there is
one. The second time O is multiplied by 1, as the largest score is known, and the result is O.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from llvmlite import ir

from ..llvm.builder import Code
from ..llvm.flow import branch, call, fold, loop, select, when
from ..llvm.transposition import columns_to_rows, rows_to_columns
from ..llvm.values import FLOAT, Floats, Index, Number, Truth
from ..llvm.vectors import Lanes
from .form import AttentionForm, BufferOffsets, Registers
from .products import scores, weighted_values
from .weights import (
    Sums,
    hide_later_keys,
    repeat_scores,
    rounded_weights,
    scores_to_weights,
    spread_mask,
)


class Past(NamedTuple):
    """Keys and values before those of the op."""

    keys: Floats
    """[count, features], and so are the values; null where there is no past."""
    values: Floats
    key_count: Number


class BlockArguments(NamedTuple):
    """Arguments of a block's function; strides are in floats, from one row to the next."""

    queries: Floats
    keys: Floats
    values: Floats
    mask: Floats
    """Its entries for the first query; null where there is no mask."""
    result: Floats
    scratch: Floats
    query_stride: Number
    key_stride: Number
    value_stride: Number
    mask_stride: Number
    """0 where all queries share a row."""
    mask_key_stride: Number
    """1, or 0 where all keys share an entry."""
    result_stride: Number
    query_count: Number
    key_count: Number
    first_query: Number
    """The number of the first query, among all queries of its head."""
    past: Past


class _Keys(NamedTuple):
    """Keys and values one behind the other, with the distance to the next one in floats, and the mask's entries."""

    keys: Floats
    values: Floats
    key_stride: Index
    value_stride: Index
    length: Number
    mask: Floats
    causal: bool
    """Whether each query reads but those up to its own number."""


_OfBlock = Callable[[_Keys, Number, Number], None]
"""Emits something for a block of keys: from one on, so many."""


def query_block(code: Code, form: AttentionForm, width: int) -> ir.Function:
    """Return `void (arguments...)`, the function of blocks of at most `width` queries."""

    @code.kernel(f"attention_{form.key}_{width}")
    def kernel(args: BlockArguments) -> None:
        _Block(code, form, width, args).emit()

    return kernel


@dataclass(frozen=True)
class _Block:
    code: Code
    form: AttentionForm
    width: int
    args: BlockArguments

    def emit(self) -> None:
        """Emit the whole block."""
        self._load_queries()
        self._fill(self._buffers.values, self.form.value_size, 0.0)
        self._fill(self._buffers.highest, 1, -inf)
        self._fill(self._buffers.total, 1, 0.0)
        if self.form.rounds_weights:
            self._emit_rounded()
        else:
            for keys in self._all_keys():
                self._each_block(keys, self._sum_values)
        self._finish()

    def _emit_rounded(self) -> None:
        """Emit scores, the sum of their weights, and then rounded weights, times values."""
        args = self.args
        # the first time only the largest score and the sum of weights stay of each block
        for keys in self._all_keys():
            self._each_block(keys, self._weigh)
        self._load_factors()
        # the weights of a single block are still there
        are_several = args.past.key_count + args.key_count > self.form.most_keys

        def round_and_sum(keys: _Keys, first: Number, count: Number) -> None:
            if self.form.has_past:
                self._weigh(keys, first, count)
            else:
                with when(are_several):
                    self._weigh(keys, first, count)
            self._round(count)
            self._add_values(keys, first, count)

        for keys in self._all_keys():
            self._each_block(keys, round_and_sum)

    def _all_keys(self) -> list[_Keys]:
        """Return the keys of the past, if there is one, and those of the op itself."""
        args, form, mask = self.args, self.form, self.args.mask
        found: list[_Keys] = []
        if form.has_past:
            past = args.past.keys, args.past.values, form.key_size, form.value_size, args.past.key_count
            found.append(_Keys(*past, mask, causal=False))
            mask = mask.at(args.past.key_count * args.mask_key_stride) if form.masked else mask
        own = args.keys, args.values, args.key_stride, args.value_stride, args.key_count
        return [*found, _Keys(*own, mask, form.causal)]

    def _each_block(self, keys: _Keys, emit: _OfBlock) -> None:
        args, count = self.args, keys.length
        if keys.causal:
            behind = args.first_query + args.query_count
            # keys behind the last query are not read
            count = count.smaller(behind)
        size = self._block_size(count)
        with loop(count.divided_up(size)) as number:
            first = number * size
            left = count - first
            emit(keys, first, left.smaller(size))

    @property
    def _buffers(self) -> BufferOffsets:
        return BufferOffsets.of(self.form, self.width)

    @property
    def _lanes(self) -> Lanes:
        return self.code.lanes(self.args.scratch)

    def _at(self, offset: int) -> Floats:
        return self.args.scratch.at(offset)

    def _number(self, number: int) -> Number:
        return self.args.scratch.constant(number)

    def _load_queries(self) -> None:
        """Emit the transposition of the queries, times the scale of the scores."""
        args, lanes, size = self.args, self._lanes, self.form.key_size
        queries = self._at(self._buffers.queries)
        transpose = rows_to_columns(self.code, self.width)
        call(transpose, args.queries, queries, args.query_stride, size, args.query_count, self.width)
        with loop(self._number(size * self.width), lanes.width) as index:
            self._scale(queries.at(index), self.form.query_scale)

    def _scale(self, address: Floats, factor: ir.Value | float) -> None:
        self._lanes.put(address, [self._lanes.mul(self._lanes.load(address), factor)])

    def _fill(self, offset: int, rows: int, value: float) -> None:
        lanes, start = self._lanes, self._at(offset)
        with loop(self._number(rows * self.width), lanes.width) as index:
            lanes.put(start.at(index), [value])

    def _block_size(self, count: Number) -> Number:
        """Return the keys of all blocks but the last one: about equal parts, in multiples of what registers hold."""
        rows = Registers.of(self.code.target, self.width).rows
        some = select(count > 0, count, 1)
        even = some.divided_up(some.divided_up(self.form.most_keys))
        return even.divided_up(rows) * rows

    def _sum_values(self, known: _Keys, first: Number, count: Number) -> None:
        self._weigh(known, first, count)
        self._add_values(known, first, count)

    def _weigh(self, known: _Keys, first: Number, count: Number) -> None:
        """Emit the weights of a block of keys, and what they do to their sums."""
        code, form, width, buffers = self.code, self.form, self.width, self._buffers
        table, queries = self._at(buffers.scores), self._at(buffers.queries)
        sums = Sums(*(self._at(offset) for offset in (buffers.highest, buffers.total, buffers.correction)))
        if form.biased:
            self._bias(known, first, count)
        keys = known.keys.at(first * known.key_stride)
        call(scores(code, form, width), keys, queries, table, known.key_stride, count)
        call(scores_to_weights(code, width), table, sums, count)

    def _add_values(self, known: _Keys, first: Number, count: Number) -> None:
        """Emit the sums of values after a block of keys has its weights."""
        buffers = self._buffers
        table, correction, sums = (self._at(at) for at in (buffers.scores, buffers.correction, buffers.values))
        values = known.values.at(first * known.value_stride)
        function = weighted_values(self.code, self.form, self.width)
        call(function, values, table, correction, sums, known.value_stride, count)

    def _load_factors(self) -> None:
        """Emit the inverse of each sum of weights."""
        lanes, buffers = self._lanes, self._buffers
        with loop(self._number(self.width), lanes.width) as column:
            total = lanes.load(self._at(buffers.total).at(column))
            lanes.put(self._at(buffers.factor).at(column), [lanes.div(1.0, total)])

    def _round(self, count: Number) -> None:
        table, factors = self._at(self._buffers.scores), self._at(self._buffers.factor)
        call(rounded_weights(self.code, self.form, self.width), table, factors, count)

    def _bias(self, keys: _Keys, first: Number, count: Number) -> None:
        """Emit what is added to the scores of a block of keys, written where these are going to be."""
        code, args, table = self.code, self.args, self._at(self._buffers.scores)
        if self.form.masked:
            step = args.mask_key_stride
            mask = keys.mask.at(first * step)

            def spread_row() -> None:
                call(spread_mask(code, self.width), mask, table, count, step)

            def transpose_rows() -> None:
                # where all keys share an entry there is one row to transpose
                is_same = step == 0
                known = select(is_same, 1, count)
                transpose = rows_to_columns(code, self.width)
                call(transpose, mask, table, args.mask_stride, known, args.query_count, self.width)
                with when(is_same, likely=False):
                    call(repeat_scores(code, self.width), table, count)

            branch(args.mask_stride == 0, spread_row, transpose_rows)
        else:
            self._fill(self._buffers.scores, self.form.score_rows, 0.0)
        if keys.causal:
            call(hide_later_keys(code, self.width), table, count, args.first_query - first)

    def _finish(self) -> None:
        args, sums = self.args, self._at(self._buffers.values)
        if not self.form.rounds_weights:
            self._divide(sums, self._at(self._buffers.total))
        transpose = columns_to_rows(self.code, self.width)
        call(transpose, sums, args.result, args.result_stride, self.form.value_size, args.query_count, self.width)

    def _divide(self, sums: Floats, total: Floats) -> None:
        args, lanes = self.args, self._lanes
        # without a key sums are 0, and so is the result
        is_empty = args.key_count + args.past.key_count == 0
        with loop(self._number(self.width), lanes.width) as column:
            divisor = lanes.load(total.at(column))
            if self.form.nan_as_zero:
                # all scores of a query were -inf: its sums are 0
                divisor = lanes.select(lanes.compare("==", divisor, 0.0), 1.0, divisor)
            factor = lanes.div(1.0, lanes.select(is_empty, 1.0, divisor))
            with loop(self._number(self.form.value_size)) as feature:
                self._scale(sums.at(feature * self.width + column), factor)
        if self.form.nan_as_zero:
            self._drop_nan(sums, total)

    def _drop_nan(self, sums: Floats, total: Floats) -> None:
        """Emit the results of queries all of whose weights are NaN, where there are any: sums of zeros times values."""
        lanes = self._lanes
        builder, all_totals = lanes.builder, lanes.splat(0.0)
        # a NaN among the totals of all queries makes one of their sum
        for start in range(0, self.width, lanes.width):
            all_totals = lanes.add(all_totals, lanes.load(total.at(start)))
        sum_of_all = lanes.horizontal_sum(all_totals)
        with when(Truth(builder, builder.fcmp_unordered("uno", sum_of_all, sum_of_all)), likely=False):
            function = zeros_for_nan(self.code, self.form.value_size, self.width)
            for number, keys in enumerate(self._all_keys()):
                call(function, keys.values, total, sums, keys.value_stride, keys.length, int(number > 0))


def zeros_for_nan(code: Code, features: int, width: int) -> ir.Function:
    """Return `void (values, totals, sums, stride of values, number of keys, whether it was called for others before)`.

    The sums of a query whose total is NaN become those of the values, each times 0: NaN where a value is infinite.
    """

    @code.kernel(f"attention_zeros_{features}_{width}")
    def kernel(values: Floats, totals: Floats, sums: Floats, stride: Number, count: Number, begun: Number) -> None:
        is_first = begun == 0
        lanes, nothing = code.lanes(values), ir.Constant(FLOAT, 0.0)
        with loop(count.constant(features)) as feature:

            def add_key(key: Number, total: ir.Value, feature: Number = feature) -> ir.Value:
                value = values[key * stride + feature]
                return lanes.builder.fadd(total, lanes.builder.fmul(value, nothing))

            # the same for all queries: the sum of a feature of all values, each times 0
            zero = fold(count, nothing, add_key)
            with loop(count.constant(width), lanes.width) as column:
                address = sums.at(feature * width + column)
                is_nan = lanes.is_nan(lanes.load(totals.at(column)))
                known = lanes.load(address)
                zeros = lanes.select(is_first, zero, lanes.add(known, zero))
                lanes.put(address, [lanes.select(is_nan, zeros, known)])

    return kernel
