"""Dense kernel family: panels of output rows that share each load of x, their sums in registers.

A panel of R rows and V vectors of columns holds R x V sums; for each input k it loads V vectors of x[k] and broadcasts
R weights, which stand together in the packed panel [outputs / R, K, R].
"""

from collections.abc import Sequence

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.lowering.emission import (
    FLOAT,
    I64,
    POINTER,
    Code,
    cell,
    column_chunks,
    counted_loop,
    float_at,
    i64,
    reduce_loop,
)
from redpebble.lowering.linear import LinearForm, PackedArrays, activated, dense_weight

PANEL_ROWS = 6
"""R: with V = 4 vectors of 16 lanes 24 sums, 4 operands and a weight fill the 32 registers of AVX-512."""


class DensePanels:
    """Panels: weights [ceil(N / R), K, R] f32 and bias [ceil(N / R) * R] f32, padded with zeros."""

    def pack(self, weight: SSAValue, bias: NDArray[np.float32]) -> PackedArrays:
        """Return the panels and the bias."""
        dense = dense_weight(weight)
        inputs, outputs = dense.shape
        panels = -(-outputs // PANEL_ROWS)
        padded = np.zeros((inputs, panels * PANEL_ROWS), dtype=np.float32)
        padded[:, :outputs] = dense
        packed = padded.reshape(inputs, panels, PANEL_ROWS).transpose(1, 0, 2)
        return np.ascontiguousarray(packed), np.pad(bias, (0, panels * PANEL_ROWS - outputs))

    def emit(self, code: Code, form: LinearForm) -> ir.Function:
        """Return the kernel for tiles of `form.width` columns."""
        arguments = [POINTER] * 4 + [I64, I64]
        most = 4 if code.target.has_avx512 else 2

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            x, y, weights, bias, inputs, outputs = args
            with counted_loop(builder, outputs, PANEL_ROWS) as row:
                for first, vectors in column_chunks(form.width, code.column_lanes(form.width), most):
                    _emit_panel(code, builder, (form, first, vectors), [x, y, weights, bias, inputs, row])

        return code.function(f"dense_panels_{form.key}", arguments, body)


def _emit_panel(
    code: Code, builder: ir.IRBuilder, columns: tuple[LinearForm, int, int], values: Sequence[ir.Value]
) -> None:
    """Emit one panel for some vectors from column `first` on; values are x, y, weights, bias, inputs, first row."""
    form, first, vectors = columns
    x, y, weights, bias, inputs, row = values
    lanes = code.lanes(builder, code.column_lanes(form.width))
    panel = float_at(builder, weights, builder.mul(row, inputs))
    biases = [
        lanes.splat(builder.load(float_at(builder, bias, builder.add(row, i64(index))), typ=FLOAT))
        for index in range(PANEL_ROWS)
    ]

    def multiply_add(k: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
        source = float_at(builder, x, builder.add(builder.mul(k, i64(form.width)), i64(first)))
        operands = [
            lanes.load(float_at(builder, source, i64(index * lanes.width)), 4 * lanes.width) for index in range(vectors)
        ]
        entry = float_at(builder, panel, builder.mul(k, i64(PANEL_ROWS)))
        results: list[ir.Value] = []
        for index in range(PANEL_ROWS):
            weight = lanes.splat(builder.load(float_at(builder, entry, i64(index)), typ=FLOAT))
            rows = sums[index * vectors : (index + 1) * vectors]
            results += [lanes.fma(weight, operand, total) for operand, total in zip(operands, rows, strict=True)]
        return results

    initial = [value for value in biases for _ in range(vectors)]
    sums = activated(lanes, form.activation, reduce_loop(builder, (i64(0), inputs), initial, multiply_add))
    for index, value in enumerate(sums):
        line, column = divmod(index, vectors)
        place = (builder.add(row, i64(line)), form.width, first + column * lanes.width)
        lanes.store(value, cell(builder, y, place), 4 * lanes.width)
