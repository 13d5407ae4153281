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

from ...kernels.formats.strips import HEADER, SHARINGS, STRIP_ROWS
from ..llvm.builder import Code
from ..llvm.flow import fold, loop
from ..llvm.values import ALIGNMENT, Floats, Number, Shorts
from .block_loop import BlockKernel, GroupWork, RowGroups, Vectors
from .kernel_form import LinearForm

SHORT_BYTES: Final = 2

AHEAD: Final = 128
"""Weights behind a strip that the strip before it has fetched, which it does not wait for."""


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return the kernel for tiles of `form.width` columns, see `BlockKernel`."""
    return BlockKernel("strips", STRIP_ROWS, 4 if code.target.registers >= 32 else 2, _products).emit(code, form)


def _products(strip: RowGroups, work: GroupWork, initial: Vectors) -> Vectors:
    """Return the sums after all steps."""
    sums, weights, offsets = initial, work.weights, work.offsets.at(HEADER)
    _fetch(work)
    # a loop for each way of sharing; the header says how many steps it has
    for kind, sharing in enumerate(SHARINGS):
        count = work.offsets[kind]
        sums = fold(count, sums, _Step(strip, sharing, work.x, weights, offsets).multiplied)
        offsets, weights = offsets.at(count * len(sharing)), weights.at(count * STRIP_ROWS)
    return sums


@dataclass(frozen=True)
class _Step:
    """A step of a strip: the sets of rows that share an input, as bits, and the addresses that the loop reads."""

    strip: RowGroups
    sharing: Sequence[int]
    x: Floats
    weights: Floats
    offsets: Shorts

    def multiplied(self, index: Number, sums: Vectors) -> Vectors:
        """Return the sums after step `index`."""
        lanes, vectors = self.strip.lanes, self.strip.chunk.vectors
        weights = self.weights.at(index * STRIP_ROWS)
        factors = [lanes.splat(weights[row]) for row in range(STRIP_ROWS)]
        offsets, result = self.offsets.at(index * len(self.sharing)), list(sums)
        for number, rows in enumerate(self.sharing):
            # the columns of an input, once for all rows that share it
            columns = lanes.vectors(self.x.after(self.strip.scaled(offsets[number])), vectors)
            for vector, column in enumerate(columns):
                for row in [row for row in range(STRIP_ROWS) if rows >> row & 1]:
                    total = row * vectors + vector
                    result[total] = lanes.fma(factors[row], column, result[total])
        return result


def _fetch(work: GroupWork) -> None:
    """Emit the fetching of weights and offsets from `AHEAD` after this strip on, about as many as it has itself."""
    with loop(work.count, ALIGNMENT // (SHORT_BYTES * STRIP_ROWS)) as index:
        ahead = index * STRIP_ROWS + AHEAD
        work.weights_end.at(ahead).fetch(2)
        work.offsets_end.at(ahead).fetch(1)
