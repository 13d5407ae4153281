"""Sparse kernel family for one row of activations: 16 output rows at a time, their inputs gathered.

Rows are sorted by their number of entries, so that the 16 of a group have about as many; a step multiplies 16 gathered
values of x by 16 weights. Inputs are 16-bit numbers inside a segment of 65536 inputs: 6 bytes an entry.

An unused lane multiplies 0 by a real x: an infinity or NaN in x may spread to rows without a connection to it.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.lowering.kernels.kernel_form import LinearForm, PackedArrays, activated, sparse_weight
from redpebble.lowering.kernels.single_row import gather, load_ints, scatter_rows, single_row_key
from redpebble.lowering.llvm.builder import I32, I64, POINTER, Code, float_at, i64, reduce_loop
from redpebble.sparse.csr import CscMatrix

I16 = ir.IntType(16)

GROUP_ROWS: Final = 16
SEGMENT: Final = 1 << 16
"""Inputs that 16 bits tell apart."""


class SellGather:
    """Groups of 16 rows: steps u32 [groups, segments], inputs u16 [steps, 16], weights f32 [steps, 16], and ends.

    The ends of a group are the biases f32 [16] and the numbers of its rows, -1 for none, i32 [16].
    """

    def pack(self, weight: SSAValue, bias: NDArray[np.float32]) -> PackedArrays:
        """Return the steps, inputs, weights and ends."""
        matrix = sparse_weight(weight)
        groups = -(-matrix.shape[1] // GROUP_ROWS)
        ends = np.zeros((groups, 2, GROUP_ROWS), dtype=np.int32)
        ends[:, 1] = -1
        order = np.argsort(-np.diff(matrix.pointers), kind="stable")
        group, lane = np.divmod(np.arange(len(order)), GROUP_ROWS)
        ends[group, 0, lane] = bias[order].view(np.int32)
        ends[group, 1, lane] = order
        return (*_pack_entries(matrix, np.argsort(order), groups), ends)

    def emit(self, code: Code, form: LinearForm) -> ir.Function:
        """Return the kernel for one row of activations."""

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            groups = builder.sdiv(builder.add(args[7], i64(GROUP_ROWS - 1)), i64(GROUP_ROWS))

            def group(index: ir.Value, places: Sequence[ir.Value]) -> Sequence[ir.Value]:
                return _emit_group(code, builder, form, [*args[:3], *places, args[5], args[6], index])

            reduce_loop(builder, (i64(0), groups), [args[3], args[4]], group)

        return code.function(single_row_key("sell_gather", form), [POINTER] * 6 + [I64, I64], body)


def _pack_entries(
    matrix: CscMatrix, position: NDArray[np.int64], groups: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint16], NDArray[np.float32]]:
    """Return the steps, inputs and weights where row n stands at `position[n]` among the sorted rows."""
    segments = -(-matrix.shape[0] // SEGMENT)
    rows, segment = matrix.columns, matrix.rows // SEGMENT
    counts = np.zeros((groups * GROUP_ROWS, segments), dtype=np.int64)
    np.add.at(counts, (position[rows], segment), 1)
    steps = counts.reshape(groups, GROUP_ROWS, segments).max(axis=1)
    starts = np.cumsum(steps.ravel()) - steps.ravel()
    # entries of a row ascend, so those of one segment stand together, and the first of them stands at `before`
    runs = np.bincount(rows * segments + segment, minlength=matrix.shape[1] * segments)
    before = np.cumsum(runs) - runs
    group, lane = np.divmod(position[rows], GROUP_ROWS)
    step = starts[group * segments + segment] + np.arange(len(rows)) - before[rows * segments + segment]
    inputs = np.zeros((int(steps.sum()), GROUP_ROWS), dtype=np.uint16)
    weights = np.zeros(inputs.shape, dtype=np.float32)
    inputs[step, lane] = matrix.rows % SEGMENT
    weights[step, lane] = matrix.values
    return steps.astype(np.uint32), inputs, weights


def _emit_group(code: Code, builder: ir.IRBuilder, form: LinearForm, values: Sequence[ir.Value]) -> Sequence[ir.Value]:
    """Emit a group; values are x, y, steps, its inputs and weights, ends, the number of inputs, and the group.

    Returns where the inputs and weights of the next group begin.
    """
    x, y, steps, inputs, weights, ends, width, group = values
    lanes = code.lanes(builder)
    starts = range(0, GROUP_ROWS, lanes.width)
    segments = builder.lshr(builder.add(width, i64(SEGMENT - 1)), i64(16))
    end = float_at(builder, ends, builder.mul(group, i64(2 * GROUP_ROWS)))

    def segment(index: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
        address = float_at(builder, steps, builder.add(builder.mul(group, segments), index))
        count = builder.zext(builder.load(address, typ=I32), I64)
        source = float_at(builder, x, builder.mul(index, i64(SEGMENT)))

        def step(number: ir.Value, sums: Sequence[ir.Value]) -> Sequence[ir.Value]:
            first = builder.mul(number, i64(GROUP_ROWS))
            following: list[ir.Value] = []
            for start, total in zip(starts, sums, strict=True):
                entry = builder.add(first, i64(start))
                address = builder.gep(carried[0], [entry], source_etype=I16)
                narrow = builder.load(address, align=2 * lanes.width, typ=ir.VectorType(I16, lanes.width))
                value = gather(code, lanes, source, builder.zext(narrow, lanes.int_vector))
                weight = lanes.load(float_at(builder, carried[1], entry), 4 * lanes.width)
                following.append(lanes.fma(value, weight, total))
            return following

        sums = reduce_loop(builder, (i64(0), count), carried[2:], step)
        entries = builder.mul(count, i64(GROUP_ROWS))
        return [builder.gep(carried[0], [entries], source_etype=I16), float_at(builder, carried[1], entries), *sums]

    biases = [lanes.load(float_at(builder, end, i64(start)), 4 * lanes.width) for start in starts]
    after = reduce_loop(builder, (i64(0), segments), [inputs, weights, *biases], segment)
    for start, value in zip(starts, activated(lanes, form.activation, after[2:]), strict=True):
        rows = load_ints(lanes, float_at(builder, end, i64(GROUP_ROWS + start)))
        scatter_rows(code, lanes, value, (y, rows))
    return after[:2]
