"""Sparse kernel family for one row of activations: weights meet values that are looked up in two registers.

Cut x into blocks of 16. A panel of 32 output rows shares a sequence v0, v1, ... over the blocks. Step t holds the
blocks v_t and v_t+1 in two registers (one of them from the step before), looks up one of these 32 values for every row,
and multiplies it by the row's weight. So an entry may go into any step that touches its block, and no sum leaves its
register before its row is complete. What fits no step is gathered, into the same sums. Where it pays, x is first copied
to a place behind which it stands once more, transposed; the format says what that is, and makes the sequences.

Registers (AVX-512), for the 32 rows of a panel:

    tables   v_t | v_t+1         16 values of x each; one is loaded a step, into the older of the two
    lookup   16 rows | 16 rows   vpermi2ps by 5 bits a row of a word that six steps share
    sums     even steps: 2, odd steps: 2, added at the end: two chains of multiply-adds hide each other's latency

An unused lane multiplies 0 by a real x: an infinity or NaN in x may spread to rows without a connection to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from ...kernels.formats.permute_lookup import FIELD_BITS, UNIT
from ...kernels.formats.permute_lookup_search import BLOCK, CHUNK_STEPS, PANEL_ROWS
from ..llvm.builder import I32, I64, POINTER, Code, byte_at, float_at, i64, reduce_loop
from ..llvm.gather_scatter import gather, load_ints, scatter_rows, splat_int
from ..llvm.vectors import FLOAT, Lanes, int_constants
from .kernel_form import LinearForm, activated

HEAD_WORDS = 2 * PANEL_ROWS
"""The biases and the numbers of a panel's rows."""

_UNIT_VECTOR = ir.VectorType(FLOAT, UNIT)

State = list[ir.Value]
"""Values that a loop carries: the sums, the blocks in registers, and at the end where the next weights are."""


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return `void (x, y, sizes, sequences, words, weights, inputs, outputs)` for one row of activations.

    Raises:
        ValueError: the form is for more than one.
    """
    if form.width != 1:
        raise ValueError(f"permute_lookup has code for tiles of 1 batch column, the tile has {form.width}")

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, y, sizes, *starts = args[:6]
        x = _with_transposed(code, builder, x, sizes, args[-2])
        panels = builder.sdiv(builder.add(args[-1], i64(PANEL_ROWS - 1)), i64(PANEL_ROWS))

        def panel(index: ir.Value, addresses: Sequence[ir.Value]) -> Sequence[ir.Value]:
            pair = [builder.add(builder.mul(index, i64(2)), i64(2 + part)) for part in range(2)]
            counts = [builder.zext(builder.load(float_at(builder, sizes, entry), typ=I32), I64) for entry in pair]
            sequence, words, weights = addresses
            return _Panel(code, builder, x, y, sequence, words).emit(counts, form, weights)

        reduce_loop(builder, panels, starts, panel)

    return code.function(f"permute_lookup_{form.key}", [POINTER] * 6 + [I64, I64], body)


def _with_transposed(code: Code, builder: ir.IRBuilder, x: ir.Value, sizes: ir.Value, inputs: ir.Value) -> ir.Value:
    """Return where the panels find their blocks: x, or a copy that x transposed follows, as the sizes say."""
    is_transposed = builder.icmp_signed("!=", builder.load(sizes, typ=I32), ir.Constant(I32, 0))
    groups = builder.sdiv(builder.add(inputs, i64(UNIT * BLOCK - 1)), i64(UNIT * BLOCK))
    room = builder.alloca(ir.ArrayType(FLOAT, 2 * UNIT * BLOCK), builder.select(is_transposed, groups, i64(0)))
    room.align = 4 * BLOCK
    # llvmlite types what is allocated by its contents, and then refuses vectors of them
    copy = builder.inttoptr(builder.ptrtoint(room, I64), POINTER)
    with builder.if_then(is_transposed):
        copy_with_transposed(code, builder, x, copy, inputs)
    return builder.select(is_transposed, copy, x)


def copy_with_transposed(code: Code, builder: ir.IRBuilder, x: ir.Value, copy: ir.Value, inputs: ir.Value) -> None:
    """Emit the copy of x, and behind it x transposed, as the format says."""
    lanes = Lanes(builder, code.target, BLOCK)
    blocks = builder.sdiv(builder.add(inputs, i64(BLOCK - 1)), i64(BLOCK))
    groups = builder.sdiv(builder.add(blocks, i64(UNIT - 1)), i64(UNIT))

    def copied(index: ir.Value, _: Sequence[ir.Value]) -> Sequence[ir.Value]:
        start = builder.mul(index, i64(BLOCK))
        lanes.store(lanes.load(float_at(builder, x, start)), float_at(builder, copy, start), 4 * BLOCK)
        return []

    def transposed(index: ir.Value, _: Sequence[ir.Value]) -> Sequence[ir.Value]:
        units = [
            builder.load(float_at(builder, copy, builder.mul(unit, i64(UNIT))), align=4 * UNIT, typ=_UNIT_VECTOR)
            for unit in [builder.add(index, builder.mul(groups, i64(number))) for number in range(BLOCK)]
        ]
        behind = float_at(builder, copy, builder.mul(builder.add(groups, index), i64(UNIT * BLOCK)))
        for number, value in enumerate(_transposed_units(builder, units)):
            lanes.store(value, float_at(builder, behind, i64(number * BLOCK)), 4 * BLOCK)
        return []

    reduce_loop(builder, blocks, [], copied)
    reduce_loop(builder, groups, [], transposed)


def _transposed_units(builder: ir.IRBuilder, units: Sequence[ir.Value]) -> list[ir.Value]:
    """Return 4 vectors of 16 floats: the first float of each of 16 units of 4, the second ones, and so on.

    Unit 4 i + q stands at lane 4 q + i, as then each part of a register is transposed by itself.
    """

    def shuffled(left: ir.Value, right: ir.Value, mask: Sequence[int]) -> ir.Value:
        return builder.shuffle_vector(left, right, int_constants(mask))

    def parts(left: ir.Value, right: ir.Value, lanes: Sequence[int]) -> ir.Value:
        """Return in each quarter the lanes of that of two vectors; from 4 on of the second one's."""
        first = [lane if lane < UNIT else lane - UNIT + BLOCK for lane in lanes]
        return shuffled(left, right, [UNIT * quarter + lane for quarter in range(UNIT) for lane in first])

    rows: list[ir.Value] = []
    for first in range(0, BLOCK, UNIT):
        left, right = (shuffled(units[at], units[at + 1], range(2 * UNIT)) for at in (first, first + 2))
        rows.append(shuffled(left, right, range(BLOCK)))
    low = [parts(rows[at], rows[at + 1], (0, 4, 1, 5)) for at in (0, 2)]
    high = [parts(rows[at], rows[at + 1], (2, 6, 3, 7)) for at in (0, 2)]
    return [parts(left, right, lanes) for left, right in (low, high) for lanes in ((0, 1, 4, 5), (2, 3, 6, 7))]


class _Blocks(NamedTuple):
    """Two neighbours of the sequence, by whether their positions on it are even or odd."""

    even: ir.Value
    odd: ir.Value


@dataclass(frozen=True)
class _Panel:
    """One panel: x and y, its sequence and its words."""

    code: Code
    builder: ir.IRBuilder
    x: ir.Value
    y: ir.Value
    sequence: ir.Value
    words: ir.Value

    def emit(self, counts: Sequence[ir.Value], form: LinearForm, weights: ir.Value) -> State:
        """Emit the panel with its [chunks, gathers]; returns where the next one's sequence, words and weights begin."""
        builder, lanes, words = self.builder, self.lanes, self.words
        # all rows at once where there are registers for their sums, else the sequence once for each vector of rows
        at_once = PANEL_ROWS // lanes.width if self.in_registers else 1
        after: State = []
        for first in range(0, PANEL_ROWS, at_once * lanes.width):
            rows = [first + index * lanes.width for index in range(at_once)]
            state = [lanes.load(float_at(builder, words, i64(row)), 4 * lanes.width) for row in rows]
            state = self._emit_chunks(counts[0], rows, [*state, weights])
            state = self._emit_gathers(counts, rows, state)
            for row, value in zip(rows, activated(lanes, form.activation, state[:at_once]), strict=True):
                numbers = load_ints(lanes, float_at(builder, words, i64(PANEL_ROWS + row)))
                scatter_rows(lanes, value, self.y, numbers)
            after = state[at_once:]
        steps = builder.add(builder.mul(counts[0], i64(CHUNK_STEPS)), i64(1))
        lines = builder.mul(builder.add(counts[0], counts[1]), i64(PANEL_ROWS))
        return [float_at(builder, self.sequence, steps), self._line(lines), *after]

    @property
    def lanes(self) -> Lanes:
        """Vectors of rows."""
        return self.code.lanes(self.builder)

    @property
    def in_registers(self) -> bool:
        """Whether values are looked up in registers; else they are gathered where a look-up would find them."""
        return self.code.target.has_avx512

    def _emit_chunks(self, count: ir.Value, rows: Sequence[int], state: State) -> State:
        """Emit all steps of the sequence for vectors of rows; the state is their sums, and the weights."""
        lanes, groups = self.lanes, len(rows)
        # odd steps have sums of their own, as two chains of multiply-adds hide each other's latency
        sums = [*state[:groups], *[lanes.splat(0.0)] * groups]
        present = [self._block(i64(0))] if self.in_registers else []

        def chunk(index: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            following, block, weights = list(carried[: 2 * groups]), carried[2 * groups], carried[-1]
            line = self._line(self.builder.mul(index, i64(PANEL_ROWS)))
            indices = [load_ints(lanes, float_at(self.builder, line, i64(row)), 4 * lanes.width) for row in rows]
            position = self.builder.mul(index, i64(CHUNK_STEPS))
            for step in range(CHUNK_STEPS):
                blocks, block = self._blocks(position, step, block)
                for group, weight in enumerate(self._weights(weights, rows)):
                    value = self._look_up(blocks, self.builder.lshr(indices[group], lanes.ints(FIELD_BITS * step)))
                    target = step % 2 * groups + group
                    following[target] = lanes.fma(value, weight, following[target])
                weights = float_at(self.builder, weights, i64(PANEL_ROWS))
            return [*following, *([block] if present else []), weights]

        initial = [*sums, *present, state[groups]]
        results = reduce_loop(self.builder, count, initial, chunk)
        totals = [lanes.add(results[group], results[groups + group]) for group in range(groups)]
        return [*totals, results[-1]]

    def _emit_gathers(self, counts: Sequence[ir.Value], rows: Sequence[int], state: State) -> State:
        """Emit what the sequence left over."""
        lanes, groups = self.lanes, len(rows)
        first = self._line(self.builder.mul(counts[0], i64(PANEL_ROWS)))

        def step(index: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            weights = carried[groups]
            line = float_at(self.builder, first, self.builder.mul(index, i64(PANEL_ROWS)))
            following: State = []
            for row, weight, total in zip(rows, self._weights(weights, rows), carried, strict=False):
                inputs = load_ints(lanes, float_at(self.builder, line, i64(row)), 4 * lanes.width)
                following.append(lanes.fma(gather(lanes, self.x, inputs), weight, total))
            return [*following, float_at(self.builder, weights, i64(PANEL_ROWS))]

        return reduce_loop(self.builder, counts[1], state, step)

    def _weights(self, line: ir.Value, rows: Sequence[int]) -> list[ir.Value]:
        """Return the weights of a line for some vectors of rows, given by the first row of each."""
        lanes = self.lanes
        return [lanes.load(float_at(self.builder, line, i64(row)), 4 * lanes.width) for row in rows]

    def _line(self, words: ir.Value) -> ir.Value:
        """Return the address some words after the head."""
        return float_at(self.builder, float_at(self.builder, self.words, i64(HEAD_WORDS)), words)

    def _blocks(self, position: ir.Value, step: int, present: ir.Value) -> tuple[_Blocks, ir.Value]:
        """Return the blocks of a step, and the one it goes to.

        A block is a register, or the first of its inputs where values are not looked up in registers.
        """
        after = self.builder.add(position, i64(step + 1))
        if self.in_registers:
            there = self._block(after)
        else:
            present = self._first_input(self.builder.add(position, i64(step)))
            there = self._first_input(after)
        return (_Blocks(present, there) if step % 2 == 0 else _Blocks(there, present)), there

    def _offset(self, position: ir.Value) -> ir.Value:
        return self.builder.load(float_at(self.builder, self.sequence, position), typ=I32)

    def _block(self, position: ir.Value) -> ir.Value:
        address = byte_at(self.builder, self.x, self.builder.zext(self._offset(position), I64))
        return self.lanes.load(address, 4 * BLOCK)

    def _first_input(self, position: ir.Value) -> ir.Value:
        return splat_int(self.lanes, self.builder.lshr(self._offset(position), ir.Constant(I32, 2)))

    def _look_up(self, blocks: _Blocks, indices: ir.Value) -> ir.Value:
        """Return the value of each row, where its lowest bits say which one of the two blocks it is."""
        builder, lanes = self.builder, self.lanes
        if self.in_registers:
            return lanes.permuted(blocks.even, blocks.odd, indices)
        in_odd = builder.icmp_signed("!=", builder.and_(indices, lanes.ints(BLOCK)), lanes.ints(0))
        first = builder.select(in_odd, blocks.odd, blocks.even)
        inputs = builder.add(first, builder.and_(indices, lanes.ints(BLOCK - 1)))
        return gather(lanes, self.x, inputs)
