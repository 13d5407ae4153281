"""Sparse kernel family for small batches: blocks of inputs, rows of about equal counts in fours, rounds of 8 steps.

A step multiplies one weight of each of four rows, a vector broadcast, with its input's columns, a memory operand. A
round is 8 steps; a count that is no multiple of 8 enters the first round in the middle. Four 16-bit offsets come with
one load, as in narrow tiles loads are what there is most of. Blocks, as many as the IR says, may be as large as the
first-level cache permits narrow tiles, so that rows have many connections there.

Registers: see `block_loop`, with 4 rows and up to 2 vectors. Besides, for a round:

    quad[s]   the four 16-bit offsets of step s in one 64-bit word, 8 loads at the beginning of the round
    offsets   quad & 0xFFFF, quad >> 16 & 0xFFFF, ...            scalar registers, just before their step
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from llvmlite import ir

from redpebble.kernels.formats.narrow_blocks import GROUP_ROWS, STEPS
from redpebble.lowering.kernels.block_loop import BlockKernel, GroupWork, RowGroups, merged
from redpebble.lowering.kernels.kernel_form import LinearForm
from redpebble.lowering.llvm.builder import ALIGNMENT, FLOAT_BYTES, I32, I64, Code, byte_at, i64
from redpebble.lowering.llvm.prefetch import fetch_lines

MOST_VECTORS: Final = 2
"""Vectors of columns a row has at once: the sums of four rows, their weights and operands fit 16 registers."""

WEIGHT_BYTES, OFFSET_BYTES = FLOAT_BYTES * GROUP_ROWS, 2 * GROUP_ROWS
"""Bytes of the weights and of the offsets of a step."""

AHEAD: Final = (2048, 1024)
"""Bytes by which weights and offsets are fetched ahead: many weights come from beyond the second-level cache."""

LINES: Final = tuple(STEPS * size // ALIGNMENT for size in (WEIGHT_BYTES, OFFSET_BYTES))
"""Cache lines of weights and offsets in a round."""

Values = Sequence[ir.Value]


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return the kernel for tiles of `form.width` columns, see `BlockKernel`."""
    return BlockKernel("narrow_blocks", GROUP_ROWS, MOST_VECTORS, _products).emit(code, form)


@dataclass(frozen=True)
class _Round:
    """State at the start of a round: rounds left with it, weights and offsets, the offsets of its steps, the sums.

    All of these can enter a round at any step, so each is a value that comes from before the step or from the entry.
    """

    values: Values

    @classmethod
    def at(cls, builder: ir.IRBuilder, start: Values, sums: Values) -> "_Round":
        """Load the offsets of a round; `start` is the rounds left, and the addresses of its weights and offsets."""
        for stream, distance, lines in zip(start[1:], AHEAD, LINES, strict=True):
            fetch_lines(builder, byte_at(builder, stream, i64(distance)), lines)
        quads = [byte_at(builder, start[2], i64(OFFSET_BYTES * step)) for step in range(STEPS)]
        return cls([*start, *(builder.load(quad, typ=I64) for quad in quads), *sums])

    @property
    def quads(self) -> Values:
        """The offsets of the steps, those of four rows in a word."""
        return self.values[3 : 3 + STEPS]

    @property
    def sums(self) -> Values:
        """The sums so far."""
        return self.values[3 + STEPS :]


def _products(fours: RowGroups, work: GroupWork, initial: Values) -> list[ir.Value]:
    """Return the sums after `work.count` connections of each row."""
    builder = fours.builder
    # the first round begins as many steps early as are skipped, so the others begin where they should
    skipped = builder.and_(builder.neg(work.count), i64(STEPS - 1))
    rounds = builder.lshr(builder.add(work.count, i64(STEPS - 1)), i64(STEPS.bit_length() - 1))
    weights = byte_at(builder, work.weights, builder.mul(skipped, i64(-WEIGHT_BYTES)))
    # packing puts the offsets of a round of idle connections before the first ones
    offsets = byte_at(builder, work.offsets, builder.mul(builder.sub(i64(STEPS), skipped), i64(OFFSET_BYTES)))
    entry = _Round.at(builder, [rounds, weights, offsets], initial)
    start, done = builder.block, builder.append_basic_block("sums")
    steps = [builder.append_basic_block(f"step{step}") for step in range(STEPS)]
    nothing = builder.icmp_unsigned("==", work.count, i64(0))
    switch = builder.switch(builder.trunc(builder.select(nothing, i64(STEPS), skipped), I32), done)
    for step, block in enumerate(steps):
        switch.add_case(ir.Constant(I32, step), block)
    last = _emit_rounds(fours, work, entry, [start, *steps, done])
    return [merged(builder, {start: a, steps[-1]: b}) for a, b in zip(initial, last.sums, strict=True)]


def _emit_rounds(fours: RowGroups, work: GroupWork, entry: _Round, blocks: Sequence[ir.Block]) -> _Round:
    """Emit all rounds, which come from the first of the blocks and leave to the last; return the state after a round.

    The blocks between are the steps, at any of which the first round is entered.
    """
    builder, (start, *steps, done) = fours.builder, blocks
    builder.position_at_end(steps[0])
    head = [merged(builder, {start: value}) for value in entry.values]
    state = _Round([*head])
    for step in range(STEPS):
        if step > 0:
            builder.branch(steps[step])
            builder.position_at_end(steps[step])
            pairs = zip(entry.values, state.values, strict=True)
            state = _Round([merged(builder, {start: value, steps[step - 1]: now}) for value, now in pairs])
        here = replace(work, weights=state.values[1])
        sums = fours.multiplied(here, WEIGHT_BYTES * step, _parts(builder, state.quads[step]), state.sums)
        state = _Round([*state.values[: 3 + STEPS], *sums])
    left = builder.sub(state.values[0], i64(1))
    again = builder.append_basic_block("again")
    builder.cbranch(builder.icmp_unsigned("==", left, i64(0)), done, again)
    builder.position_at_end(again)
    sizes = (WEIGHT_BYTES * STEPS, OFFSET_BYTES * STEPS)
    streams = [byte_at(builder, stream, i64(size)) for stream, size in zip(state.values[1:3], sizes, strict=True)]
    for phi, value in zip(head, _Round.at(builder, [left, *streams], state.sums).values, strict=True):
        phi.add_incoming(value, again)
    builder.branch(steps[0])
    builder.position_at_end(done)
    return state


def _parts(builder: ir.IRBuilder, quad: ir.Value) -> list[ir.Value]:
    """Return the four 16-bit numbers in a word, by as few instructions as there are."""
    low, high = builder.and_(quad, i64(0xFFFFFFFF)), builder.lshr(quad, i64(32))
    parts = [builder.and_(quad, i64(0xFFFF)), builder.lshr(low, i64(16)), builder.and_(high, i64(0xFFFF))]
    return [*parts, builder.lshr(quad, i64(48))]
