"""Sparse kernel family for weights that are not very sparse, n of m among them: rows in strips that share inputs.

For each block of inputs and each strip of four rows the sums stay in registers. A step multiplies a connection of each
row; there is a loop for each way in which the rows of a step share their inputs, all four, three, two and two, or none,
so an input's columns are read once for all rows of a set. Half full rows so read a vector of columns for two
multiply-adds, where a row by itself needs one for each. The loops of nearly all strips are equally long, so their ends
are predicted.

Registers, for 4 rows r and up to 4 (AVX-512) or 2 vectors v of batch columns, one lane a column:

    sum[r][v]  the sums of the strip
    w[r]       weight of each row in every lane                  four broadcasts a step
    x[v]       columns of an input that a set of rows shares     one load for each set and v
    sum[r][v] += w[r] * x[v]                                     for the rows of the set

Blocked patterns n:m:g (strips of m outputs, n of which read each input, each choice of n for g inputs) need no family
of their own. Where strips share the order of choices, so that inputs need no indices, outputs are equal in classes and
run as `row_panels`, 1.1 to 1.3 times as fast as such a kernel at 2:4, 1.4 times and more at 1:4, 1:8 and 1:16. With an
order for each strip, a loop for each choice was slower than this family or `count_blocks` from 1:4 on, and 7 to 14 %
faster at 2:4 in tiles of 64.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from redpebble.kernels.formats.strips import HEADER, SHARINGS, STRIP_ROWS
from redpebble.lowering.kernels.block_loop import BlockKernel, GroupWork, RowGroups
from redpebble.lowering.kernels.kernel_form import LinearForm
from redpebble.lowering.llvm.builder import (
    ALIGNMENT,
    FLOAT_BYTES,
    I64,
    Code,
    byte_at,
    counted_loop,
    float_at,
    i64,
    reduce_loop,
)
from redpebble.lowering.llvm.prefetch import fetch_lines
from redpebble.lowering.llvm.vectors import FLOAT

SHORT: Final = ir.IntType(16)
SHORT_BYTES: Final = 2

AHEAD: Final = 128
"""Weights behind a strip that the strip before it has fetched, which it does not wait for."""


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return the kernel for tiles of `form.width` columns, see `BlockKernel`."""
    return BlockKernel("strips", STRIP_ROWS, 4 if code.target.has_avx512 else 2, _products).emit(code, form)


def _products(strip: RowGroups, work: GroupWork, initial: Sequence[ir.Value]) -> list[ir.Value]:
    """Return the sums after all steps."""
    builder, sums = strip.builder, list(initial)
    weights, offsets = work.weights, _short_at(builder, work.offsets, i64(HEADER))
    _fetch(strip, work)
    for kind, sharing in enumerate(SHARINGS):
        count = _short(builder, _short_at(builder, work.offsets, i64(kind)))
        step = _Step(strip, sharing, work.x, weights, offsets)
        sums = reduce_loop(builder, count, sums, step.multiplied)
        offsets = _short_at(builder, offsets, builder.mul(count, i64(len(sharing))))
        weights = float_at(builder, weights, builder.mul(count, i64(STRIP_ROWS)))
    return sums


@dataclass(frozen=True)
class _Step:
    """A step of a strip: the sets of rows that share an input, as bits, and the addresses that the loop reads."""

    strip: RowGroups
    sharing: Sequence[int]
    x: ir.Value
    weights: ir.Value
    offsets: ir.Value

    def multiplied(self, index: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the sums after step `index`."""
        builder, lanes, vectors = self.strip.builder, self.strip.lanes, self.strip.chunk.vectors
        first = float_at(builder, self.weights, builder.mul(index, i64(STRIP_ROWS)))
        factors = [
            lanes.splat(builder.load(float_at(builder, first, i64(row)), typ=FLOAT)) for row in range(STRIP_ROWS)
        ]
        offset = _short_at(builder, self.offsets, builder.mul(index, i64(len(self.sharing))))
        result = list(sums)
        for number, rows in enumerate(self.sharing):
            distance = _short(builder, _short_at(builder, offset, i64(number)))
            source = byte_at(builder, self.x, self.strip.scaled(distance))
            for vector in range(vectors):
                column = lanes.load(float_at(builder, source, i64(lanes.width * vector)), FLOAT_BYTES * lanes.width)
                for row in [row for row in range(STRIP_ROWS) if rows >> row & 1]:
                    total = row * vectors + vector
                    result[total] = lanes.fma(factors[row], column, result[total])
        return result


def _fetch(strip: RowGroups, work: GroupWork) -> None:
    """Emit the fetching of weights and offsets from `AHEAD` after this strip on, about as many as it has itself."""
    builder, weights, offsets = strip.builder, work.weights_end, work.offsets_end
    with counted_loop(builder, work.count, ALIGNMENT // (SHORT_BYTES * STRIP_ROWS)) as index:
        ahead = builder.add(builder.mul(index, i64(STRIP_ROWS)), i64(AHEAD))
        fetch_lines(builder, float_at(builder, weights, ahead), 2)
        fetch_lines(builder, _short_at(builder, offsets, ahead), 1)


def _short_at(builder: ir.IRBuilder, pointer: ir.Value, index: ir.Value) -> ir.Value:
    return builder.gep(pointer, [index], source_etype=SHORT)


def _short(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.zext(builder.load(address, typ=SHORT), I64)
