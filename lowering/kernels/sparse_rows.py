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

from ..llvm.builder import Code, column_chunks
from ..llvm.flow import fold, loop
from ..llvm.values import Floats, Ints, Longs, Number
from .count_blocks import SHARE_OF_SUMS
from .kernel_form import LinearForm, activated


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return `void (x, y, pointers, inputs, weights, bias, inputs, outputs)`."""

    @code.kernel(f"sparse_rows_{form.key}")
    def kernel(
        x: Floats, y: Floats, pointers: Longs, inputs: Ints, weights: Floats, bias: Floats, _: Number, outputs: Number
    ) -> None:
        lanes = code.lanes(x, code.column_lanes(form.width))
        for first, vectors in column_chunks(form.width, lanes.width, code.target.registers // SHARE_OF_SUMS):
            with loop(outputs) as row:

                def step(at: Number, sums: Sequence[ir.Value], first: int = first) -> list[ir.Value]:
                    # the columns of the input, all times the weight
                    place = inputs[at] * form.width + first
                    weight = lanes.splat(weights[at])
                    return lanes.add_products(sums, weight, lanes.vectors(x.at(place), len(sums)))

                # from the bias on, over the connections of the row
                begin, end = pointers[row], pointers[row + 1]
                sums = fold(end, [lanes.splat(bias[row])] * vectors, step, start=begin)
                lanes.put(y.at(row * form.width + first), activated(lanes, form.activation, sums))

    return kernel
