"""Sparse kernel family for batches in bfloat16: two inputs of an output at a time, unpacked where they meet.

For each block of inputs: round them, columns in an order that unpacking undoes; then for each pair of output rows with
n steps there: read the rows' sums, do the steps, write the sums. Registers, for 32 columns:

    line        columns 0 to 3 | 16 to 19 | 4 to 7 | 20 to 23 | ...      vcvtne2ps2bf16, vpermq
    a, b        lines of two inputs
    low         a0 b0 a1 b1 ... a15 b15                                   vpunpcklwd
    high        a16 b16 ... a31 b31                                       vpunpckhwd
    sums        + low . (wa, wb), + high . (wa, wb), one word in every lane    vdpbf16ps

Sums are float32. The instruction takes denormal numbers to be 0.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from llvmlite import ir

from ...kernels.byte_lookup import VECTOR
from ...kernels.formats.bfloat_pairs import MOST_INPUTS, STEP_INPUTS, TURNS
from ...kernels.formats.bfloat_pairs import WIDTHS as COLUMNS
from ..llvm.builder import Code
from ..llvm.flow import allocated, call, fold, loop
from ..llvm.interleaving import interleaved
from ..llvm.intrinsics import call_intrinsic
from ..llvm.values import ALIGNMENT, BYTE, FLOAT, FLOAT_BYTES, I16, I32, I64, Bytes, Floats, Ints, Number
from ..llvm.vectors import Arithmetic, int_constants
from .block_loop import BlockKernel, GroupWork, RowGroups, Vectors
from .kernel_form import LinearForm

BLOCK_BYTES: Final = 12

LANES: Final = 16

WORDS: Final = ir.VectorType(I32, LANES)
BYTES: Final = ir.VectorType(BYTE, VECTOR)
HALVES: Final = ir.VectorType(I16, 2 * LANES)
FOURS: Final = ir.VectorType(I64, 8)

PRODUCTS: Final = "llvm.x86.avx512bf16.dpbf16ps.512"
ROUND: Final = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return the kernel for tiles of `form.width` columns, see `BlockKernel`.

    Raises:
        ValueError: the target lacks the instructions.
    """
    if not code.target.has_bfloat:
        raise ValueError("kernel bfloat_pairs needs a CPU with avx512_bf16")

    def enter(groups: RowGroups, x: Floats, inputs: Number) -> Floats:
        lines = allocated(x, Bytes, _line_bytes(groups) * (MOST_INPUTS + 1), once=True)
        call(_rounding(code, groups.chunk.width, groups.chunk.vectors), x, lines, inputs)
        return lines.cast(Floats)

    kernel = BlockKernel("bfloat_pairs", TURNS, COLUMNS[-1] // LANES, _products, STEP_INPUTS, BLOCK_BYTES, enter)
    return kernel.emit(code, form)


def _line_bytes(groups: RowGroups) -> int:
    return groups.chunk.vectors * LANES * FLOAT_BYTES // 2


def _rounding(code: Code, width: int, vectors: int) -> ir.Function:
    """Return `void (x, lines, inputs)`: a line of zeros, and one of each row of x in tiles of `width` columns."""
    size = vectors * LANES * FLOAT_BYTES // 2

    @code.kernel(f"round_lines_w{width}_v{vectors}")
    def kernel(x: Floats, lines: Bytes, inputs: Number) -> None:
        builder, lanes = x.builder, code.lanes(x, LANES)
        for part in range(0, size, VECTOR):
            lines.after(part).store(ir.Constant(WORDS, 0), ALIGNMENT)
        order = int_constants([0, 4, 1, 5, 2, 6, 3, 7])
        with loop(inputs) as row:
            source = x.at(row * width)
            line = lines.after((row + 1) * size)
            # two vectors of columns are rounded into one, in quarters that stand in turns
            for part in range(size // VECTOR):
                low, high = (lanes.load(source.at(LANES * (2 * part + half)), VECTOR) for half in (0, 1))
                fours = builder.bitcast(call_intrinsic(builder, ROUND, HALVES, [high, low]), FOURS)
                made = builder.shuffle_vector(fours, fours, order)
                line.after(VECTOR * part).store(made, ALIGNMENT)

    return kernel


class BfloatPairs(Arithmetic):
    """Sums of floats; a factor and a lane of other vectors are two bfloats in a word."""

    @property
    def vector(self) -> ir.VectorType:
        """The type of a vector of sums."""
        return ir.VectorType(FLOAT, self.width)

    def multiplied(self, total: ir.Value, vector: ir.Value, factor: ir.Value) -> ir.Value:
        """Return sums and the products of both."""
        return call_intrinsic(self.builder, PRODUCTS, self.vector, [total, vector, factor])

    def met(self, lines: Sequence[Bytes], vectors: int) -> Iterator[ir.Value]:
        """Yield vectors of the columns of one input next to those of another one."""
        for part in range(vectors // 2):
            one, other = (line.after(VECTOR * part).load(BYTES, ALIGNMENT) for line in lines)
            for high in (False, True):
                yield self.builder.bitcast(interleaved(self.builder, one, other, 2, high), WORDS)


def _products(groups: RowGroups, work: GroupWork, initial: Vectors) -> Vectors:
    """Return the sums after `work.count` steps of each row."""
    pairs, vectors = BfloatPairs(work.x.builder, LANES), groups.chunk.vectors
    lines, weights = work.x.cast(Bytes), work.weights.cast(Ints)
    # offsets are for tiles of the widest kind
    unit = 8 * LANES * vectors // COLUMNS[-1]

    def step(index: Number, sums: Vectors) -> Vectors:
        words = index * TURNS
        totals: Vectors = []
        for row in range(TURNS):
            # the weights of two inputs in a word, and the rounded columns of these inputs
            both = pairs.splat(weights.narrow(words + row).value)
            places = [work.offsets.at(words * STEP_INPUTS + (STEP_INPUTS * row + side)) for side in range(STEP_INPUTS)]
            pair = [lines.after(offset * unit) for offset in [place[0] for place in places]]
            totals += pairs.add_products(sums[row * vectors : (row + 1) * vectors], both, pairs.met(pair, vectors))
        return totals

    return fold(work.count, initial, step)
