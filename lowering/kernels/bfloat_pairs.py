"""Sparse kernel family for batches in bfloat16: two inputs of an output at a time, unpacked where they meet.

For each block of inputs: round them, columns in an order that unpacking undoes; then for each pair of output rows with
n steps there: read the rows' sums, do the steps, write the sums. Registers, for 32 columns:

    line        columns 0 to 3 | 16 to 19 | 4 to 7 | 20 to 23 | ...      vcvtne2ps2bf16, vpermq
    a, b        lines of two inputs
    low         a0 b0 a1 b1 ... a15 b15                                   vpunpcklwd
    high        a16 b16 ... a31 b31                                       vpunpckhwd
    sums        + low . (wa, wb), + high . (wa, wb), one word in every lane    vdpbf16ps

On ARM a register has 8 columns, which stand in order: bfcvtn, zip1, zip2, bfdot.

Sums are float32. The instructions take denormal numbers to be 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from ...kernels.formats.bfloat_pairs import MOST_INPUTS, STEP_INPUTS, TURNS
from ...kernels.formats.bfloat_pairs import WIDTHS as COLUMNS
from ..cpu_target import BfloatProducts
from ..llvm.builder import Code
from ..llvm.flow import allocated, call, fold, loop
from ..llvm.interleaving import interleaved
from ..llvm.intrinsics import call_intrinsic
from ..llvm.values import BFLOAT, BYTE, FLOAT, FLOAT_BYTES, I16, I32, I64, Bytes, Floats, Ints, Number
from ..llvm.vectors import Arithmetic, Lanes, int_constants
from .block_loop import BlockKernel, GroupWork, RowGroups, Vectors
from .count_blocks import SHARE_OF_SUMS
from .kernel_form import LinearForm

BLOCK_BYTES: Final = 12

BFLOAT_BYTES: Final = 2


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return the kernel for tiles of `form.width` columns, see `BlockKernel`.

    Raises:
        ValueError: the target lacks the instructions.
    """
    products = code.target.bfloat_products
    if products is None:
        raise ValueError("kernel bfloat_pairs needs a CPU with avx512_bf16, or bf16 on ARM")

    def enter(groups: RowGroups, x: Floats, inputs: Number) -> Floats:
        lines = allocated(x, Bytes, _line_bytes(groups) * (MOST_INPUTS + 1), once=True)
        call(_rounding(code, products, groups.chunk.width, groups.chunk.vectors), x, lines, inputs)
        return lines.cast(Floats)

    def added(groups: RowGroups, work: GroupWork, initial: Vectors) -> Vectors:
        return _added(products, groups, work, initial)

    vectors = code.target.registers // (SHARE_OF_SUMS * TURNS)
    return BlockKernel("bfloat_pairs", TURNS, vectors, added, STEP_INPUTS, BLOCK_BYTES, enter).emit(code, form)


def _line_bytes(groups: RowGroups) -> int:
    return groups.chunk.vectors * groups.lanes.width * BFLOAT_BYTES


def _rounding(code: Code, products: BfloatProducts, width: int, vectors: int) -> ir.Function:
    """Return `void (x, lines, inputs)`: a line of zeros, and one of each row of x in tiles of `width` columns."""
    register = FLOAT_BYTES * products.lanes
    size = vectors * register // 2

    @code.kernel(f"round_lines_w{width}_v{vectors}")
    def kernel(x: Floats, lines: Bytes, inputs: Number) -> None:
        lanes = code.lanes(x, products.lanes)
        for part in range(0, size, register):
            lines.after(part).store(ir.Constant(ir.VectorType(I32, products.lanes), 0), register)
        with loop(inputs) as row:
            source = x.at(row * width)
            line = lines.after((row + 1) * size)
            for part in range(size // register):
                low, high = (lanes.load(source.at(products.lanes * (2 * part + half)), register) for half in (0, 1))
                line.after(register * part).store(_rounded(lanes, products, low, high), register)

    return kernel


def _rounded(lanes: Lanes, products: BfloatProducts, low: ir.Value, high: ir.Value) -> ir.Value:
    """Return two vectors of columns rounded into one, whose quarters stand in turns where there are several."""
    builder, count = lanes.builder, 2 * products.lanes
    if not products.round_two:
        both = builder.shuffle_vector(low, high, int_constants(range(count)))
        return builder.fptrunc(both, ir.VectorType(BFLOAT, count))
    halves = call_intrinsic(builder, products.round_two, ir.VectorType(I16, count), [high, low])
    fours = builder.bitcast(halves, ir.VectorType(I64, count // 4))
    return builder.shuffle_vector(fours, fours, int_constants([0, 4, 1, 5, 2, 6, 3, 7]))


@dataclass(frozen=True)
class BfloatPairs(Arithmetic):
    """Sums of floats; a factor and a lane of other vectors are two bfloats in a word."""

    products: BfloatProducts

    @property
    def vector(self) -> ir.VectorType:
        """The type of a vector of sums."""
        return ir.VectorType(FLOAT, self.width)

    @property
    def _bytes(self) -> ir.VectorType:
        return ir.VectorType(BYTE, self.size)

    def multiplied(self, total: ir.Value, vector: ir.Value, factor: ir.Value) -> ir.Value:
        """Return sums and the products of both."""
        kind = self._bytes if self.products.takes_bytes else ir.VectorType(I32, self.width)
        pair = [self.builder.bitcast(one, kind) for one in (vector, factor)]
        return call_intrinsic(self.builder, self.products.name, self.vector, [total, *pair])

    def met(self, lines: Sequence[Bytes], vectors: int) -> Iterator[ir.Value]:
        """Yield vectors of the columns of one input next to those of another one."""
        for part in range(vectors // 2):
            one, other = (line.after(self.size * part).load(self._bytes, self.size) for line in lines)
            for high in (False, True):
                yield interleaved(self.builder, one, other, BFLOAT_BYTES, high)


def _added(products: BfloatProducts, groups: RowGroups, work: GroupWork, initial: Vectors) -> Vectors:
    """Return the sums after `work.count` steps of each row."""
    pairs, vectors = BfloatPairs(work.x.builder, products.lanes, products), groups.chunk.vectors
    lines, weights = work.x.cast(Bytes), work.weights.cast(Ints)
    # offsets are for tiles of the widest kind
    unit = 8 * products.lanes * vectors // COLUMNS[-1]

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
