"""Sparse kernel family for a few rows of activations: what one row looks up in registers, for several at once.

x and y are rows, as users have them: nothing is transposed, and as many rows are computed as there are. A step of the
sequence (see `permute_lookup`) reads the indices and weights of 32 outputs once. Each row has two tables of its own, of
which it loads one a step, and looks up the same places in them.

Registers (AVX-512), for a panel of 32 outputs and up to 6 rows:

    tables[row]  v_t | v_t+1          16 values of x each; one is loaded a step, into the older of the two
    lookup       16 outputs | 16      5 bits an output of a word that six steps share
    weights      16 outputs | 16
    sums[row]    16 outputs | 16      2 vpermi2ps and 2 multiply-adds a row and step

So a row and step takes two cycles where one port permutes, and less where two do; a load a row, and four that all rows
share, hide behind. Sums of a row add in one order, however many rows are with it. Outputs of a panel lie far apart in
y: they are written one by one, by way of memory, as scattering a vector takes three times as long.

An unused lane multiplies 0 by a real x: an infinity or NaN in x may spread to outputs without a connection to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.formats.lookup_rows import AT_ONCE, PASS_ROWS
from ...kernels.formats.permute_lookup import FIELD_BITS, UNIT
from ...kernels.formats.permute_lookup_search import BLOCK, CHUNK_STEPS, PANEL_ROWS
from ..llvm.builder import Code
from ..llvm.flow import allocated, call, choose, fold, loop, select, when
from ..llvm.gather_scatter import gather, load_ints
from ..llvm.values import FLOAT_BYTES, I32, Floats, Index, Ints, Number
from ..llvm.vectors import Lanes
from .kernel_form import LinearForm, activated, activation_key
from .permute_lookup import (
    HEAD_WORDS,
    Counts,
    Packed,
    Vectors,
    copy_with_transposed,
    groups_to_transpose,
    panel_counts,
    place_in_blocks,
)

LEAST_AT_ONCE: Final = 2
"""Rows of the smallest block; one row alone is computed twice."""


class _Rows(NamedTuple):
    """Rows of a buffer: the address of the first one, and the values from each to the next."""

    address: Floats
    apart: Number

    def at(self, row: Index) -> Floats:
        """Return the address of a row."""
        return self.address.at(row * self.apart)


def apart_of(features: Number) -> Number:
    """Return the values between rows of so many features: whole lines, an odd number, so that rows share no sets."""
    lines = (features + (BLOCK - 1)).quotient(BLOCK)
    return (lines | 1) * BLOCK


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return `void (x, y, sizes, sequences, words, weights, inputs, outputs)` for `form.width` rows as `apart_of` says.

    It is for measuring: a tile has rows at distances of its own.
    """
    whole = emit_apart(code, form)

    @code.kernel(f"lookup_rows_{form.key}")
    def kernel(x: Floats, y: Floats, sizes: Ints, packed: Packed, inputs: Number, outputs: Number) -> None:
        call(whole, x, y, sizes, packed, inputs, outputs, form.width, apart_of(inputs), apart_of(outputs))

    return kernel


def emit_apart(code: Code, form: LinearForm) -> ir.Function:
    """Return the same with three more arguments: the rows, and how many values rows of x and y are apart.

    Rows of x begin at whole cache lines, and have room up to the end of one.
    """

    @code.kernel(f"lookup_rows_apart_{activation_key(form.activation)}")
    def kernel(
        x: Floats,
        y: Floats,
        sizes: Ints,
        packed: Packed,
        inputs: Number,
        outputs: Number,
        rows: Number,
        x_apart: Number,
        y_apart: Number,
    ) -> None:
        layer = _Layer(code, form, sizes, packed, outputs)
        is_transposed, groups = groups_to_transpose(sizes, inputs)
        # a line more, so that rows share no sets of the cache
        room_apart = groups * (2 * UNIT * BLOCK) + BLOCK
        copies = _Rows(allocated(x, Floats, PASS_ROWS, times=room_apart), room_apart)
        with loop(rows, PASS_ROWS) as first:
            count = (rows - first).smaller(PASS_ROWS)
            x_rows = _Rows(_Rows(x, x_apart).at(first), x_apart)
            with when(is_transposed), loop(count) as row:
                copy_with_transposed(code, x_rows.at(row), copies.at(row), inputs)
            tables = select(is_transposed, copies, x_rows)
            layer.emit_pass(tables, _Rows(_Rows(y, y_apart).at(first), y_apart), count)

    return kernel


@dataclass(frozen=True)
class _Layer:
    """The code of all panels for the rows of a pass; `sizes` and `start` are the arrays of `PackedLookups`."""

    code: Code
    form: LinearForm
    sizes: Ints
    start: Packed
    outputs: Number

    @property
    def _at_once(self) -> int:
        """Rows of a block at most: where nothing is looked up in registers no more are worth their code."""
        return AT_ONCE if self.code.target.has_avx512 else LEAST_AT_ONCE

    def emit_pass(self, x: _Rows, y: _Rows, count: Number) -> None:
        """Emit all panels, each for all rows."""
        panels = (self.outputs + (PANEL_ROWS - 1)).quotient(PANEL_ROWS)
        blocks = (count + (self._at_once - 1)).quotient(self._at_once)

        def panel(index: Number, at: Packed) -> Packed:
            counts = panel_counts(self.sizes, index)
            with loop(blocks) as block:
                # the rows of a pass in blocks of about equal size
                first, end = ((count * number).quotient(blocks) for number in (block, block + 1))
                own = [buffer._replace(address=buffer.at(first)) for buffer in (x, y)]
                self._emit_block(own, end - first, counts, at)
            steps, lines = counts.chunks * CHUNK_STEPS, counts.chunks + counts.gathers
            return Packed(
                at.sequence.at(steps + 1),
                at.words.at(lines * PANEL_ROWS + HEAD_WORDS),
                at.weights.at((steps + counts.gathers) * PANEL_ROWS),
            )

        fold(panels, self.start, panel)

    def _emit_block(self, buffers: Sequence[_Rows], rows: Number, counts: Counts, at: Packed) -> None:
        """Emit the call of the code for so many rows of x and y."""

        def block(number: int) -> None:
            # a row alone is done twice
            own = [one if number > 1 else one._replace(apart=one.apart.constant(0)) for one in buffers]
            call(_panel_function(self.code, self.form, max(LEAST_AT_ONCE, number)), *own, counts, at)

        choose(rows, ((f"rows{number}", [number], partial(block, number)) for number in range(1, self._at_once + 1)))


def _panel_function(code: Code, form: LinearForm, rows: int) -> ir.Function:
    """Return the function for a panel and so many rows.

    It is `void (x, x apart, y, y apart, chunks, gathers, sequence, words, weights)`.
    """

    @code.kernel(f"lookup_panel_{rows}_{activation_key(form.activation)}")
    def kernel(x: _Rows, y: _Rows, counts: Counts, packed: Packed) -> None:
        xs, ys = ([buffer.at(row) for row in range(rows)] for buffer in (x, y))
        panel = _Panel(code, xs, packed)
        panel.place(panel.emit(form, counts), ys)

    return kernel


class _Steps(NamedTuple):
    """State between steps: the sums of all rows, the table of each row where it is a register, the next weights."""

    sums: Vectors
    tables: Vectors
    weights: Floats


@dataclass(frozen=True)
class _Panel:
    """The code of one panel for some rows, whose addresses are `xs`."""

    code: Code
    xs: Sequence[Floats]
    packed: Packed

    @property
    def lanes(self) -> Lanes:
        """Vectors of outputs."""
        return self.code.lanes(self.packed.words)

    @property
    def starts(self) -> range:
        """The first output of each vector."""
        return range(0, PANEL_ROWS, self.lanes.width)

    def emit(self, form: LinearForm, counts: Counts) -> Vectors:
        """Emit the panel; returns the vectors of sums of each row."""
        sums = self._vectors(self.packed.words.cast(Floats)) * len(self.xs)
        sums, weights = self._emit_chunks(counts.chunks, sums)
        return activated(self.lanes, form.activation, self._emit_gathers(counts, sums, weights))

    def place(self, sums: Vectors, ys: Sequence[Floats]) -> None:
        """Emit the writing of the sums to the places of their outputs.

        The last panel may have fewer than 32, the first ones: it writes all others to the place of its first one,
        before this is written itself.
        """
        lanes, groups = self.lanes, len(self.starts)
        numbers = [self.packed.words.narrow(PANEL_ROWS + lane) for lane in range(PANEL_ROWS)]
        for lane in reversed(range(PANEL_ROWS)):
            number = select(numbers[lane] >= 0, numbers[lane], numbers[0]).wide()
            for row, y in enumerate(ys):
                vector = sums[row * groups + lane // lanes.width]
                y[number] = lanes.builder.extract_element(vector, ir.Constant(I32, lane % lanes.width))

    def _vectors(self, line: Floats) -> Vectors:
        """Return the 32 floats at an address."""
        return [self.lanes.load(line.at(start), self.lanes.size) for start in self.starts]

    def _indices(self, line: Ints) -> Vectors:
        """Return the 32 integers at an address."""
        places = [line.at(start) for start in self.starts]
        return [load_ints(self.lanes, place, self.lanes.size) for place in places]

    def _emit_chunks(self, count: Number, sums: Vectors) -> tuple[Vectors, Floats]:
        """Emit all steps of the sequence; returns the sums, and where the weights of the gathers are."""
        lanes, lines = self.lanes, self.packed.words.at(HEAD_WORDS)

        def chunk(index: Number, now: _Steps) -> _Steps:
            totals, tables, weights = [*now.sums], now.tables, now.weights
            # a word of each output holds the indices of all steps of the chunk
            words = self._indices(lines.at(index * PANEL_ROWS))
            position = index * CHUNK_STEPS
            for step in range(CHUNK_STEPS):
                fields = [lanes.builder.lshr(word, lanes.ints(FIELD_BITS * step)) for word in words]
                factors = self._vectors(weights)
                following = self._tables(position + (step + 1))
                for row, (present, there) in enumerate(zip(tables, following, strict=True)):
                    pair = (present, there) if step % 2 == 0 else (there, present)
                    for group, (field, factor) in enumerate(zip(fields, factors, strict=True)):
                        number = row * len(fields) + group
                        totals[number] = lanes.fma(self._look_up(row, pair, field), factor, totals[number])
                tables, weights = following, weights.at(PANEL_ROWS)
            return _Steps(totals, tables, weights)

        after = fold(count, _Steps(sums, self._tables(0), self.packed.weights), chunk)
        return after.sums, after.weights

    def _emit_gathers(self, counts: Counts, sums: Vectors, weights: Floats) -> Vectors:
        """Emit what the sequence left over."""
        lanes, groups = self.lanes, len(self.starts)
        first = self.packed.words.at((counts.chunks + HEAD_WORDS // PANEL_ROWS) * PANEL_ROWS)

        def step(index: Number, totals: Vectors) -> Vectors:
            offset = index * PANEL_ROWS
            inputs = self._indices(first.at(offset))
            factors = self._vectors(weights.at(offset))
            # the inputs of 32 outputs, from each row
            values = (gather(lanes, x, vector) for x in self.xs for vector in inputs)
            return [
                lanes.fma(value, factors[number % groups], total)
                for number, (value, total) in enumerate(zip(values, totals, strict=True))
            ]

        return fold(counts.gathers, sums, step)

    @property
    def _in_registers(self) -> bool:
        """Whether values are looked up in registers; else they are gathered where a look-up would find them."""
        return self.code.target.has_avx512

    def _tables(self, position: Index) -> Vectors:
        """Return for each row the block at a position of the sequence: a register, or its first input."""
        offset = self.packed.sequence.narrow(position)
        if not self._in_registers:
            return [self.lanes.splat_int(offset >> 2)] * len(self.xs)
        distance = offset.wide()
        return [self.lanes.load(x.after(distance), FLOAT_BYTES * BLOCK) for x in self.xs]

    def _look_up(self, row: int, blocks: tuple[ir.Value, ir.Value], indices: ir.Value) -> ir.Value:
        """Return the value of each output, where its lowest bits say which one of the two blocks it is."""
        if self._in_registers:
            return self.lanes.permuted(*blocks, indices)
        return gather(self.lanes, self.xs[row], place_in_blocks(self.lanes, *blocks, indices))
