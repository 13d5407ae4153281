"""Sparse kernel family for batches: blocks of inputs, rows of equal counts in pairs, and no branch that surprises.

For each block of inputs (there are so many that its part of x stays in the first-level cache) and each pair of output
rows with n connections there: read the rows' sums, jump into a chain of multiply-adds n steps before its end, write the
sums. A step multiplies one weight of each row, a vector broadcast, with its input's columns, memory operands. The pairs
of a block are sorted by n, so the jump is predicted. All counts share one chain: it is small, stays in the cache of
decoded instructions, and its code does not depend on the matrix.

Registers: see `block_loop`, with 2 rows and up to 4 vectors. Steps stand one after the other, the last one first:

    step n      sum[0][v] += w(-2 n) * x[low 16 bits][v]; sum[1][v] += w(-2 n + 1) * x[high 16 bits][v]
    step n - 1  ...              weights and offsets count back from their ends, so they do not depend on n
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from llvmlite import ir

from redpebble.kernels.formats.count_blocks import MOST_CONNECTIONS, ROWS
from redpebble.lowering.kernels.block_loop import BlockKernel, GroupWork, RowGroups, load_index, merged
from redpebble.lowering.kernels.kernel_form import LinearForm
from redpebble.lowering.llvm.builder import FLOAT_BYTES, I32, Code, i64

MOST_VECTORS: Final = 4
"""Vectors of columns a row has at once: the sums of two rows, a weight and an operand fit 16 registers."""


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return the kernel for tiles of `form.width` columns, see `BlockKernel`."""
    return BlockKernel("count_blocks", ROWS, MOST_VECTORS, _products).emit(code, form)


def _products(pairs: RowGroups, work: GroupWork, initial: Sequence[ir.Value]) -> list[ir.Value]:
    """Return the sums after `work.count` connections of each row."""
    builder = pairs.builder
    start, steps = builder.block, range(MOST_CONNECTIONS + 1)
    left = [builder.append_basic_block(f"left{step}") for step in steps]
    never = builder.append_basic_block("never")
    switch = builder.switch(builder.trunc(work.count, I32), never)
    for step in steps:
        switch.add_case(ir.Constant(I32, step), left[step])
    builder.position_at_end(never)
    builder.unreachable()
    builder.position_at_end(left[-1])
    from_ends = replace(work, weights=work.weights_end, offsets=work.offsets_end)
    sums: list[ir.Value] = list(initial)
    for step in reversed(steps[1:]):
        both = load_index(builder, work.offsets_end, -4 * step)
        halves = builder.and_(both, i64(0xFFFF)), builder.lshr(both, i64(16))
        sums = pairs.multiplied(from_ends, -ROWS * FLOAT_BYTES * step, halves, sums)
        builder.branch(left[step - 1])
        builder.position_at_end(left[step - 1])
        entered = zip(initial, sums, strict=True)
        sums = [merged(builder, {start: value, left[step]: total}) for value, total in entered]
    return sums
