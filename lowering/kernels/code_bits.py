"""Sparse kernel family for weights of few bits on CPUs that place bytes by a mask and multiply them (AVX-512).

Rows are rounded to bytes, group by group, as for `code_slots`. Registers of a chunk of 4 inputs and 16 outputs, one
output a lane of 32 bits:

    stored       codes of 0 to 15 or 255, as many as there are       64 bytes, vpandd of the low or the high halves
    codes        code of 0 where nothing is stored                   vpexpandb, unless all are stored
    sums[row]    + x[0] codes0 + x[1] codes1 + x[2] codes2 + ...     vpdpbusd, the 4 inputs in all lanes

Products of all inputs with the code of 0 are too much: sums begin with as much below 0. Behind a unit its sums become
floats, and are added up times the scales of their outputs and that of the row's unit.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.formats.code_bits import (
    BLOCK_ROWS,
    CHUNK,
    CHUNK_INPUTS,
    FOUR,
    SCALE_BYTES,
    SIZE_WORDS,
)
from ...kernels.formats.code_slots import LOOKED_UP, PANEL_WIDTH, PASS_ROWS
from ..llvm.builder import Code
from ..llvm.flow import allocated, branch, call, choose, either, fold, loop
from ..llvm.intrinsics import call_intrinsic
from ..llvm.values import BYTE, FLOAT_BYTES, I1, I16, I32, Bytes, Floats, Index, Ints, Longs, Number, Shorts
from ..llvm.vectors import Lanes, broadcast
from .code_slots import Vectors, rounding_function
from .kernel_form import LinearForm, activated, activation_key
from .lookup_rows import apart_of

AHEAD: Final = 4096
"""Distance in bytes between the codes that are read and the codes that are fetched ahead."""

ACCUMULATORS: Final = 2
"""Sums of a row for each output where there are few rows: chunks of even numbers, and of odd ones."""

FEW_ROWS: Final = 3

BYTES = ir.VectorType(BYTE, CHUNK)
WORDS = ir.VectorType(I16, CHUNK // 2)
NUMBERS = ir.VectorType(I32, PANEL_WIDTH)
BITS = ir.VectorType(I1, CHUNK)

EXPAND: Final = f"llvm.x86.avx512.mask.expand.v{CHUNK}i8"
PRODUCTS: Final = "llvm.x86.avx512.vpdpbusd.512"


class _Arrays(NamedTuple):
    """The packed arrays: see `PackedBits`."""

    sizes: Longs
    heads: Floats
    units: Bytes
    codes: Bytes


class _Rows(NamedTuple):
    """Rows as bytes, and for each unit its scale and minus the sum of its bytes, with the elements between rows."""

    codes: Bytes
    codes_apart: Number
    scales: Floats
    excess: Ints
    units_apart: Number

    def at(self, row: Index) -> "_Rows":
        """Return the same from a row on."""
        units = row * self.units_apart
        return _Rows(
            self.codes.at(row * self.codes_apart),
            self.codes_apart,
            self.scales.at(units),
            self.excess.at(units),
            self.units_apart,
        )


class _Results(NamedTuple):
    """Rows of y: the address of the first one, and the values from each to the next."""

    address: Floats
    apart: Number


@dataclass(frozen=True)
class Stored:
    """The form in which weights are stored."""

    bits: int = FOUR
    zeros: bool = False
    """Whether zeros are stored like all other codes; of four bits only."""

    @property
    def key(self) -> str:
        """A name for functions."""
        return f"all_codes_of_{self.bits}" if self.zeros else f"codes_of_{self.bits}"


FOUR_BITS: Final = Stored()
EIGHT_BITS: Final = Stored(8)
ZEROS_TOO: Final = Stored(zeros=True)


def emit(code: Code, form: LinearForm, stored: Stored = FOUR_BITS) -> ir.Function:
    """Return `void (x, y, packed arrays..., inputs, outputs)` for rows apart as `apart_of` says."""
    whole = emit_apart(code, form, stored)

    @code.kernel(f"{stored.key}_{form.key}")
    def kernel(x: Floats, y: Floats, arrays: _Arrays, inputs: Number, outputs: Number) -> None:
        call(whole, x, y, arrays, inputs, outputs, form.width, apart_of(inputs), apart_of(outputs))

    return kernel


def emit_apart(code: Code, form: LinearForm, stored: Stored = FOUR_BITS) -> ir.Function:
    """Return the same with three more arguments: the rows, and how many values rows of x and y are apart."""
    rounding = rounding_function(code)
    panels = {rows: _panel_function(code, form, rows, stored) for rows in range(1, BLOCK_ROWS + 1)}

    @code.kernel(f"{stored.key}_apart_{activation_key(form.activation)}")
    def kernel(
        x: Floats,
        y: Floats,
        arrays: _Arrays,
        inputs: Number,
        outputs: Number,
        rows: Number,
        x_apart: Number,
        y_apart: Number,
    ) -> None:
        units, unit = arrays.sizes[0], arrays.sizes[1]
        # an odd number of lines, so that rows share no sets of the cache
        codes_apart = apart_of((units * unit).divided_up(FLOAT_BYTES)) * FLOAT_BYTES
        units_apart = apart_of(units)
        rounded = _Rows(
            allocated(x, Bytes, PASS_ROWS, times=codes_apart),
            codes_apart,
            allocated(x, Floats, PASS_ROWS, times=units_apart),
            allocated(x, Ints, PASS_ROWS, times=units_apart),
            units_apart,
        )
        surplus = allocated(x, Shorts, 2, times=units_apart)
        with loop(rows, PASS_ROWS) as first:
            count = (rows - first).smaller(PASS_ROWS)
            with loop(count) as row:
                own = rounded.at(row)
                call(rounding, x.at((first + row) * x_apart), own.codes, own.scales, surplus, inputs, units, unit)
                _write_excess(surplus, own.excess, units, unit)
            target = _Results(y.at(first * y_apart), y_apart)
            blocks = count.divided_up(BLOCK_ROWS)
            with loop(outputs.divided_up(PANEL_WIDTH)) as index:
                panel = _Panel.at(arrays, index)
                left = outputs - index * PANEL_WIDTH
                with loop(blocks) as block:
                    # the rows of a pass in blocks of about equal size
                    begin, stop = ((count * number) // blocks for number in (block, block + 1))
                    results = _Results(target.address.at(begin * y_apart + index * PANEL_WIDTH), y_apart)
                    part = rounded.at(begin), results, panel, units, unit, left
                    cases = (
                        (f"rows{number}", [number], partial(call, function, *part))
                        for number, function in panels.items()
                    )
                    choose(stop - begin, cases)

    return kernel


def _write_excess(surplus: Shorts, excess: Ints, units: Number, unit: Number) -> None:
    """Write minus the sum of the bytes of each unit, given that times the middle code for each 16 inputs."""
    halves = unit // LOOKED_UP
    with loop(units) as index:
        first = surplus.at(index * halves)
        # a unit of 16 inputs has its only number twice
        total = first.narrow(0).signed(I32) + first.narrow(halves - 1).signed(I32)
        excess[index] = Number(total.builder, total.builder.ashr(total.value, (5 - halves).narrow(I32).value))


class _Panel(NamedTuple):
    """The packed arrays of a panel, the bytes of a unit, and whether it has zeros."""

    head: Floats
    units: Bytes
    codes: Bytes
    unit_bytes: Number
    has_zeros: Number

    @classmethod
    def at(cls, arrays: _Arrays, index: Number) -> "_Panel":
        """Return those of a number."""
        sizes = arrays.sizes
        units, unit_bytes = sizes[0], sizes[2]
        return cls(
            arrays.heads.at(index * (2 * PANEL_WIDTH)),
            arrays.units.after(index * units * unit_bytes),
            arrays.codes.after(sizes[index + SIZE_WORDS]),
            unit_bytes,
            sizes[3],
        )


def _panel_function(code: Code, form: LinearForm, rows: int, stored: Stored) -> ir.Function:
    """Return the function `void (rows, results, panel, units, inputs of a unit, outputs left)` for so many rows."""

    @code.kernel(f"{stored.key}_panel_{rows}_{activation_key(form.activation)}")
    def kernel(x: _Rows, y: _Results, panel: _Panel, units: Number, unit: Number, left: Number) -> None:
        _PanelCode(code.lanes(panel.head, PANEL_WIDTH), rows, stored, x, panel).emit(form, y, units, unit, left)

    return kernel


class _State(NamedTuple):
    """State between units: the addresses of the next codes in low halves and in high ones; sums of rows."""

    low: Bytes
    high: Bytes
    sums: Vectors


class _Start(NamedTuple):
    """Beginning of a unit: its code of 0 in all bytes, and for each row minus all products with that."""

    zeros: ir.Value
    sums: Vectors


@dataclass(frozen=True)
class _PanelCode:
    """The code of one panel for some rows."""

    lanes: Lanes
    rows: int
    stored: Stored
    x: _Rows
    panel: _Panel

    @property
    def _accumulators(self) -> int:
        return ACCUMULATORS if self.rows <= FEW_ROWS else 1

    def emit(self, form: LinearForm, y: _Results, units: Number, unit: Number, left: Number) -> None:
        """Emit all units, and the writing of results."""
        lanes, panel = self.lanes, self.panel
        mask_bytes = unit * (0 if self.stored.zeros else CHUNK // 8 // CHUNK_INPUTS)

        def step(index: Number, now: _State) -> _State:
            at = panel.units.after(index * panel.unit_bytes)
            for address in (now.low, at):
                address.after(AHEAD).fetch(2)
            scales = at.after(mask_bytes)
            start = either(
                panel.has_zeros != 0, lambda: self._with_zeros(index, scales), lambda: self._with_middle(index)
            )
            inputs = self.x.codes.at(index * unit)

            def half(number: Number, state: _State) -> _State:
                if self.stored.zeros:
                    return self._whole_half(inputs.at(number * LOOKED_UP), state)
                words = at.after(number * (CHUNK // 8 * LOOKED_UP // CHUNK_INPUTS)).cast(Longs)
                return self._half(inputs.at(number * LOOKED_UP), words, start.zeros, state)

            zeros = [_constant(NUMBERS, 0)] * (self.rows * (self._accumulators - 1))
            low, high, totals = fold(unit // LOOKED_UP, _State(now.low, now.high, [*start.sums, *zeros]), half)
            return _State(low, high, self._scaled(index, scales, totals, now.sums))

        nothing: Vectors = [lanes.splat(0.0)] * self.rows
        sums = fold(units, _State(panel.codes, panel.codes, nothing), step).sums
        factor, bias = (lanes.load(panel.head.at(place), lanes.size) for place in (0, PANEL_WIDTH))
        results = activated(lanes, form.activation, [lanes.fma(one, factor, bias) for one in sums])
        addresses = [y.address.at(row * y.apart) for row in range(self.rows)]

        def put(store: str) -> None:
            for result, address in zip(results, addresses, strict=True):
                if store == "whole":
                    lanes.store(result, address)
                else:
                    lanes.store_chosen(result, address, lanes.below(left))

        branch(left >= PANEL_WIDTH, lambda: put("whole"), lambda: put("part"), likely=True)

    def _with_middle(self, unit: Number) -> _Start:
        sums, middle = list[ir.Value](), 1 << (self.stored.bits - 1)
        for row in range(self.rows):
            total = self.x.excess.narrow(unit + row * self.x.units_apart) * middle
            sums.append(broadcast(self.lanes.builder, total.value, PANEL_WIDTH))
        return _Start(_constant(BYTES, middle), sums)

    def _with_zeros(self, unit: Number, scales: Bytes) -> _Start:
        builder = self.lanes.builder
        loaded = scales.after(SCALE_BYTES).load(ir.VectorType(BYTE, PANEL_WIDTH), 1)
        zeros = builder.zext(loaded, NUMBERS)
        sums: Vectors = []
        for row in range(self.rows):
            total = self.x.excess.narrow(unit + row * self.x.units_apart)
            sums.append(builder.mul(zeros, broadcast(builder, total.value, PANEL_WIDTH)))
        return _Start(builder.bitcast(builder.mul(zeros, _constant(NUMBERS, 0x01010101)), BYTES), sums)

    def _half(self, inputs: Bytes, words: Longs, zeros: ir.Value, now: _State) -> _State:
        """Emit the products of 16 inputs; `inputs` are those of the first row."""
        builder, sums = self.lanes.builder, list(now.sums)
        # codes of eight bits are all in one row
        streams = [now.low, now.high] if self.stored.bits == FOUR else [now.low]
        for number in range(LOOKED_UP // CHUNK_INPUTS):
            word, stream = words[number], number % len(streams)
            stored = self._codes(streams[stream], stream)
            streams[stream] = streams[stream].after(word.set_bits())
            mask = builder.bitcast(word.value, BITS)
            codes = call_intrinsic(builder, EXPAND, BYTES, [stored, zeros, mask])
            self._add_products(codes, inputs, number, sums)
        return _State(streams[0], streams[-1], sums)

    def _whole_half(self, inputs: Bytes, now: _State) -> _State:
        """Emit the same where zeros are stored: the halves of a line are two chunks."""
        address, sums = now.low, list(now.sums)
        for number in range(LOOKED_UP // CHUNK_INPUTS):
            half = number % 2
            if not half:
                address.after(AHEAD).fetch(2)
            self._add_products(self._codes(address, half), inputs, number, sums)
            if half:
                address = address.after(CHUNK)
        return _State(address, address, sums)

    def _add_products(self, codes: ir.Value, inputs: Bytes, number: int, sums: Vectors) -> None:
        """Add the products of a chunk to the sums of all rows."""
        builder = self.lanes.builder
        codes = builder.bitcast(codes, NUMBERS)
        first = self.rows * (number % self._accumulators)
        for row in range(self.rows):
            place = inputs.at(row * self.x.codes_apart + CHUNK_INPUTS * number)
            four = broadcast(builder, place.load(I32, 1), PANEL_WIDTH)
            total = sums[first + row]
            sums[first + row] = call_intrinsic(builder, PRODUCTS, NUMBERS, [total, codes, four])

    def _codes(self, address: Bytes, half: int) -> ir.Value:
        """Return the next codes in bytes: these, or their low or high halves."""
        builder, loaded = self.lanes.builder, address.load(BYTES, 1)
        if self.stored.bits != FOUR:
            return loaded
        if half:
            # shifted as words, as no instruction shifts bytes
            loaded = builder.bitcast(builder.lshr(builder.bitcast(loaded, WORDS), _constant(WORDS, FOUR)), BYTES)
        return builder.and_(loaded, _constant(BYTES, 15))

    def _scaled(self, unit: Number, scales: Bytes, totals: Vectors, sums: Vectors) -> Vectors:
        """Return sums and the totals of a unit, each times the scales of its output and of the row."""
        lanes, builder = self.lanes, self.lanes.builder
        loaded = scales.load(ir.VectorType(I16, PANEL_WIDTH), 1)
        own = lanes.to_float(builder.sext(loaded, NUMBERS))
        following: Vectors = []
        for row, before in enumerate(sums):
            total = totals[row]
            for more in totals[row + self.rows :: self.rows]:
                total = builder.add(total, more)
            factor = lanes.splat(self.x.scales[unit + row * self.x.units_apart])
            following.append(lanes.fma(lanes.to_float(total), lanes.mul(own, factor), before))
        return following


def _constant(kind: ir.VectorType, number: int) -> ir.Constant:
    return ir.Constant(kind, [number] * kind.count)
