"""Sparse kernel family for small batches: blocks of inputs, rows of about equal counts in fours, rounds of 8 steps.

A step multiplies one weight of each of four rows, a vector broadcast, with its input's columns, a memory operand. A
round is 8 steps; a count that is no multiple of 8 enters the first round in the middle. Four 16-bit offsets come with
one load, as in narrow tiles loads are what there is most of. Blocks, as many as the IR says, may be as large as the
first-level cache permits narrow tiles, so that rows have many connections there.

Registers: see `block_loop`, with 4 rows and up to 2 vectors. Besides, for a round:

    quad[s]   the four 16-bit offsets of step s in one 64-bit word, 8 loads at the beginning of the round
    offsets   quad & 0xFFFF, quad >> 16 & 0xFFFF, ...            scalar registers, just before their step
"""

from dataclasses import replace
from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.formats.narrow_blocks import GROUP_ROWS, STEPS
from ..llvm.builder import Code
from ..llvm.flow import Blocks, select
from ..llvm.values import ALIGNMENT, FLOAT_BYTES, I32, Floats, Longs, Number, Shorts
from .block_loop import BlockKernel, GroupWork, RowGroups, Vectors
from .kernel_form import LinearForm

MOST_VECTORS: Final = 2
"""Vectors of columns a row has at once: the sums of four rows, their weights and operands fit 16 registers."""

WEIGHT_BYTES, OFFSET_BYTES = FLOAT_BYTES * GROUP_ROWS, 2 * GROUP_ROWS
"""Bytes of the weights and of the offsets of a step."""

AHEAD: Final = (2048, 1024)
"""Bytes by which weights and offsets are fetched ahead: many weights come from beyond the second-level cache."""

LINES: Final = tuple(STEPS * size // ALIGNMENT for size in (WEIGHT_BYTES, OFFSET_BYTES))
"""Cache lines of weights and offsets in a round."""


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return the kernel for tiles of `form.width` columns, see `BlockKernel`."""
    return BlockKernel("narrow_blocks", GROUP_ROWS, MOST_VECTORS, _products).emit(code, form)


class _Round(NamedTuple):
    """State of a round: rounds left with it, its weights and offsets, the offsets of its steps, the sums.

    All of these can enter a round at any step, so each is a value that comes from before the step or from the entry.
    """

    left: Number
    weights: Floats
    offsets: Shorts
    quads: list[Number]
    """The offsets of the steps, those of four rows in a word."""
    sums: Vectors

    @classmethod
    def at(cls, left: Number, weights: Floats, offsets: Shorts, sums: Vectors) -> "_Round":
        """Load the offsets of a round."""
        for stream, distance, lines in zip((weights, offsets), AHEAD, LINES, strict=True):
            stream.after(distance).fetch(lines)
        quads = [offsets.after(OFFSET_BYTES * step).cast(Longs) for step in range(STEPS)]
        return cls(left, weights, offsets, [quad[0] for quad in quads], sums)


def _products(fours: RowGroups, work: GroupWork, initial: Vectors) -> Vectors:
    """Return the sums after `work.count` connections of each row."""
    # the first round begins as many steps early as are skipped, so the others begin where they should
    skipped = -work.count & (STEPS - 1)
    rounds = (work.count + (STEPS - 1)) >> (STEPS.bit_length() - 1)
    weights = work.weights.after(skipped * -WEIGHT_BYTES)
    # packing puts the offsets of a round of idle connections before the first ones
    offsets = work.offsets.after((STEPS - skipped) * OFFSET_BYTES)
    entry = _Round.at(rounds, weights, offsets, initial)
    # a switch to the first step that is not skipped, past all steps where there is no connection
    builder = work.x.builder
    start = builder.block
    flow = Blocks(builder, "sums", *(f"step{step}" for step in range(STEPS)), "again")
    first = select(work.count == 0, STEPS, skipped).narrow(I32)
    flow.switch(first, {f"step{step}": [step] for step in range(STEPS)}, "sums")
    last = _emit_rounds(fours, work, entry, flow, start)
    return flow.merged({start: initial, flow.blocks[f"step{STEPS - 1}"]: last.sums})


def _emit_rounds(fours: RowGroups, work: GroupWork, entry: _Round, flow: Blocks, start: ir.Block) -> _Round:
    """Emit all rounds, the first of which is entered from `start` at any step; return the state after a round."""
    flow.at("step0")
    head = state = flow.merged({start: entry})
    # each step is entered from the one before, and in the first round from the switch
    for step in range(STEPS):
        if step > 0:
            before = flow.enter(f"step{step}")
            state = flow.merged({start: entry, before: state})
        here = replace(work, weights=state.weights)
        sums = fours.multiplied(here, WEIGHT_BYTES * step, _parts(state.quads[step]), state.sums)
        state = state._replace(sums=sums)
    # on to the next round, whose weights and offsets follow, or out with the sums
    left = state.left - 1
    flow.branch(left == 0, "sums", "again")
    flow.at("again")
    streams = state.weights.after(WEIGHT_BYTES * STEPS), state.offsets.after(OFFSET_BYTES * STEPS)
    flow.come_back(head, _Round.at(left, *streams, state.sums))
    flow.enter("step0")
    flow.at("sums")
    return state


def _parts(quad: Number) -> list[Number]:
    """Return the four 16-bit numbers in a word, by as few instructions as there are."""
    low, high = quad & 0xFFFFFFFF, quad >> 32
    return [quad & 0xFFFF, low >> 16, high & 0xFFFF, quad >> 48]
