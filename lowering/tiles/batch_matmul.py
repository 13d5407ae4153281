"""Products of two operands that a call computes, sample by sample.

Registers, for R rows r of x and V vectors v of rows of y, one lane a row (R V + V + 1 of 16 or 32 registers):

    b[v]       V vectors of rows of y at depth k, transposed into scratch memory before
    a          row r of x at depth k in every lane
    sum[r][v]  += a * b[v]

Rows behind the last one are copies of it: of x they are written where it is, of y not at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from ...dialect.ops.layers import BatchMatmulTransposeBOp
from ...dialect.symbolic_sizes import product
from ...dialect.tensors import shape_of
from ..attention.form import ROWS
from ..cpu_target import CpuTarget
from ..llvm.builder import (
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
from ..llvm.transposition import rows_to_columns
from ..llvm.vectors import FLOAT, int_constants
from ..program import TiledRows, TileTime
from .row_major import RowMajorStep

VECTORS = 2
"""Vectors of rows of y in registers."""

SAMPLE_US = 1.0
"""Microseconds of a sample of 27 rows on both sides and 64 features, about."""


def product_tiles() -> TiledRows:
    """Return how threads may cut those rows."""
    return TiledRows((TileTime(1, 1, SAMPLE_US),), 1)


def product_scratch_bytes(op: BatchMatmulTransposeBOp, target: CpuTarget) -> int:
    """Return the bytes for rows of y, transposed."""
    return shape_of(op.y)[-1] * VECTORS * target.lanes * FLOAT_BYTES


@dataclass(frozen=True)
class ProductStep:
    """The code of a step."""

    op: BatchMatmulTransposeBOp
    step: RowMajorStep
    scratch: ir.Value

    def emit(self, begin: ir.Value, end: ir.Value) -> None:
        """Emit the products of samples from `begin` to the one before `end`."""
        builder, op, shapes = self.step.builder, self.op, self.step.sizes.shapes
        (*_, rows, depth), (*_, outputs, _) = (shapes[value] for value in (op.x, op.y))
        sizes = [self.step.value(size) for size in (rows, outputs, depth)]
        with counted_loop(builder, builder.sub(end, begin)) as done:
            sample = builder.add(begin, done)
            addresses = [
                float_at(builder, self.step.pointers[value], builder.mul(sample, self.step.value(product(of[-2:]))))
                for value, of in ((value, shapes[value]) for value in (op.x, op.y, op.result))
            ]
            builder.call(sample_product(self.step.code), [*addresses, self.scratch, *sizes])


def sample_product(code: Code) -> ir.Function:
    """Return `void (x, y, result, scratch, M, N, K)`: result = x y^T."""
    lanes, columns = code.target.lanes, VECTORS * code.target.lanes
    height = ROWS[lanes][VECTORS]

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, y, result, scratch, rows, outputs, depth = args
        vectors = code.lanes(builder)
        last = builder.sub(rows, i64(1))
        with counted_loop(builder, outputs, columns) as column:
            left = builder.sub(outputs, column)
            is_whole = builder.icmp_signed(">=", left, i64(columns))
            count = builder.select(is_whole, i64(columns), left)
            source = float_at(builder, y, builder.mul(column, depth))
            builder.call(rows_to_columns(code, columns), [source, scratch, depth, depth, count, i64(columns)])
            chosen = [_lanes_below(builder, count, first, lanes) for first in range(0, columns, lanes)]
            with counted_loop(builder, rows, height) as first:
                wanted = [builder.add(first, i64(row)) for row in range(height)]
                numbers = [builder.select(builder.icmp_signed("<", last, row), last, row) for row in wanted]
                lines = [float_at(builder, x, builder.mul(number, depth)) for number in numbers]

                def step(
                    place: ir.Value, sums: Sequence[ir.Value], lines: Sequence[ir.Value] = lines
                ) -> list[ir.Value]:
                    line = float_at(builder, scratch, builder.mul(place, i64(columns)))
                    right = [
                        vectors.load(float_at(builder, line, i64(start)), FLOAT_BYTES * lanes)
                        for start in range(0, columns, lanes)
                    ]
                    following: list[ir.Value] = []
                    for row, address in enumerate(lines):
                        value = vectors.splat(builder.load(float_at(builder, address, place), typ=FLOAT))
                        own = sums[row * VECTORS : (row + 1) * VECTORS]
                        following += [vectors.fma(value, b, total) for b, total in zip(right, own, strict=True)]
                    return following

                sums = reduce_loop(builder, depth, [vectors.splat(0.0)] * (height * VECTORS), step)
                starts = [
                    float_at(
                        builder, result, builder.add(builder.mul(number, outputs), builder.add(column, i64(offset)))
                    )
                    for number in numbers
                    for offset in range(0, columns, lanes)
                ]
                with builder.if_else(is_whole, likely=True) as (whole, rest):
                    with whole:
                        for total, start in zip(sums, starts, strict=True):
                            vectors.store(total, start)
                    with rest:
                        for index, (total, start) in enumerate(zip(sums, starts, strict=True)):
                            vectors.store_chosen(total, start, chosen[index % VECTORS])

    return code.function("sample_product", [POINTER] * 4 + [I64] * 3, body)


def _lanes_below(builder: ir.IRBuilder, count: ir.Value, first: int, lanes: int) -> ir.Value:
    """Return the lanes, columns from `first` on, that are before column `count`."""
    kind = ir.VectorType(I32, lanes)
    numbers = int_constants(range(first, first + lanes))
    undefined = ir.Constant(kind, ir.Undefined)
    limit = builder.insert_element(undefined, builder.trunc(count, I32), ir.Constant(I32, 0))
    return builder.icmp_signed("<", numbers, builder.shuffle_vector(limit, undefined, int_constants([0] * lanes)))
