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
from typing import ClassVar, NamedTuple

from llvmlite import ir

from ...kernels.formats.permute_lookup import FIELD_BITS, UNIT
from ...kernels.formats.permute_lookup_search import BLOCK, CHUNK_STEPS, PANEL_ROWS
from ..llvm.builder import Code
from ..llvm.flow import allocated, fold, loop, select, when
from ..llvm.gather_scatter import gather, load_ints, scatter_rows
from ..llvm.values import FLOAT, FLOAT_BYTES, Floats, Index, Ints, Number, Truth
from ..llvm.vectors import Lanes, int_constants
from .kernel_form import LinearForm, activated

HEAD_WORDS = 2 * PANEL_ROWS
"""The biases and the numbers of a panel's rows."""

_UNIT_VECTOR = ir.VectorType(FLOAT, UNIT)

Vectors = list[ir.Value]


class Packed(NamedTuple):
    """The begin of a panel: the blocks of its sequence, its words (biases, rows, indices), its weights."""

    sequence: Ints
    words: Ints
    weights: Floats


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return `void (x, y, sizes, sequences, words, weights, inputs, outputs)` for one row of activations.

    Raises:
        ValueError: the form is for more than one.
    """
    return emit_panels(code, form, "permute_lookup", Panel)


def emit_panels(code: Code, form: LinearForm, family: str, panel_code: "type[Panel]") -> ir.Function:
    """Return the kernel of a family whose panels have code of that kind.

    Raises:
        ValueError: the form is for more than one row.
    """
    if form.width != 1:
        raise ValueError(f"{family} has code for tiles of 1 batch column, the tile has {form.width}")

    @code.kernel(f"{family}_{form.key}")
    def kernel(x: Floats, y: Floats, sizes: Ints, packed: Packed, inputs: Number, outputs: Number) -> None:
        x = _with_transposed(code, x, sizes, inputs)

        def panel(index: Number, at: Packed) -> Packed:
            return panel_code(code, x, y, at).emit(panel_counts(sizes, index), form)

        fold((outputs + (PANEL_ROWS - 1)).quotient(PANEL_ROWS), packed, panel)

    return kernel


class Counts(NamedTuple):
    """The chunks of a panel's sequence, and the gathers of what is left over."""

    chunks: Number
    gathers: Number


def panel_counts(sizes: Ints, panel: Number) -> Counts:
    """Return the counts of a panel; two words of the whole layer are before them."""
    entries = [panel * 2 + (2 + part) for part in range(2)]
    return Counts(*(sizes[entry] for entry in entries))


def groups_to_transpose(sizes: Ints, inputs: Number) -> tuple[Truth, Number]:
    """Return whether panels read x and x transposed, as the sizes say, and the groups of blocks that these take."""
    is_transposed = sizes.narrow(0) != 0
    groups = (inputs + (UNIT * BLOCK - 1)).quotient(UNIT * BLOCK)
    return is_transposed, select(is_transposed, groups, 0)


def _with_transposed(code: Code, x: Floats, sizes: Ints, inputs: Number) -> Floats:
    """Return where the panels find their blocks: x, or a copy that x transposed follows, as the sizes say."""
    is_transposed, groups = groups_to_transpose(sizes, inputs)
    copy = allocated(x, Floats, 2 * UNIT * BLOCK, times=groups)
    with when(is_transposed):
        copy_with_transposed(code, x, copy, inputs)
    return select(is_transposed, copy, x)


def copy_with_transposed(code: Code, x: Floats, copy: Floats, inputs: Number) -> None:
    """Emit the copy of x, and behind it x transposed, as the format says."""
    lanes = code.lanes(x, BLOCK)
    blocks = (inputs + (BLOCK - 1)).quotient(BLOCK)
    groups = (blocks + (UNIT - 1)).quotient(UNIT)
    with loop(blocks) as index:
        start = index * BLOCK
        lanes.store(lanes.load(x.at(start)), copy.at(start), FLOAT_BYTES * BLOCK)
    with loop(groups) as index:
        # a unit of 4 inputs from each of 16 places, a group apart
        places = [index + groups * number for number in range(BLOCK)]
        units = [copy.at(place * UNIT).load(_UNIT_VECTOR, FLOAT_BYTES * UNIT) for place in places]
        behind = copy.at((groups + index) * (UNIT * BLOCK))
        lanes.put(behind, _transposed_units(x.builder, units))


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

    # four units in a register, then the first and the last two floats of each, next to those of another register
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


class _Steps(NamedTuple):
    """State between steps: the sums of even and of odd steps, the block in a register if any, the next weights."""

    sums: tuple[Vectors, Vectors]
    present: Vectors
    weights: Floats


@dataclass(frozen=True)
class Panel:
    """One panel: x, y and the place of the panel."""

    line_floats: ClassVar[int] = PANEL_ROWS
    """Floats that take as many bytes as a line of weights."""

    code: Code
    x: Floats
    y: Floats
    at: Packed

    def emit(self, counts: Counts, form: LinearForm) -> Packed:
        """Emit the panel; returns where the next one begins."""
        lanes, words, after = self.lanes, self.at.words, self.at.weights
        # all rows at once where there are registers for their sums, else the sequence once for each vector of rows
        at_once = PANEL_ROWS // lanes.width if self.in_registers else 1
        for first in range(0, PANEL_ROWS, at_once * lanes.width):
            rows = [first + index * lanes.width for index in range(at_once)]
            biases = [lanes.load(words.at(row).cast(Floats), lanes.size) for row in rows]
            sums, after = self._emit_gathers(counts, rows, *self._emit_chunks(counts.chunks, rows, biases))
            for row, value in zip(rows, activated(lanes, form.activation, sums), strict=True):
                scatter_rows(lanes, value, self.y, load_ints(lanes, words.at(PANEL_ROWS + row)))
        steps = counts.chunks * CHUNK_STEPS + 1
        lines = (counts.chunks + counts.gathers) * PANEL_ROWS
        return Packed(self.at.sequence.at(steps), self._line(lines), after)

    @property
    def lanes(self) -> Lanes:
        """Vectors of rows."""
        return self.code.lanes(self.x)

    @property
    def in_registers(self) -> bool:
        """Whether values are looked up in registers; else they are gathered where a look-up would find them."""
        return self.code.target.has_avx512

    def _emit_chunks(self, count: Number, rows: Sequence[int], biases: Vectors) -> tuple[Vectors, Floats]:
        """Emit all steps of the sequence for vectors of rows; returns the sums, and where the next weights are."""
        lanes = self.lanes

        def chunk(index: Number, now: _Steps) -> _Steps:
            sums, present, weights = [[*one] for one in now.sums], now.present, now.weights
            # a word of each row holds the indices of all steps of the chunk
            line = self._line(index * PANEL_ROWS)
            indices = [load_ints(lanes, line.at(row), lanes.size) for row in rows]
            position = index * CHUNK_STEPS
            for step in range(CHUNK_STEPS):
                blocks, present = self._blocks(position, step, present)
                for group, weight in enumerate(self.weights(weights, rows)):
                    field = lanes.builder.lshr(indices[group], lanes.ints(FIELD_BITS * step))
                    value = self._look_up(blocks, field)
                    sums[step % 2][group] = lanes.fma(value, weight, sums[step % 2][group])
                weights = weights.at(self.line_floats)
            return _Steps((sums[0], sums[1]), present if self.in_registers else [], weights)

        # odd steps have sums of their own, as two chains of multiply-adds hide each other's latency
        zeros = [lanes.splat(0.0) for _ in rows]
        present = [self._block(0)] if self.in_registers else []
        after = fold(count, _Steps((biases, zeros), present, self.at.weights), chunk)
        return [lanes.add(even, odd) for even, odd in zip(*after.sums, strict=True)], after.weights

    def _emit_gathers(
        self, counts: Counts, rows: Sequence[int], sums: Vectors, weights: Floats
    ) -> tuple[Vectors, Floats]:
        """Emit what the sequence left over."""
        lanes, first = self.lanes, self._line(counts.chunks * PANEL_ROWS)

        def step(index: Number, now: tuple[Vectors, Floats]) -> tuple[Vectors, Floats]:
            sums, weights = now
            line, following = first.at(index * PANEL_ROWS), Vectors()
            for row, weight, total in zip(rows, self.weights(weights, rows), sums, strict=True):
                inputs = load_ints(lanes, line.at(row), lanes.size)
                following.append(lanes.fma(gather(lanes, self.x, inputs), weight, total))
            return following, weights.at(self.line_floats)

        return fold(counts.gathers, (sums, weights), step)

    def weights(self, line: Floats, rows: Sequence[int]) -> Vectors:
        """Return the weights of a line for some vectors of rows, given by the first row of each."""
        return [self.lanes.load(line.at(row), self.lanes.size) for row in rows]

    def _line(self, words: Number) -> Ints:
        """Return the address some words after the head."""
        return self.at.words.at(HEAD_WORDS).at(words)

    def _blocks(self, position: Number, step: int, present: Vectors) -> tuple[_Blocks, Vectors]:
        """Return the blocks of a step, and the one it goes to.

        A block is a register, or the first of its inputs where values are not looked up in registers.
        """
        after = position + (step + 1)
        if self.in_registers:
            there = self._block(after)
        else:
            present = [self._first_input(position + step)]
            there = self._first_input(after)
        return (_Blocks(present[0], there) if step % 2 == 0 else _Blocks(there, present[0])), [there]

    def _block(self, position: Index) -> ir.Value:
        return self.lanes.load(self.x.after(self.at.sequence[position]), FLOAT_BYTES * BLOCK)

    def _first_input(self, position: Number) -> ir.Value:
        return self.lanes.splat_int(self.at.sequence.narrow(position) >> 2)

    def _look_up(self, blocks: _Blocks, indices: ir.Value) -> ir.Value:
        """Return the value of each row, where its lowest bits say which one of the two blocks it is."""
        lanes, (even, odd) = self.lanes, blocks
        if self.in_registers:
            return lanes.permuted(even, odd, indices)
        return gather(lanes, self.x, place_in_blocks(lanes, even, odd, indices))


def place_in_blocks(lanes: Lanes, even: ir.Value, odd: ir.Value, indices: ir.Value) -> ir.Value:
    """Return the input of each lane: its lowest bits say which of the blocks from `even` and `odd` on it is in."""
    builder = lanes.builder
    in_odd = builder.icmp_signed("!=", builder.and_(indices, lanes.ints(BLOCK)), lanes.ints(0))
    first = builder.select(in_odd, odd, even)
    return builder.add(first, builder.and_(indices, lanes.ints(BLOCK - 1)))
