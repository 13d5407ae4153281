"""Sparse kernel family for one row of activations: `permute_lookup` over weights of 16 bits.

Registers (AVX-512), for the weights of the 32 rows of a panel:

    halves   r0 r16 | r1 r17 | ... | r15 r31    16 words, one load
    low      r0 | r1 | ... | r15                shifted to the upper halves, which are floats
    high     r16 | r17 | ... | r31              without the lower halves
"""

from collections.abc import Sequence
from typing import ClassVar

from llvmlite import ir
from typing_extensions import override

from ...kernels.formats.lookup_halves import WORDS
from ..llvm.builder import Code
from ..llvm.gather_scatter import load_ints
from ..llvm.values import Floats, Ints
from .kernel_form import LinearForm
from .permute_lookup import Panel, Vectors, emit_panels

HALF_BITS = 16


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return the kernel of `permute_lookup` for such weights."""
    return emit_panels(code, form, "lookup_halves", _HalvesPanel)


class _HalvesPanel(Panel):
    """A panel whose weights are the upper halves of floats, two in a word."""

    line_floats: ClassVar[int] = WORDS

    @override
    def weights(self, line: Floats, rows: Sequence[int]) -> Vectors:
        """Return the weights of a line for some vectors of rows, given by the first row of each."""
        return [self._halves(line.cast(Ints), row) for row in rows]

    def _halves(self, line: Ints, row: int) -> ir.Value:
        lanes = self.lanes
        words = load_ints(lanes, line.at(row % WORDS), lanes.size)
        # a bfloat16 is the upper half of a float
        if row < WORDS:
            bits = lanes.builder.shl(words, lanes.ints(HALF_BITS))
        else:
            bits = lanes.builder.and_(words, lanes.ints(-1 << HALF_BITS))
        return lanes.builder.bitcast(bits, lanes.vector)
