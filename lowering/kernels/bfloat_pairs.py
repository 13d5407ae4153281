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

from collections.abc import Sequence
from typing import Final

from llvmlite import ir

from redpebble.kernels.byte_lookup import VECTOR
from redpebble.kernels.formats.bfloat_pairs import MOST_INPUTS, STEP_INPUTS, TURNS
from redpebble.kernels.formats.bfloat_pairs import WIDTHS as COLUMNS
from redpebble.lowering.kernels.block_loop import BlockKernel, GroupWork, RowGroups
from redpebble.lowering.kernels.kernel_form import LinearForm
from redpebble.lowering.llvm.builder import (
    ALIGNMENT,
    FLOAT_BYTES,
    I32,
    I64,
    POINTER,
    Code,
    byte_at,
    counted_loop,
    float_at,
    i64,
    reduce_loop,
)
from redpebble.lowering.llvm.gather_scatter import splat_int
from redpebble.lowering.llvm.interleaving import interleaved
from redpebble.lowering.llvm.intrinsics import call_intrinsic
from redpebble.lowering.llvm.vectors import Lanes, int_constants

BLOCK_BYTES: Final = 12

LANES: Final = 16

WORDS: Final = ir.VectorType(I32, LANES)
BYTES: Final = ir.VectorType(ir.IntType(8), VECTOR)
HALVES: Final = ir.VectorType(ir.IntType(16), 2 * LANES)

PRODUCTS: Final = "llvm.x86.avx512bf16.dpbf16ps.512"
ROUND: Final = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return the kernel for tiles of `form.width` columns, see `BlockKernel`.

    Raises:
        ValueError: the target lacks the instructions.
    """
    if not code.target.has_bfloat:
        raise ValueError("kernel bfloat_pairs needs a CPU with avx512_bf16")

    def enter(groups: RowGroups, x: ir.Value, inputs: ir.Value) -> ir.Value:
        builder, size = groups.builder, _line_bytes(groups)
        with builder.goto_entry_block():
            lines = builder.alloca(ir.IntType(8), i64(size * (MOST_INPUTS + 1)))
        lines.align = ALIGNMENT
        builder.call(_rounding(code, groups.chunk.width, groups.chunk.vectors), [x, lines, inputs])
        return lines

    kernel = BlockKernel("bfloat_pairs", TURNS, COLUMNS[-1] // LANES, _products, STEP_INPUTS, BLOCK_BYTES, enter)
    return kernel.emit(code, form)


def _line_bytes(groups: RowGroups) -> int:
    return groups.chunk.vectors * LANES * FLOAT_BYTES // 2


def _rounding(code: Code, width: int, vectors: int) -> ir.Function:
    """Return `void (x, lines, inputs)`: a line of zeros, and one of each row of x in tiles of `width` columns."""
    size = vectors * LANES * FLOAT_BYTES // 2

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, lines, inputs = args
        lanes = Lanes(builder, code.target, LANES)
        zero = ir.Constant(WORDS, 0)
        for part in range(0, size, VECTOR):
            builder.store(zero, byte_at(builder, lines, i64(part)), align=ALIGNMENT)
        order = int_constants([0, 4, 1, 5, 2, 6, 3, 7])
        with counted_loop(builder, inputs) as row:
            source = float_at(builder, x, builder.mul(row, i64(width)))
            line = byte_at(builder, lines, builder.mul(builder.add(row, i64(1)), i64(size)))
            for part in range(size // VECTOR):
                low, high = (
                    lanes.load(float_at(builder, source, i64(LANES * (2 * part + half))), VECTOR) for half in (0, 1)
                )
                halves = call_intrinsic(builder, ROUND, HALVES, [high, low])
                fours = builder.bitcast(halves, ir.VectorType(I64, 8))
                made = builder.shuffle_vector(fours, fours, order)
                builder.store(made, byte_at(builder, line, i64(VECTOR * part)), align=ALIGNMENT)

    return code.function(f"round_lines_w{width}_v{vectors}", [POINTER, POINTER, I64], body)


def _products(groups: RowGroups, work: GroupWork, initial: Sequence[ir.Value]) -> list[ir.Value]:
    """Return the sums after `work.count` steps of each row."""
    builder, vectors = groups.builder, groups.chunk.vectors
    # offsets are for tiles of the widest kind
    scale = COLUMNS[-1] // (LANES * vectors)

    def step(index: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
        words = builder.mul(index, i64(TURNS))
        totals: list[ir.Value] = []
        for row in range(TURNS):
            weight = builder.load(float_at(builder, work.weights, builder.add(words, i64(row))), typ=I32)
            both = splat_int(groups.lanes, weight)
            places = [
                builder.gep(
                    work.offsets,
                    [builder.add(builder.mul(words, i64(STEP_INPUTS)), i64(STEP_INPUTS * row + side))],
                    source_etype=ir.IntType(16),
                )
                for side in range(STEP_INPUTS)
            ]
            offsets = [builder.zext(builder.load(place, typ=ir.IntType(16)), I64) for place in places]
            lines = [builder.gep(work.x, [offset], source_etype=ir.IntType(64 // scale)) for offset in offsets]
            for part in range(vectors // 2):
                one, other = (
                    builder.load(byte_at(builder, line, i64(VECTOR * part)), align=ALIGNMENT, typ=BYTES)
                    for line in lines
                )
                for half in (0, 1):
                    pairs = builder.bitcast(interleaved(builder, one, other, 2, bool(half)), WORDS)
                    before = sums[row * vectors + 2 * part + half]
                    totals.append(call_intrinsic(builder, PRODUCTS, groups.lanes.float_vector, [before, pairs, both]))
        return totals

    return reduce_loop(builder, work.count, initial, step)
