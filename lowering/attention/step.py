"""An attention as a step of a program: a thread's part of the queries of all samples and heads, block by block.

The rows of the step are the queries of all heads of all samples, [B, heads, S]. Which blocks a thread does follows from
its range of them: rows B heads S stand for N blocks, and those from `begin` to `end` for the blocks from
ceil(begin N / rows) to ceil(end N / rows). So all blocks are whole, and none is done twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from llvmlite import ir
from xdsl.ir import SSAValue

from ...dialect.ops.attention import Attention
from ...dialect.symbolic_sizes import Size, SymbolicShape
from ...dialect.tensors import shape_of
from ..llvm.builder import POINTER, Code, counted_loop, float_at, i64
from ..llvm.call_tables import SizeTable
from ..llvm.values import Longs
from ..program import EqualSizes, TiledRows, TileTime
from .block import BlockArguments, query_block
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
    return BufferOffsets.of(AttentionForm.of(op), WIDEST).total_bytes


class Range(NamedTuple):
    """Rows of the step from `begin` to the one before `end`."""

    begin: ir.Value
    end: ir.Value


@dataclass(frozen=True)
class AttentionStep:
    """The code of a step."""

    code: Code
    builder: ir.IRBuilder
    sizes: SizeTable
    size_table: Longs
    op: Attention
    pointers: dict[SSAValue, ir.Value]
    """The address of each operand and result, row-major floats."""
    scratch: ir.Value

    def emit(self, rows: Range) -> None:
        """Emit the blocks that stand for some rows."""
        builder, heads = self.builder, i64(self.op.head_counts.queries)
        samples, queries, _ = (self._value(size) for size in self.sizes.shapes[self.op.q])
        of_head = self._blocks(queries)
        pairs = builder.mul(samples, heads)
        blocks, all_rows = builder.mul(pairs, of_head), builder.mul(pairs, queries)
        with builder.if_then(builder.icmp_signed(">", all_rows, i64(0))):
            first, end = (_divided_up(builder, builder.mul(row, blocks), all_rows) for row in rows)
            with counted_loop(builder, builder.sub(end, first)) as done:
                number = builder.add(first, done)
                pair, block = builder.udiv(number, of_head), builder.urem(number, of_head)
                sample, head = builder.udiv(pair, heads), builder.urem(pair, heads)
                self._emit_block(sample, head, builder.mul(block, i64(WIDEST)))

    def _blocks(self, queries: ir.Value) -> ir.Value:
        return _divided_up(self.builder, queries, i64(WIDEST))

    def _value(self, size: Size) -> ir.Value:
        return self.sizes.number(self.size_table, size).value

    def _emit_block(self, sample: ir.Value, head: ir.Value, query: ir.Value) -> None:
        """Emit a block of queries from one on, by the narrowest code that takes them all."""
        builder, op = self.builder, self.op
        shared = i64(op.head_counts.queries // op.head_counts.keys)
        key_head = builder.udiv(head, shared)
        form, queries, keys = (
            AttentionForm.of(op),
            *(self._value(self.sizes.shapes[value][1]) for value in (op.q, op.k)),
        )
        left = builder.sub(queries, query)
        mask, mask_stride, mask_key_stride = self._mask(sample, head, query)
        arguments = BlockArguments(
            queries=self._row(op.q, (sample, query, head), form.key_size),
            keys=self._row(op.k, (sample, i64(0), key_head), form.key_size),
            values=self._row(op.v, (sample, i64(0), key_head), form.value_size),
            mask=mask,
            result=self._row(op.result, (sample, query, head), form.value_size),
            scratch=self.scratch,
            query_stride=i64(shape_of(op.q)[2]),
            key_stride=i64(shape_of(op.k)[2]),
            value_stride=i64(shape_of(op.v)[2]),
            mask_stride=mask_stride,
            mask_key_stride=mask_key_stride,
            result_stride=i64(shape_of(op.result)[2]),
            query_count=builder.select(builder.icmp_signed("<", left, i64(WIDEST)), left, i64(WIDEST)),
            key_count=keys,
            first_query=query,
            **self._past(sample, key_head),
        )
        self._call_narrowest(form, arguments)

    def _past(self, sample: ir.Value, key_head: ir.Value) -> dict[str, ir.Value]:
        """Return the arguments that say where keys and values of the past are, and how many."""
        builder, op = self.builder, self.op
        if not op.past:
            nothing = ir.Constant(POINTER, None)
            return {"past_keys": nothing, "past_values": nothing, "past_count": i64(0)}
        count = self._value(self.sizes.shapes[op.past[0]][2])
        pair = builder.add(builder.mul(sample, i64(op.head_counts.keys)), key_head)
        keys, values = (
            float_at(builder, self.pointers[value], builder.mul(builder.mul(pair, count), i64(shape_of(value)[3])))
            for value in op.past
        )
        return {"past_keys": keys, "past_values": values, "past_count": count}

    def _call_narrowest(self, form: AttentionForm, arguments: BlockArguments) -> None:
        builder = self.builder
        for less, width in zip((0, *WIDTHS), WIDTHS, strict=False):
            count = arguments.query_count
            above, within = builder.icmp_signed(">", count, i64(less)), builder.icmp_signed("<=", count, i64(width))
            with builder.if_then(builder.and_(above, within)):
                builder.call(query_block(self.code, form, width), list(arguments))

    def _row(self, value: SSAValue, position: tuple[ir.Value, ir.Value, ir.Value], features: int) -> ir.Value:
        """Return the address of the features of a head, in a row of a sample."""
        builder, (sample, row, head) = self.builder, position
        index = builder.add(builder.mul(sample, self._value(self.sizes.shapes[value][1])), row)
        start = builder.mul(index, i64(shape_of(value)[2]))
        return float_at(builder, self.pointers[value], builder.add(start, builder.mul(head, i64(features))))

    def _mask(self, sample: ir.Value, head: ir.Value, query: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return the mask's entries for a query, and the distances to those of the next query and of the next key.

        They are 0 where all have the same.
        """
        builder, mask = self.builder, self.op.mask
        if mask is None:
            return ir.Constant(POINTER, None), i64(0), i64(0)
        _, heads, queries, keys = sizes = [self._value(size) for size in self.sizes.shapes[mask]]
        head_stride = builder.mul(queries, keys)
        strides = (builder.mul(heads, head_stride), head_stride, keys, i64(1))
        # an axis of size 1 stands for all indices
        own = [
            builder.select(builder.icmp_signed("==", size, i64(1)), i64(0), stride)
            for size, stride in zip(sizes, strides, strict=True)
        ]
        offset: ir.Value = i64(0)
        for index, stride in zip((sample, head, query), own, strict=False):
            offset = builder.add(offset, builder.mul(index, stride))
        return float_at(builder, self.pointers[mask], offset), own[2], own[3]


def _divided_up(builder: ir.IRBuilder, number: ir.Value, divisor: ir.Value) -> ir.Value:
    return builder.udiv(builder.sub(builder.add(number, divisor), i64(1)), divisor)
