"""Sparse kernel family: one output row at a time, its sums in registers, one broadcast weight against a row of columns.

For each output neuron and each of its connections (k, w): sums += w * x[k], for all batch columns of the tile at once.
The only data-dependent branch is the end of a row.

Registers, for up to 8 vectors v of batch columns, one lane a column:

    sum[v]  begins as the bias in every lane, ends through the activation into y
    w       weight in every lane                 a broadcast
    sum[v] += w * x[k][v]                        one fma with a memory operand
"""

from collections.abc import Sequence

from llvmlite import ir

from redpebble.lowering.kernels.kernel_form import LinearForm, activated
from redpebble.lowering.llvm.builder import (
    I32,
    I64,
    POINTER,
    Code,
    ColumnChunk,
    column_chunks,
    counted_loop,
    float_at,
    i64,
    reduce_loop,
)
from redpebble.lowering.llvm.vectors import FLOAT

MOST_SUMS = 8
"""Vectors of sums held at once: they and an operand must fit the 16 registers of AVX2 and SSE."""


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return `void (x, y, pointers, inputs, weights, bias, inputs, outputs)`."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        for chunk in column_chunks(form.width, code.column_lanes(form.width), MOST_SUMS):
            with counted_loop(builder, args[7]) as row:
                _emit_row(code, builder, form, chunk, [*args[:6], row])

    return code.function(f"sparse_rows_{form.key}", [POINTER] * 6 + [I64, I64], body)


def _emit_row(
    code: Code, builder: ir.IRBuilder, form: LinearForm, chunk: ColumnChunk, values: Sequence[ir.Value]
) -> None:
    """Emit one output row for a chunk of columns; values are the kernel's pointers and the row."""
    first, vectors = chunk
    x, y, pointers, inputs, weights, bias, row = values
    lanes = code.lanes(builder, code.column_lanes(form.width))
    start = builder.load(builder.gep(pointers, [row], source_etype=I64), typ=I64)
    stop = builder.load(builder.gep(pointers, [builder.add(row, i64(1))], source_etype=I64), typ=I64)
    initial = lanes.splat(builder.load(float_at(builder, bias, row), typ=FLOAT))

    def multiply_add(position: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
        entry = builder.gep(inputs, [position], source_etype=I32)
        source = builder.zext(builder.load(entry, typ=I32), I64)
        offset = builder.add(builder.mul(source, i64(form.width)), i64(first))
        weight = lanes.splat(builder.load(float_at(builder, weights, position), typ=FLOAT))
        address = float_at(builder, x, offset)
        return [
            lanes.fma(weight, lanes.load(float_at(builder, address, i64(index * lanes.width)), 4 * lanes.width), total)
            for index, total in enumerate(sums)
        ]

    sums = reduce_loop(builder, stop, [initial] * vectors, multiply_add, start=start)
    target = float_at(builder, y, builder.add(builder.mul(row, i64(form.width)), i64(first)))
    for index, value in enumerate(activated(lanes, form.activation, sums)):
        lanes.store(value, float_at(builder, target, i64(index * lanes.width)), 4 * lanes.width)
