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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from llvmlite import ir

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
from ..llvm.transposition import columns_to_rows, rows_to_columns
from ..llvm.vectors import FLOAT
from .form import AttentionForm, BufferOffsets, Registers
from .products import scores, weighted_values
from .weights import (
    hide_later_keys,
    repeat_scores,
    rounded_weights,
    scores_to_weights,
    spread_mask,
)


class BlockArguments(NamedTuple):
    """Arguments of a block's function, in their order; strides are in floats, from one row to the next."""

    queries: ir.Value
    keys: ir.Value
    values: ir.Value
    mask: ir.Value
    """Address of its entries for the first query; null where there is none."""
    result: ir.Value
    scratch: ir.Value
    query_stride: ir.Value
    key_stride: ir.Value
    value_stride: ir.Value
    mask_stride: ir.Value
    """0 where all queries share a row."""
    mask_key_stride: ir.Value
    """1, or 0 where all keys share an entry."""
    result_stride: ir.Value
    query_count: ir.Value
    key_count: ir.Value
    first_query: ir.Value
    """The number of the first query, among all queries of its head."""
    past_keys: ir.Value
    """[past_count, features], and so are the values; null where there is no past."""
    past_values: ir.Value
    past_count: ir.Value


BLOCK_TYPES = [POINTER] * 6 + [I64] * 9 + [POINTER] * 2 + [I64]


class _Keys(NamedTuple):
    """Keys and values one behind the other, with the distance to the next one in floats, and the mask's entries."""

    keys: ir.Value
    values: ir.Value
    key_stride: ir.Value
    value_stride: ir.Value
    length: ir.Value
    mask: ir.Value
    causal: bool
    """Whether each query reads but those up to its own number."""


def query_block(code: Code, form: AttentionForm, width: int) -> ir.Function:
    """Return `void (arguments...)`, the function of blocks of at most `width` queries."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        _Block(code, builder, form, width, BlockArguments(*args)).emit()

    return code.function(f"attention_{form.key}_{width}", BLOCK_TYPES, body)


@dataclass(frozen=True)
class _Block:
    code: Code
    builder: ir.IRBuilder
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
        builder, args = self.builder, self.args
        for keys in self._all_keys():
            self._each_block(keys, self._weigh)
        self._load_factors()
        keys_of_all = builder.add(args.past_count, args.key_count)
        again = builder.icmp_signed(">", keys_of_all, i64(self.form.most_keys))
        if self.form.has_past:
            again = ir.Constant(again.type, 1)

        def round_and_sum(keys: _Keys, first: ir.Value, count: ir.Value) -> None:
            with builder.if_then(again):
                self._weigh(keys, first, count)
            self._round(count)
            self._add_values(keys, first, count)

        for keys in self._all_keys():
            self._each_block(keys, round_and_sum)

    def _all_keys(self) -> list[_Keys]:
        """Return the keys of the past, if there is one, and those of the op itself."""
        builder, args, form, mask = self.builder, self.args, self.form, self.args.mask
        found: list[_Keys] = []
        if form.has_past:
            strides = i64(form.key_size), i64(form.value_size)
            found.append(_Keys(args.past_keys, args.past_values, *strides, args.past_count, mask, causal=False))
            mask = float_at(builder, mask, builder.mul(args.past_count, args.mask_key_stride)) if form.masked else mask
        own = args.keys, args.values, args.key_stride, args.value_stride, args.key_count, mask
        return [*found, _Keys(*own, form.causal)]

    def _each_block(self, keys: _Keys, emit: Callable[[_Keys, ir.Value, ir.Value], None]) -> None:
        """Emit something for all blocks of some keys: from one on, so many."""
        builder, args, count = self.builder, self.args, keys.length
        if keys.causal:
            behind = builder.add(args.first_query, args.query_count)
            count = builder.select(builder.icmp_signed("<", count, behind), count, behind)
        size = self._block_size(count)
        with counted_loop(builder, _divided_up(builder, count, size)) as number:
            first = builder.mul(number, size)
            left = builder.sub(count, first)
            emit(keys, first, builder.select(builder.icmp_signed("<", left, size), left, size))

    @property
    def _buffers(self) -> BufferOffsets:
        return BufferOffsets.of(self.form, self.width)

    def _at(self, address: int) -> ir.Value:
        return float_at(self.builder, self.args.scratch, i64(address))

    def _load_queries(self) -> None:
        """Emit the transposition of the queries, times the scale of the scores."""
        code, builder, args = self.code, self.builder, self.args
        lanes, size, queries = code.lanes(builder), i64(self.form.key_size), self._at(self._buffers.queries)
        transpose, width = rows_to_columns(code, self.width), i64(self.width)
        builder.call(transpose, [args.queries, queries, args.query_stride, size, args.query_count, width])
        with counted_loop(builder, i64(self.form.key_size * self.width), lanes.width) as index:
            address = float_at(builder, queries, index)
            lanes.store(lanes.mul(lanes.load(address), self.form.query_scale), address, FLOAT_BYTES * lanes.width)

    def _fill(self, address: int, rows: int, value: float) -> None:
        lanes, start = self.code.lanes(self.builder), self._at(address)
        with counted_loop(self.builder, i64(rows * self.width), lanes.width) as index:
            lanes.store(value, float_at(self.builder, start, index), FLOAT_BYTES * lanes.width)

    def _block_size(self, count: ir.Value) -> ir.Value:
        """Return the keys of all blocks but the last one: about equal parts, in multiples of what registers hold."""
        builder, rows = self.builder, i64(Registers.of(self.code.target, self.width).rows)
        some = builder.select(builder.icmp_signed(">", count, i64(0)), count, i64(1))
        even = _divided_up(builder, some, _divided_up(builder, some, i64(self.form.most_keys)))
        return builder.mul(_divided_up(builder, even, rows), rows)

    def _sum_values(self, known: _Keys, first: ir.Value, count: ir.Value) -> None:
        """Emit what a block of keys does to the sums."""
        self._weigh(known, first, count)
        self._add_values(known, first, count)

    def _weigh(self, known: _Keys, first: ir.Value, count: ir.Value) -> None:
        """Emit the weights of a block of keys, and what they do to their sums."""
        code, builder, form, width, buffers = self.code, self.builder, self.form, self.width, self._buffers
        table, queries = self._at(buffers.scores), self._at(buffers.queries)
        states = [self._at(address) for address in (buffers.highest, buffers.total, buffers.correction)]
        if form.biased:
            self._bias(known, first, count)
        keys = float_at(builder, known.keys, builder.mul(first, known.key_stride))
        builder.call(scores(code, form, width), [keys, queries, table, known.key_stride, count])
        builder.call(scores_to_weights(code, width), [table, *states, count])

    def _add_values(self, known: _Keys, first: ir.Value, count: ir.Value) -> None:
        """Emit the sums of values after a block of keys has its weights."""
        builder, buffers = self.builder, self._buffers
        table, correction, sums = (self._at(at) for at in (buffers.scores, buffers.correction, buffers.values))
        values = float_at(builder, known.values, builder.mul(first, known.value_stride))
        function = weighted_values(self.code, self.form, self.width)
        builder.call(function, [values, table, correction, sums, known.value_stride, count])

    def _load_factors(self) -> None:
        """Emit the inverse of each sum of weights."""
        lanes, buffers = self.code.lanes(self.builder), self._buffers
        with counted_loop(self.builder, i64(self.width), lanes.width) as column:
            total = lanes.load(float_at(self.builder, self._at(buffers.total), column))
            factor = float_at(self.builder, self._at(buffers.factor), column)
            lanes.store(lanes.div(1.0, total), factor, FLOAT_BYTES * lanes.width)

    def _round(self, count: ir.Value) -> None:
        """Emit the rounding of the weights of a block of keys."""
        table, factors = self._at(self._buffers.scores), self._at(self._buffers.factor)
        self.builder.call(rounded_weights(self.code, self.form, self.width), [table, factors, count])

    def _bias(self, keys: _Keys, first: ir.Value, count: ir.Value) -> None:
        """Emit what is added to the scores of a block of keys, written where these are going to be."""
        code, builder, args, table = self.code, self.builder, self.args, self._at(self._buffers.scores)
        if self.form.masked:
            step = args.mask_key_stride
            mask = float_at(builder, keys.mask, builder.mul(first, step))
            shared = builder.icmp_signed("==", args.mask_stride, i64(0))
            with builder.if_else(shared) as (one_row, own_rows):
                with one_row:
                    builder.call(spread_mask(code, self.width), [mask, table, count, step])
                with own_rows:
                    same = builder.icmp_signed("==", step, i64(0))
                    known = builder.select(same, i64(1), count)
                    arguments = [mask, table, args.mask_stride, known, args.query_count, i64(self.width)]
                    builder.call(rows_to_columns(code, self.width), arguments)
                    with builder.if_then(same, likely=False):
                        builder.call(repeat_scores(code, self.width), [table, count])
        else:
            self._fill(self._buffers.scores, self.form.score_rows, 0.0)
        if keys.causal:
            distance = builder.sub(args.first_query, first)
            builder.call(hide_later_keys(code, self.width), [table, count, distance])

    def _finish(self) -> None:
        """Emit the division by the sums of weights, and the transposition of the result."""
        code, builder, args, size = self.code, self.builder, self.args, self.form.value_size
        sums = self._at(self._buffers.values)
        if not self.form.rounds_weights:
            self._divide(sums, self._at(self._buffers.total))
        transpose, width = columns_to_rows(code, self.width), i64(self.width)
        builder.call(transpose, [sums, args.result, args.result_stride, i64(size), args.query_count, width])

    def _divide(self, sums: ir.Value, total: ir.Value) -> None:
        """Emit the division of the sums by those of the weights."""
        builder, args, size = self.builder, self.args, self.form.value_size
        lanes = self.code.lanes(builder)
        is_empty = builder.icmp_signed("==", builder.add(args.key_count, args.past_count), i64(0))
        with counted_loop(builder, i64(self.width), lanes.width) as column:
            divisor = lanes.load(float_at(builder, total, column))
            if self.form.nan_as_zero:
                divisor = lanes.select(lanes.compare("==", divisor, 0.0), 1.0, divisor)
            factor = lanes.div(1.0, lanes.select(is_empty, 1.0, divisor))
            with counted_loop(builder, i64(size)) as feature:
                address = float_at(builder, sums, builder.add(builder.mul(feature, i64(self.width)), column))
                lanes.store(lanes.mul(lanes.load(address), factor), address, FLOAT_BYTES * lanes.width)
        if self.form.nan_as_zero:
            self._drop_nan(sums, total)

    def _drop_nan(self, sums: ir.Value, total: ir.Value) -> None:
        """Emit the results of queries all of whose weights are NaN, where there are any: sums of zeros times values."""
        builder, lanes = self.builder, self.code.lanes(self.builder)
        all_totals: ir.Value = lanes.splat(0.0)
        for start in range(0, self.width, lanes.width):
            all_totals = lanes.add(all_totals, lanes.load(float_at(builder, total, i64(start))))
        sum_of_all = lanes.horizontal_sum(all_totals)
        with builder.if_then(builder.fcmp_unordered("uno", sum_of_all, sum_of_all), likely=False):
            function = zeros_for_nan(self.code, self.form.value_size, self.width)
            for number, keys in enumerate(self._all_keys()):
                begun = i64(int(number > 0))
                builder.call(function, [keys.values, total, sums, keys.value_stride, keys.length, begun])


def zeros_for_nan(code: Code, features: int, width: int) -> ir.Function:
    """Return `void (values, totals, sums, stride of values, number of keys, whether it was called for others before)`.

    The sums of a query whose total is NaN become those of the values, each times 0: NaN where a value is infinite.
    """

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        values, totals, sums, stride, count, begun = args
        is_first = builder.icmp_signed("==", begun, i64(0))
        lanes, nothing = code.lanes(builder), ir.Constant(FLOAT, 0.0)
        with counted_loop(builder, i64(features)) as feature:

            def add_key(key: ir.Value, carried: Sequence[ir.Value], feature: ir.Value = feature) -> list[ir.Value]:
                address = float_at(builder, values, builder.add(builder.mul(key, stride), feature))
                return [builder.fadd(carried[0], builder.fmul(builder.load(address, typ=FLOAT), nothing))]

            (zero,) = reduce_loop(builder, count, [nothing], add_key)
            with counted_loop(builder, i64(width), lanes.width) as column:
                address = float_at(builder, sums, builder.add(builder.mul(feature, i64(width)), column))
                is_nan = lanes.is_nan(lanes.load(float_at(builder, totals, column)))
                known = lanes.load(address)
                zeros = lanes.select(is_first, zero, lanes.add(known, zero))
                lanes.store(lanes.select(is_nan, zeros, known), address, FLOAT_BYTES * lanes.width)

    return code.function(f"attention_zeros_{features}_{width}", [POINTER] * 3 + [I64] * 3, body)


def _divided_up(builder: ir.IRBuilder, number: ir.Value, divisor: ir.Value) -> ir.Value:
    return builder.udiv(builder.sub(builder.add(number, divisor), i64(1)), divisor)
