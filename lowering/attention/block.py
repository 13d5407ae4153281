"""Blocks of queries of one head against all keys, block by block, so that no more scores exist than those of a block.

```
for each block of queries:
    Q  = its queries, transposed and scaled                       [features, width]
for each block of keys, copied where several blocks of queries read it:
    for each block of queries:
        S  = its mask, transposed, where there is one             [keys, width]
        S  = K Q (+ S)                                            products.scores
        S, sum, correction = weights of S                         weights.scores_to_weights
        O  = O correction + V^T S                                 products.weighted_values
for each block of queries:
    result = O / sum, transposed
```

Rows of keys lie as far apart as all heads are wide: at such distances they leave most of a first-level cache unused,
which copies do not.

Where weights are rounded, their sum has to be known before: all blocks of keys are gone through twice, unless there is
one. The second time O is multiplied by 1, as the largest score is known, and the result is O.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from llvmlite import ir

from ..llvm.builder import Code
from ..llvm.flow import branch, call, fold, loop, select, when
from ..llvm.matrix_tiles import ROWS as TILE_ROWS
from ..llvm.matrix_tiles import MatrixTiles
from ..llvm.transposition import columns_to_rows, rows_to_columns
from ..llvm.values import FLOAT, Bytes, Floats, Index, Number, Truth
from ..llvm.vectors import Lanes
from .form import DEPTH, AttentionForm, BlockOffsets, BufferOffsets, Registers
from .products import scores, weighted_values
from .tile_products import left_of_keys, left_of_values, right_in_tiles, tile_products
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
    """Arguments of the function of blocks; strides are in floats, from one row to the next."""

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


_OfBlock = Callable[["_Block", _Keys, Number, Number], None]
"""Emits something for a block of queries and a block of keys: from one on, so many."""


def query_blocks(code: Code, form: AttentionForm, width: int) -> ir.Function:
    """Return `void (arguments...)`, the function of a block of at most `width` queries, or of some whole ones."""

    @code.kernel(f"attention_{form.key}_{width}")
    def kernel(args: BlockArguments) -> None:
        _Blocks(code, form, width, args).emit()

    return kernel


@dataclass(frozen=True)
class _Blocks:
    """Blocks of queries that read each block of keys one after the other."""

    code: Code
    form: AttentionForm
    width: int
    args: BlockArguments

    def emit(self) -> None:
        """Emit all of them."""
        if self.form.in_tiles(self.code.target):
            tiles = MatrixTiles(self.args.scratch.builder)
            tiles.configure(self.args.scratch.cast(Bytes))
            self._emit_all()
            tiles.release()
        else:
            self._emit_all()

    def _emit_all(self) -> None:
        with self._each() as block:
            block.begin()
        if self.form.rounds_weights:
            self._emit_rounded()
        else:
            for keys in self._all_keys():
                self._each_block(keys, _Block.sum_values)
        with self._each() as block:
            block.finish(self._all_keys())

    def _emit_rounded(self) -> None:
        """Emit scores, the sum of their weights, and then rounded weights, times values."""
        args = self.args
        # the first time only the largest score and the sum of weights stay of each block
        for keys in self._all_keys():
            self._each_block(keys, _Block.weigh)
        with self._each() as block:
            block.load_factors()
        # the weights of a single block are still there
        are_several = args.past.key_count + args.key_count > self.form.most_keys

        def round_and_sum(block: "_Block", keys: _Keys, first: Number, count: Number) -> None:
            if self.form.has_past:
                block.weigh(keys, first, count)
            else:
                with when(are_several):
                    block.weigh(keys, first, count)
            block.round(count)
            block.add_values(keys, first, count)

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

    @contextmanager
    def _each(self) -> Generator["_Block"]:
        """Emit a loop over the blocks of queries; yields the block."""
        args, width = self.args, self.width
        size = BlockOffsets.of(self.form, width).end
        start = args.scratch.at(BufferOffsets.of(self.form, width).blocks)
        if self.form.most_blocks(width) == 1:
            yield _Block(self.code, self.form, width, args, start, args.query_count.constant(0))
            return
        with loop(args.query_count, width) as query:
            own = args._replace(
                queries=args.queries.at(query * args.query_stride),
                result=args.result.at(query * args.result_stride),
                query_count=(args.query_count - query).smaller(width),
                first_query=args.first_query + query,
            )
            yield _Block(self.code, self.form, width, own, start.at((query // width) * size), query)

    def _each_block(self, keys: _Keys, emit: _OfBlock) -> None:
        """Emit something for each block of keys and each block of queries."""
        args, count = self.args, keys.length
        size = self._block_size(count)
        if keys.causal:
            # keys behind the last query are not read
            count = count.smaller(args.first_query + args.query_count)
        with loop(count.divided_up(size)) as number:
            first = number * size
            some = (count - first).smaller(size)
            near = self._copied(keys, first, some)
            with self._each() as block:
                if keys.causal:
                    left = block.args.first_query + block.args.query_count - first
                    read = some.smaller(left)
                    with when(read > 0):
                        emit(block, near, first, read)
                else:
                    emit(block, near, first, some)

    def _copied(self, keys: _Keys, first: Number, count: Number) -> _Keys:
        """Return a block of keys and values, in a copy where there are gaps in them and several blocks read them."""
        form, args = self.form, self.args
        here = keys._replace(
            keys=keys.keys.at(first * keys.key_stride), values=keys.values.at(first * keys.value_stride)
        )
        if self.form.in_tiles(self.code.target):
            return self._as_tiles(here, count)
        if form.most_blocks(self.width) == 1 or isinstance(keys.key_stride, int) or isinstance(keys.value_stride, int):
            return here
        buffers, pays = BufferOffsets.of(form, self.width), args.query_count > 2 * self.width
        copies = (
            (here.keys, keys.key_stride, form.key_size, buffers.keys),
            (here.values, keys.value_stride, form.value_size, buffers.values),
        )
        found: list[tuple[Floats, Number]] = []
        for source, stride, features, offset in copies:
            target = args.scratch.at(offset)
            with when(pays):
                call(copied_rows(self.code, features), source, target, stride, count)
            found.append(select(pays, (target, count.constant(features)), (source, stride)))
        (near_keys, key_stride), (near_values, value_stride) = found
        return here._replace(keys=near_keys, values=near_values, key_stride=key_stride, value_stride=value_stride)

    def _as_tiles(self, keys: _Keys, count: Number) -> _Keys:
        """Return a block of keys and values as tiles have them."""
        code, form, scratch = self.code, self.form, self.args.scratch
        buffers = BufferOffsets.of(form, self.width)
        near_keys, near_values, memory = (scratch.at(at) for at in (buffers.keys, buffers.values, buffers.scores))
        strides = (_as_number(count, stride) for stride in (keys.key_stride, keys.value_stride))
        key_stride, value_stride = strides
        call(left_of_keys(code, form.key_size), keys.keys, near_keys, key_stride, count)
        turn = left_of_values(code, form.value_size, self.width, form.most_keys // DEPTH)
        call(turn, keys.values, near_values, memory, value_stride, count)
        return keys._replace(keys=near_keys, values=near_values)

    def _block_size(self, count: Number) -> Number:
        """Return the keys of all blocks but the last one: about equal parts, in multiples of what registers hold."""
        rows = DEPTH if self.form.in_tiles(self.code.target) else Registers.of(self.code.target, self.width).rows
        some = select(count > 0, count, 1)
        even = some.divided_up(some.divided_up(self.form.most_keys))
        return even.divided_up(rows) * rows


@dataclass(frozen=True)
class _Block:
    """A block of queries."""

    code: Code
    form: AttentionForm
    width: int
    args: BlockArguments
    """Queries, result and counts are the own ones of the block; keys, values and mask serve all blocks."""
    memory: Floats
    """The block's own arrays."""
    query: Number
    """Its first query, counted from the first one of all blocks."""

    def begin(self) -> None:
        """Emit sums without a key."""
        offsets = self._offsets
        self._load_queries()
        self._fill(self.memory.at(offsets.sums), self.form.value_size, 0.0)
        self._fill(self.memory.at(offsets.highest), 1, -inf)
        self._fill(self.memory.at(offsets.total), 1, 0.0)

    @property
    def _offsets(self) -> BlockOffsets:
        return BlockOffsets.of(self.form, self.width)

    @property
    def _table(self) -> Floats:
        """The scores, then the weights of a block of keys."""
        return self.args.scratch.at(BufferOffsets.of(self.form, self.width).scores)

    @property
    def _lanes(self) -> Lanes:
        return self.code.lanes(self.args.scratch)

    def _number(self, number: int) -> Number:
        return self.args.scratch.constant(number)

    def _load_queries(self) -> None:
        """Emit the transposition of the queries, times the scale of the scores."""
        args, lanes, size = self.args, self._lanes, self.form.key_size
        queries = self.memory.at(self._offsets.queries)
        transpose = rows_to_columns(self.code, self.width)
        call(transpose, args.queries, queries, args.query_stride, size, args.query_count, self.width)
        with loop(self._number(size * self.width), lanes.width) as index:
            self._scale(queries.at(index), self.form.query_scale)
        if self.form.in_tiles(self.code.target):
            groups = size // DEPTH
            function = right_in_tiles(self.code, self.width, groups)
            call(function, queries, self.memory.at(self._offsets.query_tiles), groups)

    def _scale(self, address: Floats, factor: ir.Value | float) -> None:
        self._lanes.put(address, [self._lanes.mul(self._lanes.load(address), factor)])

    def _fill(self, start: Floats, rows: int, value: float) -> None:
        lanes = self._lanes
        with loop(self._number(rows * self.width), lanes.width) as index:
            lanes.put(start.at(index), [value])

    def sum_values(self, keys: _Keys, first: Number, count: Number) -> None:
        """Emit the weights of a block of keys, and the sums of its values."""
        self.weigh(keys, first, count)
        self.add_values(keys, first, count)

    def weigh(self, keys: _Keys, first: Number, count: Number) -> None:
        """Emit the weights of a block of keys, and what they do to their sums."""
        code, form, width, offsets, table = self.code, self.form, self.width, self._offsets, self._table
        sums = Sums(*(self.memory.at(offset) for offset in (offsets.highest, offsets.total, offsets.correction)))
        if form.biased:
            self._bias(keys, first, count)
        queries = self.memory.at(offsets.queries)
        if self.form.in_tiles(self.code.target):
            groups = form.key_size // DEPTH
            function = tile_products(code, width, groups, adds=form.biased)
            tiles = self.memory.at(offsets.query_tiles)
            call(function, keys.keys, tiles, table, count.divided_up(TILE_ROWS), groups)
        else:
            call(scores(code, form, width), keys.keys, queries, table, keys.key_stride, count)
        call(scores_to_weights(code, width), table, sums, count)

    def add_values(self, keys: _Keys, first: Number, count: Number) -> None:
        """Emit the sums of values after a block of keys has its weights."""
        del first
        offsets, memory = self._offsets, self.memory
        correction, sums = memory.at(offsets.correction), memory.at(offsets.sums)
        if self.form.in_tiles(self.code.target):
            self._add_tiles(keys, correction, sums, count)
            return
        function = weighted_values(self.code, self.form, self.width)
        call(function, keys.values, self._table, correction, sums, keys.value_stride, count)

    def _add_tiles(self, keys: _Keys, correction: Floats, sums: Floats, count: Number) -> None:
        """Emit the sums by tiles; keys behind the last have the weight 0."""
        code, form, width, lanes = self.code, self.form, self.width, self._lanes
        groups, table = form.most_keys // DEPTH, self._table
        weights = self.args.scratch.at(BufferOffsets.of(form, width).weights)
        depth = count.divided_up(DEPTH)
        with loop((depth * DEPTH - count) * width, lanes.width) as index:
            lanes.put(table.at(count * width + index), [0.0])
        call(right_in_tiles(code, width, groups), table, weights, depth)
        with loop(self._number(width), lanes.width) as column:
            factor = lanes.load(correction.at(column))
            with loop(self._number(form.value_size)) as feature:
                self._scale(sums.at(feature * width + column), factor)
        function = tile_products(code, width, groups, adds=True)
        call(function, keys.values, weights, sums, form.value_size // TILE_ROWS, depth)

    def load_factors(self) -> None:
        """Emit the inverse of each sum of weights."""
        lanes, offsets = self._lanes, self._offsets
        with loop(self._number(self.width), lanes.width) as column:
            total = lanes.load(self.memory.at(offsets.total).at(column))
            lanes.put(self.memory.at(offsets.factor).at(column), [lanes.div(1.0, total)])

    def round(self, count: Number) -> None:
        """Emit the rounded weights of a block of keys."""
        factors = self.memory.at(self._offsets.factor)
        call(rounded_weights(self.code, self.form, self.width), self._table, factors, count)

    def _bias(self, keys: _Keys, first: Number, count: Number) -> None:
        """Emit what is added to the scores of a block of keys, written where these are going to be."""
        code, args, table = self.code, self.args, self._table
        if self.form.masked:
            step = args.mask_key_stride
            mask = keys.mask.at(first * step + self.query * args.mask_stride)

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
            self._fill(table, self.form.score_rows, 0.0)
        if keys.causal:
            call(hide_later_keys(code, self.width), table, count, args.first_query - first)

    def finish(self, all_keys: Sequence[_Keys]) -> None:
        """Emit the results."""
        args, sums = self.args, self.memory.at(self._offsets.sums)
        if not self.form.rounds_weights:
            self._divide(sums, self.memory.at(self._offsets.total), all_keys)
        transpose = columns_to_rows(self.code, self.width)
        call(transpose, sums, args.result, args.result_stride, self.form.value_size, args.query_count, self.width)

    def _divide(self, sums: Floats, total: Floats, all_keys: Sequence[_Keys]) -> None:
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
            self._drop_nan(sums, total, all_keys)

    def _drop_nan(self, sums: Floats, total: Floats, all_keys: Sequence[_Keys]) -> None:
        """Emit the results of queries all of whose weights are NaN, where there are any: sums of zeros times values."""
        lanes = self._lanes
        builder, all_totals = lanes.builder, lanes.splat(0.0)
        # a NaN among the totals of all queries makes one of their sum
        for start in range(0, self.width, lanes.width):
            all_totals = lanes.add(all_totals, lanes.load(total.at(start)))
        sum_of_all = lanes.horizontal_sum(all_totals)
        with when(Truth(builder, builder.fcmp_unordered("uno", sum_of_all, sum_of_all)), likely=False):
            function = zeros_for_nan(self.code, self.form.value_size, self.width)
            for number, keys in enumerate(all_keys):
                call(function, keys.values, total, sums, keys.value_stride, keys.length, int(number > 0))


def _as_number(place: Number, stride: Index) -> Number:
    return place.constant(stride) if isinstance(stride, int) else stride


def copied_rows(code: Code, features: int) -> ir.Function:
    """Return `void (rows, target, stride, number of rows)`, which writes rows one behind the other."""

    @code.kernel(f"attention_rows_{features}")
    def kernel(rows: Floats, target: Floats, stride: Number, count: Number) -> None:
        with loop(count) as row:
            source, copy = rows.at(row * stride), target.at(row * features)
            first, width = 0, code.target.lanes
            while first < features:
                # what is left behind the last whole vector is copied by narrower ones
                width = width if first + width <= features else width // 2
                if first + width <= features:
                    lanes = code.lanes(rows, width)
                    lanes.store(lanes.load(source.at(first)), copy.at(first))
                    first += width

    return kernel


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
