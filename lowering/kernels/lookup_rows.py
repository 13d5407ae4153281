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
from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.formats.lookup_rows import AT_ONCE, PASS_ROWS
from ...kernels.formats.permute_lookup import FIELD_BITS, UNIT
from ...kernels.formats.permute_lookup_search import BLOCK, CHUNK_STEPS, PANEL_ROWS
from ..llvm.builder import (
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
from ..llvm.gather_scatter import gather, load_ints, splat_int
from ..llvm.vectors import FLOAT, Lanes
from .kernel_form import LinearForm, activated, activation_key
from .permute_lookup import HEAD_WORDS, copy_with_transposed

LEAST_AT_ONCE: Final = 2
"""Rows of the smallest block; one row alone is computed twice."""

Values = Sequence[ir.Value]


class _Packed(NamedTuple):
    """Addresses of a panel's part of the packed arrays."""

    sequence: ir.Value
    words: ir.Value
    weights: ir.Value


class _Rows(NamedTuple):
    """Rows of a buffer: the address of the first one, and the values from each to the next."""

    address: ir.Value
    apart: ir.Value

    def at(self, builder: ir.IRBuilder, row: ir.Value) -> ir.Value:
        """Return the address of a row."""
        return float_at(builder, self.address, builder.mul(row, self.apart))


def apart_of(builder: ir.IRBuilder, features: ir.Value) -> ir.Value:
    """Return the values between rows of so many features: whole lines, an odd number, so that rows share no sets."""
    lines = builder.sdiv(builder.add(features, i64(BLOCK - 1)), i64(BLOCK))
    return builder.mul(builder.or_(lines, i64(1)), i64(BLOCK))


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return `void (x, y, sizes, sequences, words, weights, inputs, outputs)` for `form.width` rows as `apart_of` says.

    It is for measuring: a tile has rows at distances of its own.
    """
    whole = emit_apart(code, form)

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        builder.call(whole, [*args, i64(form.width), *(apart_of(builder, features) for features in args[-2:])])

    return code.function(f"lookup_rows_{form.key}", [POINTER] * 6 + [I64, I64], body)


def emit_apart(code: Code, form: LinearForm) -> ir.Function:
    """Return the same with three more arguments: the rows, and how many values rows of x and y are apart.

    Rows of x begin at whole cache lines, and have room up to the end of one.
    """

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, y, *arrays, inputs, outputs, rows, x_apart, y_apart = args
        layer = _Layer(code, builder, form, arrays, outputs)
        is_transposed = builder.icmp_signed("!=", builder.load(arrays[0], typ=I32), i32(0))
        groups = builder.sdiv(builder.add(inputs, i64(UNIT * BLOCK - 1)), i64(UNIT * BLOCK))
        groups = builder.select(is_transposed, groups, i64(0))
        # a line more, so that rows share no sets of the cache
        room_apart = builder.add(builder.mul(groups, i64(2 * UNIT * BLOCK)), i64(BLOCK))
        copies = _Rows(_floats(builder, PASS_ROWS, room_apart), room_apart)
        with counted_loop(builder, rows, PASS_ROWS) as first:
            left = builder.sub(rows, first)
            count = builder.select(builder.icmp_signed("<", left, i64(PASS_ROWS)), left, i64(PASS_ROWS))
            x_rows = _Rows(_Rows(x, x_apart).at(builder, first), x_apart)
            with builder.if_then(is_transposed), counted_loop(builder, count) as row:
                copy_with_transposed(code, builder, x_rows.at(builder, row), copies.at(builder, row), inputs)
            pairs = zip(copies, x_rows, strict=True)
            tables = _Rows(*(builder.select(is_transposed, copy, own) for copy, own in pairs))
            layer.emit_pass(tables, _Rows(_Rows(y, y_apart).at(builder, first), y_apart), count)

    name = f"lookup_rows_apart_{activation_key(form.activation)}"
    return code.function(name, [POINTER] * 6 + [I64] * 5, body)


def _floats(builder: ir.IRBuilder, count: int, times: ir.Value) -> ir.Value:
    """Return the address of memory for so many times `count` floats."""
    room = builder.alloca(ir.ArrayType(FLOAT, count), times)
    room.align = ALIGNMENT
    # llvmlite types what is allocated by its contents, and then refuses vectors of them
    return builder.inttoptr(builder.ptrtoint(room, I64), POINTER)


def i32(value: int) -> ir.Constant:
    """Return a 32-bit constant."""
    return ir.Constant(I32, value)


@dataclass(frozen=True)
class _Layer:
    """The code of all panels for the rows of a pass; arrays are those of `PackedLookups`."""

    code: Code
    builder: ir.IRBuilder
    form: LinearForm
    arrays: Values
    outputs: ir.Value

    @property
    def _at_once(self) -> int:
        """Rows of a block at most: where nothing is looked up in registers no more are worth their code."""
        return AT_ONCE if self.code.target.has_avx512 else LEAST_AT_ONCE

    def emit_pass(self, x: _Rows, y: _Rows, count: ir.Value) -> None:
        """Emit all panels, each for all rows."""
        builder, (sizes, *starts) = self.builder, self.arrays
        panels = builder.sdiv(builder.add(self.outputs, i64(PANEL_ROWS - 1)), i64(PANEL_ROWS))
        blocks = builder.sdiv(builder.add(count, i64(self._at_once - 1)), i64(self._at_once))

        def panel(index: ir.Value, addresses: Values) -> Values:
            pair = [builder.add(builder.mul(index, i64(2)), i64(2 + part)) for part in range(2)]
            counts = [builder.zext(builder.load(float_at(builder, sizes, entry), typ=I32), I64) for entry in pair]
            packed = _Packed(*addresses)
            with counted_loop(builder, blocks) as block:
                # the rows of a pass in blocks of about equal size
                first, end = (
                    builder.sdiv(builder.mul(count, number), blocks) for number in (block, builder.add(block, i64(1)))
                )
                own = [buffer._replace(address=buffer.at(builder, first)) for buffer in (x, y)]
                self._emit_block(own, builder.sub(end, first), (*counts, *packed))
            steps, lines = builder.mul(counts[0], i64(CHUNK_STEPS)), builder.add(counts[0], counts[1])
            return [
                float_at(builder, packed.sequence, builder.add(steps, i64(1))),
                float_at(builder, packed.words, builder.add(builder.mul(lines, i64(PANEL_ROWS)), i64(HEAD_WORDS))),
                float_at(builder, packed.weights, builder.mul(builder.add(steps, counts[1]), i64(PANEL_ROWS))),
            ]

        reduce_loop(builder, panels, starts, panel)

    def _emit_block(self, buffers: Sequence[_Rows], rows: ir.Value, arguments: Values) -> None:
        """Emit the call of the code for so many rows of x and y."""
        builder = self.builder
        done = builder.append_basic_block("done")
        choice = builder.switch(rows, done)
        for number in range(1, self._at_once + 1):
            case = builder.append_basic_block(f"rows{number}")
            choice.add_case(i64(number), case)
            builder.position_at_end(case)
            # a row alone is done twice
            own = [part for one in buffers for part in (one.address, one.apart if number > 1 else i64(0))]
            function = _panel_function(self.code, self.form, max(LEAST_AT_ONCE, number))
            builder.call(function, [*own, *arguments])
            builder.branch(done)
        builder.position_at_end(done)


def _panel_function(code: Code, form: LinearForm, rows: int) -> ir.Function:
    """Return the function for a panel and so many rows.

    It is `void (x, x apart, y, y apart, chunks, gathers, sequence, words, weights)`.
    """

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, x_apart, y, y_apart, chunks, gathers, *packed = args
        xs, ys = (
            [buffer.at(builder, i64(row)) for row in range(rows)] for buffer in (_Rows(x, x_apart), _Rows(y, y_apart))
        )
        panel = _Panel(code, builder, xs, _Packed(*packed))
        panel.place(panel.emit(form, (chunks, gathers)), ys)

    name = f"lookup_panel_{rows}_{activation_key(form.activation)}"
    return code.function(name, [POINTER, I64] * 2 + [I64] * 2 + [POINTER] * 3, body)


@dataclass(frozen=True)
class _Panel:
    """The code of one panel for some rows, whose addresses are `xs`."""

    code: Code
    builder: ir.IRBuilder
    xs: Values
    packed: _Packed

    @property
    def lanes(self) -> Lanes:
        """Vectors of outputs."""
        return self.code.lanes(self.builder)

    @property
    def starts(self) -> range:
        """The first output of each vector."""
        return range(0, PANEL_ROWS, self.lanes.width)

    def emit(self, form: LinearForm, counts: tuple[ir.Value, ir.Value]) -> list[ir.Value]:
        """Emit the panel with its (chunks, gathers); returns the vectors of sums of each row."""
        sums = self._vectors(self.packed.words) * len(self.xs)
        *sums, weights = self._emit_chunks(counts[0], sums)
        return activated(self.lanes, form.activation, self._emit_gathers(counts, sums, weights))

    def place(self, sums: Values, ys: Values) -> None:
        """Emit the writing of the sums to the places of their outputs.

        The last panel may have fewer than 32, the first ones: it writes all others to the place of its first one,
        before this is written itself.
        """
        builder, lanes, groups = self.builder, self.lanes, len(self.starts)
        numbers = [
            builder.load(float_at(builder, self.packed.words, i64(PANEL_ROWS + lane)), typ=I32)
            for lane in range(PANEL_ROWS)
        ]
        for lane in reversed(range(PANEL_ROWS)):
            is_output = builder.icmp_signed(">=", numbers[lane], i32(0))
            number = builder.zext(builder.select(is_output, numbers[lane], numbers[0]), I64)
            for row, y in enumerate(ys):
                vector = sums[row * groups + lane // lanes.width]
                value = builder.extract_element(vector, i32(lane % lanes.width))
                builder.store(value, float_at(builder, y, number))

    def _vectors(self, line: ir.Value) -> list[ir.Value]:
        """Return the 32 floats at an address."""
        lanes = self.lanes
        return [
            lanes.load(float_at(self.builder, line, i64(start)), FLOAT_BYTES * lanes.width) for start in self.starts
        ]

    def _indices(self, line: ir.Value) -> list[ir.Value]:
        """Return the 32 integers at an address."""
        lanes = self.lanes
        places = [float_at(self.builder, line, i64(start)) for start in self.starts]
        return [load_ints(lanes, place, FLOAT_BYTES * lanes.width) for place in places]

    def _emit_chunks(self, count: ir.Value, sums: Values) -> list[ir.Value]:
        """Emit all steps of the sequence; returns the sums, and where the weights of the gathers are."""
        builder, lanes, rows = self.builder, self.lanes, len(self.xs)
        lines = float_at(builder, self.packed.words, i64(HEAD_WORDS))

        def chunk(index: ir.Value, carried: Values) -> Values:
            totals, tables, weights = list(carried[: len(sums)]), list(carried[len(sums) : -1]), carried[-1]
            words = self._indices(float_at(builder, lines, builder.mul(index, i64(PANEL_ROWS))))
            position = builder.mul(index, i64(CHUNK_STEPS))
            for step in range(CHUNK_STEPS):
                fields = [builder.lshr(word, lanes.ints(FIELD_BITS * step)) for word in words]
                factors = self._vectors(weights)
                following = self._tables(builder.add(position, i64(step + 1)))
                for row, (present, there) in enumerate(zip(tables, following, strict=True)):
                    pair = (present, there) if step % 2 == 0 else (there, present)
                    for group, (field, factor) in enumerate(zip(fields, factors, strict=True)):
                        number = row * len(fields) + group
                        totals[number] = lanes.fma(self._look_up(row, pair, field), factor, totals[number])
                tables, weights = following, float_at(builder, weights, i64(PANEL_ROWS))
            return [*totals, *tables, weights]

        initial = [*sums, *self._tables(i64(0)), self.packed.weights]
        results = reduce_loop(builder, count, initial, chunk)
        return [*results[: len(sums)], *results[len(sums) + rows :]]

    def _emit_gathers(self, counts: tuple[ir.Value, ir.Value], sums: Values, weights: ir.Value) -> list[ir.Value]:
        """Emit what the sequence left over."""
        builder, lanes, groups = self.builder, self.lanes, len(self.starts)
        lines = builder.mul(builder.add(counts[0], i64(HEAD_WORDS // PANEL_ROWS)), i64(PANEL_ROWS))
        first = float_at(builder, self.packed.words, lines)

        def step(index: ir.Value, carried: Values) -> Values:
            offset = builder.mul(index, i64(PANEL_ROWS))
            inputs = self._indices(float_at(builder, first, offset))
            factors = self._vectors(float_at(builder, weights, offset))
            values = (gather(lanes, x, vector) for x in self.xs for vector in inputs)
            return [
                lanes.fma(value, factors[number % groups], total)
                for number, (value, total) in enumerate(zip(values, carried, strict=True))
            ]

        return reduce_loop(builder, counts[1], sums, step)

    @property
    def _in_registers(self) -> bool:
        """Whether values are looked up in registers; else they are gathered where a look-up would find them."""
        return self.code.target.has_avx512

    def _tables(self, position: ir.Value) -> list[ir.Value]:
        """Return for each row the block at a position of the sequence: a register, or its first input."""
        builder = self.builder
        offset = builder.load(float_at(builder, self.packed.sequence, position), typ=I32)
        if not self._in_registers:
            return [splat_int(self.lanes, builder.lshr(offset, i32(2)))] * len(self.xs)
        distance = builder.zext(offset, I64)
        return [self.lanes.load(byte_at(builder, x, distance), FLOAT_BYTES * BLOCK) for x in self.xs]

    def _look_up(self, row: int, blocks: tuple[ir.Value, ir.Value], indices: ir.Value) -> ir.Value:
        """Return the value of each output, where its lowest bits say which one of the two blocks it is."""
        builder, lanes, (even, odd) = self.builder, self.lanes, blocks
        if self._in_registers:
            return lanes.permuted(even, odd, indices)
        in_odd = builder.icmp_signed("!=", builder.and_(indices, lanes.ints(BLOCK)), lanes.ints(0))
        inputs = builder.add(builder.select(in_odd, odd, even), builder.and_(indices, lanes.ints(BLOCK - 1)))
        return gather(lanes, self.xs[row], inputs)
