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

from dataclasses import replace
from typing import Final

from llvmlite import ir

from ...kernels.formats.count_blocks import MOST_CONNECTIONS, ROWS
from ..llvm.builder import Code
from ..llvm.flow import Blocks
from ..llvm.values import FLOAT_BYTES, I32, Ints
from .block_loop import BlockKernel, GroupWork, RowGroups, Vectors
from .kernel_form import LinearForm

SHARE_OF_SUMS: Final = 2
"""The share of registers that the sums of a group's rows take: weights and operands fit the rest."""


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return the kernel for tiles of `form.width` columns, see `BlockKernel`."""
    vectors = code.target.registers // (SHARE_OF_SUMS * ROWS)
    return BlockKernel("count_blocks", ROWS, vectors, _products).emit(code, form)


def _products(pairs: RowGroups, work: GroupWork, initial: Vectors) -> Vectors:
    """Return the sums after `work.count` connections of each row."""
    steps, builder = range(MOST_CONNECTIONS + 1), work.x.builder
    # a switch to the step from which as many are left as there are connections
    start = builder.block
    flow = Blocks(builder, *(f"left{step}" for step in steps))
    flow.switch(work.count.narrow(I32), {f"left{step}": [step] for step in steps})
    # the steps, the last one first, as weights and offsets count back from their ends
    flow.at(f"left{steps[-1]}")
    from_ends = replace(work, weights=work.weights_end, offsets=work.offsets_end)
    sums = initial
    for step in reversed(steps[1:]):
        both = work.offsets_end.cast(Ints)[-step]
        sums = pairs.multiplied(from_ends, -ROWS * FLOAT_BYTES * step, (both & 0xFFFF, both >> 16), sums)
        step_end = flow.enter(f"left{step - 1}")
        sums = flow.merged({start: initial, step_end: sums})
    return sums
