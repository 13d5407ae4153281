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
from ..llvm.builder import Code
from ..llvm.flow import branch, call, fold, loop, select
from ..llvm.transposition import rows_to_columns
from ..llvm.values import FLOAT_BYTES, Floats, Number
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

    def emit(self) -> None:
        """Emit the products of a range of samples."""
        op, step, shapes = self.op, self.step, self.step.sizes.shapes
        (*_, rows, depth), (*_, outputs, _) = (shapes[value] for value in (op.x, op.y))
        sizes = [step.number(size) for size in (rows, outputs, depth)]
        with loop(step.rows.end - step.rows.first) as done:
            sample = step.rows.first + done
            addresses = [
                step.pointers[value].at(sample * step.number(product(shapes[value][-2:])))
                for value in (op.x, op.y, op.result)
            ]
            call(sample_product(step.code), *addresses, step.scratch, *sizes)


def sample_product(code: Code) -> ir.Function:
    """Return `void (x, y, result, scratch, M, N, K)`: result = x y^T."""
    lanes, columns = code.target.lanes, VECTORS * code.target.lanes
    height = ROWS[code.target.registers][VECTORS]

    @code.kernel("sample_product")
    def kernel(
        x: Floats, y: Floats, result: Floats, scratch: Floats, rows: Number, outputs: Number, depth: Number
    ) -> None:
        vectors = code.lanes(x)
        last = rows - 1
        with loop(outputs, columns) as column:
            # some rows of y, transposed; the last ones may be fewer
            left = outputs - column
            is_whole = left >= columns
            count = select(is_whole, columns, left)
            source = y.at(column * depth)
            call(rows_to_columns(code, columns), source, scratch, depth, depth, count, columns)
            chosen = [vectors.below(count, first) for first in range(0, columns, lanes)]
            with loop(rows, height) as first:
                wanted = [first + row for row in range(height)]
                numbers = [select(last < row, last, row) for row in wanted]
                lines = [x.at(number * depth) for number in numbers]

                def step(place: Number, sums: list[ir.Value], lines: Sequence[Floats] = lines) -> list[ir.Value]:
                    line = scratch.at(place * columns)
                    right = list(vectors.vectors(line, VECTORS))
                    return vectors.add_outer(sums, (address[place] for address in lines), right)

                sums = fold(depth, [vectors.splat(0.0)] * (height * VECTORS), step)
                starts = [
                    result.at(number * outputs + (column + offset))
                    for number in numbers
                    for offset in range(0, columns, lanes)
                ]

                def whole(sums: Sequence[ir.Value] = sums, starts: Sequence[Floats] = starts) -> None:
                    for total, start in zip(sums, starts, strict=True):
                        vectors.store(total, start)

                def rest(
                    sums: Sequence[ir.Value] = sums,
                    starts: Sequence[Floats] = starts,
                    chosen: Sequence[ir.Value] = chosen,
                ) -> None:
                    for index, (total, start) in enumerate(zip(sums, starts, strict=True)):
                        vectors.store_chosen(total, start, chosen[index % VECTORS])

                branch(is_whole, whole, rest, likely=True)

    return kernel
