"""An attention as a step of a program: a thread's part of the queries of all samples and heads, block by block.

The rows of the step are the queries of all heads of all samples, [B, heads, S]. Which blocks a thread does follows from
its range of them: rows B heads S stand for N blocks, and those from `begin` to `end` for the blocks from
ceil(begin N / rows) to ceil(end N / rows). So all blocks are whole, and none is done twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from xdsl.ir import SSAValue

from ...dialect.ops.attention import Attention
from ...dialect.symbolic_sizes import Size, SymbolicShape
from ...dialect.tensors import shape_of
from ..llvm.builder import Code
from ..llvm.call_tables import SizeTable
from ..llvm.flow import call, loop, select, when
from ..llvm.values import NULL, Floats, Longs, Number
from ..program import EqualSizes, TiledRows, TileTime
from .block import BlockArguments, Past, query_blocks
from .form import WIDTHS, AttentionForm, BufferOffsets

WIDEST: Final = WIDTHS[-1]

TILE_US: Final = 10.0
"""Microseconds of a block of 64 queries with 128 keys of 64 features: how many keys there are only the call knows."""


def attention_rows(op: Attention, sizes: SizeTable) -> Size:
    """Return the rows of the step: queries of all heads of all samples."""
    samples, queries, _ = sizes.shapes[op.q]
    return samples * queries * Size.known(op.head_counts.queries)


def sizes_taken_as_equal(op: Attention, shapes: Mapping[SSAValue, SymbolicShape]) -> list[EqualSizes]:
    """Return sizes that have to be the same in a call: those of samples and of keys, and all of a mask but ones."""
    samples, queries, _ = shapes[op.q]
    (key_samples, keys, _), (value_samples, values, _) = (shapes[value] for value in (op.k, op.v))
    pairs = [EqualSizes(samples, key_samples), EqualSizes(samples, value_samples), EqualSizes(keys, values)]
    if op.mask is not None:
        *broadcast, mask_keys = shapes[op.mask]
        scores = (samples, Size.known(op.head_counts.queries), queries)
        pairs += [EqualSizes(*both, or_one=True) for both in zip(broadcast, scores, strict=True)]
        plus = shapes[op.past[0]][2] if op.past else Size.known(0)
        pairs.append(EqualSizes(mask_keys, keys, or_one=True, plus=plus))
    if op.past:
        (past_samples, _, past_keys, _), (value_samples, _, past_values, _) = (shapes[value] for value in op.past)
        pairs += [EqualSizes(samples, past_samples), EqualSizes(samples, value_samples)]
        pairs.append(EqualSizes(past_keys, past_values))
    return [pair for pair in pairs if not _holds_always(pair)]


def _holds_always(pair: EqualSizes) -> bool:
    if pair.or_one and pair.first == Size.known(1):
        return True
    return pair.first == pair.second and pair.plus == Size.known(0)


def attention_tiles() -> TiledRows:
    """Return how threads may cut those rows."""
    return TiledRows((TileTime(WIDEST, 1, TILE_US),), WIDEST)


def attention_scratch_bytes(op: Attention) -> int:
    """Return the bytes of scratch memory that a thread needs."""
    form = AttentionForm.of(op)
    return max(BufferOffsets.of(form, width).total_bytes for width in WIDTHS)


@dataclass(frozen=True)
class AttentionStep:
    """The code of a step."""

    code: Code
    sizes: SizeTable
    size_table: Longs
    op: Attention
    pointers: Mapping[SSAValue, Floats]
    """The address of each operand and result, row-major floats."""
    scratch: Floats

    def emit(self, begin: Number, end: Number) -> None:
        """Emit the blocks that stand for some rows."""
        heads = self.op.head_counts.queries
        samples, queries, _ = (self._value(size) for size in self.sizes.shapes[self.op.q])
        of_head = queries.divided_up(WIDEST)
        pairs = samples * heads
        blocks, all_rows = pairs * of_head, pairs * queries
        with when(all_rows > 0):
            # rows of the range to blocks, rounded up at both ends
            first, stop = ((row * blocks).divided_up(all_rows) for row in (begin, end))
            with loop(stop - first) as done:
                # blocks of a head follow each other, then heads, then samples
                number = first + done
                pair, block = number // of_head, number % of_head
                most = AttentionForm.of(self.op).most_blocks(WIDEST)
                place = block % most
                # some blocks of a head are done together
                with when((place == 0) | (done == 0)):
                    some = (stop - number).smaller(place.constant(most) - place)
                    query = block * WIDEST
                    count = (some * WIDEST).smaller(queries - query)
                    whole = count - count % WIDEST
                    for first_query, part in ((query, whole), (query + whole, count - whole)):
                        self._emit_blocks(pair // heads, pair % heads, first_query, part)

    def _value(self, size: Size) -> Number:
        return self.sizes.number(self.size_table, size)

    def _emit_blocks(self, sample: Number, head: Number, query: Number, count: Number) -> None:
        """Emit so many queries from one on: whole blocks of the widest, or one by the narrowest code that takes it."""
        op, form = self.op, AttentionForm.of(self.op)
        # some heads of queries share a head of keys
        key_head = head // (op.head_counts.queries // op.head_counts.keys)
        keys = self._value(self.sizes.shapes[op.k][1])
        mask, mask_stride, mask_key_stride = self._mask(sample, head, query)
        query_stride, key_stride, value_stride, result_stride = (
            query.constant(shape_of(value)[2]) for value in (op.q, op.k, op.v, op.result)
        )
        first_key = query.constant(0)
        arguments = BlockArguments(
            queries=self._row(op.q, (sample, query, head), form.key_size),
            keys=self._row(op.k, (sample, first_key, key_head), form.key_size),
            values=self._row(op.v, (sample, first_key, key_head), form.value_size),
            mask=mask,
            result=self._row(op.result, (sample, query, head), form.value_size),
            scratch=self.scratch,
            query_stride=query_stride,
            key_stride=key_stride,
            value_stride=value_stride,
            mask_stride=mask_stride,
            mask_key_stride=mask_key_stride,
            result_stride=result_stride,
            query_count=count,
            key_count=keys,
            first_query=query,
            past=self._past(sample, key_head),
        )
        self._call_narrowest(form, arguments)

    def _past(self, sample: Number, key_head: Number) -> Past:
        op = self.op
        if not op.past:
            return Past(self._nothing, self._nothing, sample.constant(0))
        count = self._value(self.sizes.shapes[op.past[0]][2])
        pair = sample * op.head_counts.keys + key_head
        keys, values = (self.pointers[value].at(pair * count * shape_of(value)[3]) for value in op.past)
        return Past(keys, values, count)

    @property
    def _nothing(self) -> Floats:
        return Floats(self.scratch.builder, NULL)

    def _call_narrowest(self, form: AttentionForm, arguments: BlockArguments) -> None:
        count = arguments.query_count
        for less, width in pairwise((0, *WIDTHS)):
            most = count if width == WIDEST else count.constant(width)
            with when((count > less) & (count <= most)):
                call(query_blocks(self.code, form, width), arguments)

    def _row(self, value: SSAValue, position: tuple[Number, Number, Number], features: int) -> Floats:
        """Return the address of the features of a head, in a row of a sample."""
        sample, row, head = position
        index = sample * self._value(self.sizes.shapes[value][1]) + row
        return self.pointers[value].at(index * shape_of(value)[2] + head * features)

    def _mask(self, sample: Number, head: Number, query: Number) -> tuple[Floats, Number, Number]:
        """Return the mask's entries for a query, and the distances to those of the next query and of the next key.

        They are 0 where all have the same.
        """
        mask, nowhere = self.op.mask, query.constant(0)
        if mask is None:
            return self._nothing, nowhere, nowhere
        _, heads, queries, keys = sizes = [self._value(size) for size in self.sizes.shapes[mask]]
        head_stride = queries * keys
        strides = (heads * head_stride, head_stride, keys, query.constant(1))
        # an axis of size 1 stands for all indices
        own = [select(size == 1, 0, stride) for size, stride in zip(sizes, strides, strict=True)]
        offset = nowhere
        for index, stride in zip((sample, head, query), own, strict=False):
            offset = offset + index * stride
        return self.pointers[mask].at(offset), own[2], own[3]
