"""Sparse kernel family for weights of four bits: rows are rounded to bytes, group by group, and looked up in registers.

First each row of x becomes integers from -127 to 127, with a scale for each unit of inputs, as onnxruntime rounds them
for MatMulNBits of accuracy level 4. A NaN or an infinity makes a NaN of its unit's scale, and so of all outputs.

Registers of a step for a panel of 16 outputs and up to 4 rows, in 16-bit lanes, one an output:

    slots        2 bytes an output: input in four bits, size in three, sign in one
    table[row]   x[0] ... x[15] | the same                    vbroadcasti128
    chosen[row]  table[i0] table[i1] | ...                    vpshufb, then vpsignb
    sums[row]    + chosen0 size0 + chosen1 size1 | ...        vpmaddubsw, vpaddw

A block all of whose weights are stored has codes of 0 to 15 instead, 8 for 0: their products with pairs of inputs have
8 times the sum of the inputs too much, which is subtracted at once.

    lines        4 inputs of 16 outputs, 2 in the low halves of the bytes
    pairs[row]   x[0] x[1] | x[0] x[1] | ...                  vpshufb of the table
    sums[row]    + x[0] code0 + x[1] code1 | ...              vpmaddubsw, vpaddw

A block with two weights of each four inputs has the places of these as well. Bytes of a register are an output's two:

    codes        of four inputs, minus 8: their sizes and their signs
    chosen[row]  the two inputs, by four times the number of the four, and the place among them
    sums[row]    + chosen0 code0 + chosen1 code1 | ...        vpshufb, vpsignb, vpmaddubsw, vpaddw

Behind a unit its sums are multiplied by the scales of its outputs, integers of 16 bits, those of even outputs and those
of odd ones by themselves: vpmaddwd makes 32 bits of each. They are added up as floats, times the scale of the row's
unit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.formats.code_slots import (
    AT_ONCE,
    DENSE_BIT,
    DENSE_LINES,
    HEAD_WORDS,
    LOOKED_UP,
    MIDDLE,
    PAIR_INPUTS,
    PAIRED_LINES,
    PANEL_WIDTH,
    PASS_ROWS,
    SIGN_BIT,
    STEP_BYTES,
    UNIT,
    Header,
)
from ..cpu_target import CpuTarget
from ..llvm.builder import Code
from ..llvm.flow import allocated, branch, call, choose, either, fold, loop, select
from ..llvm.intrinsics import call_intrinsic
from ..llvm.values import BYTE, FLOAT_BYTES, I16, I32, Bytes, Floats, Index, Ints, Number, Shorts
from ..llvm.vectors import Lanes, broadcast
from .kernel_form import LinearForm, activated, activation_key
from .lookup_rows import apart_of

LANES: Final = 8
"""Floats of a vector: half of a panel."""

GREATEST: Final = 127.0
"""The integer of the largest value of a unit."""

AHEAD: Final = 2048
"""Bytes from the slots of a unit to those that are fetched meanwhile."""

AHEAD_LINES: Final = 4
"""Cache lines of a unit's slots, about."""

MAGIC: Final = 12582912.0
"""1.5 * 2^23: the lowest bits of a small number plus this are the nearest integer, even where two are."""

Vectors = list[ir.Value]

BYTES = ir.VectorType(BYTE, STEP_BYTES)
WORDS = ir.VectorType(I16, PANEL_WIDTH)


class _Arrays(NamedTuple):
    """The parts of the packed array: see `PackedSlots`."""

    header: Ints
    heads: Ints
    units: Ints
    scales: Bytes
    slots: Bytes

    @classmethod
    def of(cls, packed: Bytes) -> "_Arrays":
        """Return the parts, which the header tells apart."""
        header = packed.cast(Ints)
        units, scales, slots = (
            packed.after(header[Header._fields.index(first)] * STEP_BYTES)
            for first in ("first_units", "first_scales", "first_slots")
        )
        return cls(header, packed.after(STEP_BYTES).cast(Ints), units.cast(Ints), scales, slots)


class _Rounded(NamedTuple):
    """Rows as bytes, and the scales of their units; both with the elements from one row to the next."""

    codes: Bytes
    codes_apart: Number
    scales: Floats
    scales_apart: Number
    surplus: Shorts
    """The excess of products with 8, with its sign, for each 16 inputs; `scales_apart` twice from row to row."""

    def at(self, row: Index) -> "_Rounded":
        """Return the same from a row on."""
        codes, scales = self.codes.at(row * self.codes_apart), self.scales.at(row * self.scales_apart)
        surplus = self.surplus.at(row * self.scales_apart * 2)
        return _Rounded(codes, self.codes_apart, scales, self.scales_apart, surplus)


class _Results(NamedTuple):
    """Rows of y: the address of the first one, and the values from each to the next."""

    address: Floats
    apart: Number


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return `void (x, y, packed, inputs, outputs)` for rows apart as `apart_of` says."""
    whole = emit_apart(code, form)

    @code.kernel(f"code_slots_{form.key}")
    def kernel(x: Floats, y: Floats, packed: Bytes, inputs: Number, outputs: Number) -> None:
        call(whole, x, y, packed, inputs, outputs, form.width, apart_of(inputs), apart_of(outputs))

    return kernel


def emit_apart(code: Code, form: LinearForm) -> ir.Function:
    """Return the same with three more arguments: the rows, and how many values rows of x and y are apart."""
    rounding = rounding_function(code)
    # where bytes are looked up one by one, more rows are not worth their code
    at_once = AT_ONCE if _has_lookup(code.target) else 1
    panels = {rows: _panel_function(code, form, rows) for rows in range(1, at_once + 1)}

    @code.kernel(f"code_slots_apart_{activation_key(form.activation)}")
    def kernel(
        x: Floats,
        y: Floats,
        packed: Bytes,
        inputs: Number,
        outputs: Number,
        rows: Number,
        x_apart: Number,
        y_apart: Number,
    ) -> None:
        arrays = _Arrays.of(packed)
        units, unit = arrays.header[0], arrays.header[1]
        # an odd number of lines, so that rows share no sets of the cache, and room to read a register too far
        codes_apart = apart_of((units * unit + LOOKED_UP).divided_up(FLOAT_BYTES)) * FLOAT_BYTES
        scales_apart = apart_of(units)
        rounded = _Rounded(
            allocated(x, Bytes, PASS_ROWS, times=codes_apart),
            codes_apart,
            allocated(x, Floats, PASS_ROWS, times=scales_apart),
            scales_apart,
            allocated(x, Shorts, 2 * PASS_ROWS, times=scales_apart),
        )
        with loop(rows, PASS_ROWS) as first:
            count = (rows - first).smaller(PASS_ROWS)
            with loop(count) as row:
                own = rounded.at(row)
                call(rounding, x.at((first + row) * x_apart), own.codes, own.scales, own.surplus, inputs, units, unit)
            target = _Results(y.at(first * y_apart), y_apart)
            blocks = count.divided_up(at_once)
            with loop(outputs.divided_up(PANEL_WIDTH)) as index:
                panel = _panel_at(arrays, index)
                with loop(blocks) as block:
                    # the rows of a pass in blocks of about equal size
                    begin, stop = ((count * number) // blocks for number in (block, block + 1))
                    part = rounded.at(begin), target._replace(address=target.address.at(begin * target.apart))
                    cases = (
                        (f"rows{number}", [number], partial(call, function, *part, panel, units, unit))
                        for number, function in panels.items()
                    )
                    choose(stop - begin, cases)

    return kernel


class _PanelArrays(NamedTuple):
    """The packed arrays of a panel."""

    head: Ints
    units: Ints
    scales: Bytes
    slots: Bytes


def _panel_at(arrays: _Arrays, index: Number) -> _PanelArrays:
    units, head = arrays.header[0], arrays.heads.at(index * HEAD_WORDS)
    return _PanelArrays(
        head,
        arrays.units.at(index * units),
        arrays.scales.after(index * units * (2 * PANEL_WIDTH)),
        arrays.slots.after(head[3 * PANEL_WIDTH] * STEP_BYTES),
    )


def rounding_function(code: Code) -> ir.Function:
    """Return the function `void (x, codes, scales, surplus, inputs, units, inputs of a unit)` for one row."""

    @code.kernel("code_slots_rounding")
    def kernel(
        x: Floats, codes: Bytes, scales: Floats, surplus: Shorts, inputs: Number, units: Number, unit: Number
    ) -> None:
        lanes = code.lanes(x, LANES)

        def rounded(size: int) -> None:
            with loop(units) as index:
                first = index * size
                left = inputs - first
                target = _RoundedUnit(codes.at(first), scales.at(index), surplus.at(index * (size // LOOKED_UP)))
                branch(
                    left >= size,
                    lambda: _round_unit(lanes, [lanes.load(x.at(first + at)) for at in range(0, size, LANES)], target),
                    lambda: _round_unit(lanes, _first(lanes, x.at(first), left, size), target),
                    likely=True,
                )

        branch(unit == UNIT, lambda: rounded(UNIT), lambda: rounded(LOOKED_UP))

    return kernel


class _RoundedUnit(NamedTuple):
    """The places of the integers, the scale and the surplus of a unit."""

    codes: Bytes
    scale: Floats
    surplus: Shorts


def _first(lanes: Lanes, x: Floats, count: Number, size: int) -> Vectors:
    """Return vectors of some values, zeros behind them."""
    return [lanes.load_chosen(x.at(start), lanes.below(count, start)) for start in range(0, size, LANES)]


def _round_unit(lanes: Lanes, values: Vectors, target: _RoundedUnit) -> None:
    """Write the integers, the scale and the surplus of a unit."""
    builder = lanes.builder
    largest, nothing = lanes.abs(values[0]), lanes.mul(values[0], 0.0)
    for value in values[1:]:
        largest, nothing = lanes.max(largest, lanes.abs(value)), lanes.add(nothing, lanes.mul(value, 0.0))
    most, undefined = lanes.horizontal_max(largest), lanes.horizontal_sum(nothing)
    # 0, or NaN where a value is NaN or infinite
    target.scale[0] = builder.fadd(builder.fdiv(most, ir.Constant(most.type, GREATEST)), undefined)
    times = lanes.div(GREATEST, most)
    times = lanes.select(lanes.compare(">", most, 0.0), times, 0.0)
    integers: Vectors = []
    for index, value in enumerate(values):
        bits = lanes.bits(lanes.add(lanes.mul(value, times), MAGIC))
        target.codes.at(index * LANES).store(builder.trunc(bits, ir.VectorType(BYTE, LANES)), LANES)
        integers.append(builder.sub(bits, lanes.bits(lanes.splat(MAGIC))))
    for index in range(len(values) // 2):
        both = builder.add(integers[2 * index], integers[2 * index + 1])
        total = call_intrinsic(builder, f"llvm.vector.reduce.add.v{LANES}i32", I32, [both])
        target.surplus[index] = (Number(builder, total) * -MIDDLE).narrow(I16)


def _panel_function(code: Code, form: LinearForm, rows: int) -> ir.Function:
    """Return the function `void (rows rounded, results, panel, units, inputs of a unit)` for so many rows."""

    @code.kernel(f"code_slots_panel_{rows}_{activation_key(form.activation)}")
    def kernel(x: _Rounded, y: _Results, panel: _PanelArrays, units: Number, unit: Number) -> None:
        _Panel(code.lanes(panel.head, LANES), rows, x, panel).emit(form, y, units, unit)

    return kernel


class _Inputs(NamedTuple):
    """The addresses of 16 inputs, and of their surplus, in a row."""

    codes: Bytes
    surplus: Shorts


class _Sums(NamedTuple):
    """State between units: the address of the next slots; the sums of each row, even outputs and odd ones."""

    slots: Bytes
    sums: Vectors


@dataclass(frozen=True)
class _Panel:
    """The code of one panel for some rows."""

    lanes: Lanes
    rows: int
    x: _Rounded
    panel: _PanelArrays

    @property
    def _has_lookup(self) -> bool:
        return _has_lookup(self.lanes.target)

    def emit(self, form: LinearForm, y: _Results, units: Number, unit: Number) -> None:
        """Emit all units, and the writing of results."""
        lanes = self.lanes

        def step(index: Number, now: _Sums) -> _Sums:
            now.slots.after(AHEAD).fetch(AHEAD_LINES)
            word = self.panel.units[index]
            number = word >> 16
            place = number * unit
            codes, surplus = self.x.codes.at(place), self.x.surplus.at(place // LOOKED_UP)
            parts: Vectors = [_constant(WORDS, 0)] * self.rows
            slots, parts = self._block(word & 255, _Inputs(codes, surplus), now.slots, parts)
            following = _Inputs(codes.at(LOOKED_UP), surplus.at(1))
            slots, parts = self._block((word >> 8) & 255, following, slots, parts)
            return _Sums(slots, self._scaled(index, number, parts, now.sums))

        zeros: Vectors = [lanes.splat(0.0)] * (2 * self.rows)
        sums = fold(units, _Sums(self.panel.slots, zeros), step).sums
        self._place(form, sums, y)

    def _block(self, lines: Number, inputs: "_Inputs", slots: Bytes, parts: Vectors) -> tuple[Bytes, Vectors]:
        """Emit the products of 16 inputs, whose lines are steps or all weights; `inputs` are those of the first row."""
        tables = [inputs.codes.at(row * self.x.codes_apart) for row in range(self.rows)]
        registers = [self._repeated(table) for table in tables]
        return either(
            lines >= DENSE_BIT,
            lambda: either(
                lines == DENSE_BIT | DENSE_LINES,
                lambda: self._dense(registers, inputs.surplus, slots, parts),
                lambda: self._paired(tables, registers, slots, parts),
            ),
            lambda: self._steps(lines, tables, registers, slots, parts),
        )

    def _dense(self, registers: Vectors, surplus: Shorts, slots: Bytes, parts: Vectors) -> tuple[Bytes, Vectors]:
        """Emit the products of all weights of 16 inputs."""
        builder, sums = self.lanes.builder, list[ir.Value]()
        for row, part in enumerate(parts):
            own = surplus.narrow(row * self.x.scales_apart * 2)
            sums.append(builder.add(part, broadcast(builder, own.value, PANEL_WIDTH)))
        for line in range(DENSE_LINES):
            loaded = slots.after(line * STEP_BYTES).load(BYTES, STEP_BYTES)
            for half, codes in enumerate((loaded, self._shifted(loaded))):
                sizes = builder.and_(codes, _constant(BYTES, 15))
                first = 4 * line + 2 * half
                mask = ir.Constant(ir.VectorType(I32, STEP_BYTES), [first, first + 1] * PANEL_WIDTH)
                for row, table in enumerate(registers):
                    pairs = builder.shuffle_vector(table, table, mask)
                    sums[row] = builder.add(sums[row], self._pair_products(sizes, pairs))
        return slots.after(DENSE_LINES * STEP_BYTES), sums

    def _paired(
        self, tables: Sequence[Bytes], registers: Vectors, slots: Bytes, parts: Vectors
    ) -> tuple[Bytes, Vectors]:
        """Emit the products of two weights of each four of 16 inputs."""
        behind = slots.after(PAIRED_LINES * STEP_BYTES)
        if not self._has_lookup:
            return behind, self._pairs_one_by_one(parts, tables, slots)
        builder, sums = self.lanes.builder, list(parts)
        first, second, places = (slots.after(line * STEP_BYTES).load(BYTES, STEP_BYTES) for line in range(3))
        for quad, codes in enumerate((first, self._shifted(first), second, self._shifted(second))):
            steps = builder.sub(builder.and_(codes, _constant(BYTES, 15)), _constant(BYTES, MIDDLE))
            # LLVM makes four instructions of an absolute difference, and one of a number with its own sign
            sizes = call_intrinsic(builder, "llvm.x86.avx2.psign.b", BYTES, [steps, steps])
            among = builder.and_(self._shifted(places, 2 * quad), _constant(BYTES, PAIR_INPUTS - 1))
            chosen = builder.or_(among, _constant(BYTES, PAIR_INPUTS * quad))
            for row, table in enumerate(registers):
                products = self._pair_products(sizes, self._signed(table, chosen, steps))
                sums[row] = builder.add(sums[row], products)
        return behind, sums

    def _signed(self, table: ir.Value, places: ir.Value, signs: ir.Value) -> ir.Value:
        """Return inputs that are looked up, each with a sign."""
        builder = self.lanes.builder
        chosen = call_intrinsic(builder, "llvm.x86.avx2.pshuf.b", BYTES, [table, places])
        return call_intrinsic(builder, "llvm.x86.avx2.psign.b", BYTES, [chosen, signs])

    def _pairs_one_by_one(self, parts: Vectors, tables: Sequence[Bytes], slots: Bytes) -> Vectors:
        """Return sums and the products of two weights of each four inputs where nothing looks up bytes."""
        builder = self.lanes.builder

        def add(quad: Number, sums: Vectors) -> Vectors:
            following = list[ir.Value]()
            for total, table in zip(sums, tables, strict=True):
                for slot in range(STEP_BYTES):
                    code = (slots[(quad >> 1) * STEP_BYTES + slot] >> ((quad & 1) << 2)) & 15
                    place = ((slots[slot + 2 * STEP_BYTES] >> (quad << 1)) & (PAIR_INPUTS - 1)) + quad * PAIR_INPUTS
                    product = table.narrow(place).signed(I16) * (code - MIDDLE).narrow(I16)
                    lane = ir.Constant(I32, slot // 2)
                    added = Number(builder, builder.extract_element(total, lane)) + product
                    total = builder.insert_element(total, added.value, lane)
                following.append(total)
            return following

        return fold(slots.constant(LOOKED_UP // PAIR_INPUTS), list(parts), add)

    def _shifted(self, loaded: ir.Value, bits: int = 4) -> ir.Value:
        """Return bytes whose lowest bits are others of them; the highest bits are of the next byte."""
        # shifted as words, as no instruction shifts bytes
        builder = self.lanes.builder
        return builder.bitcast(builder.lshr(builder.bitcast(loaded, WORDS), _constant(WORDS, bits)), BYTES)

    def _pair_products(self, sizes: ir.Value, values: ir.Value) -> ir.Value:
        """Return the sums of two products of unsigned bytes and signed ones each, 16 bits wide."""
        builder = self.lanes.builder
        if self._has_lookup:
            return call_intrinsic(builder, "llvm.x86.avx2.pmadd.ub.sw", WORDS, [sizes, values])
        wide = ir.VectorType(I16, STEP_BYTES)
        products = builder.mul(builder.zext(sizes, wide), builder.sext(values, wide))
        masks = (ir.Constant(ir.VectorType(I32, PANEL_WIDTH), list(range(at, STEP_BYTES, 2))) for at in (0, 1))
        first, second = (builder.shuffle_vector(products, products, mask) for mask in masks)
        return builder.add(first, second)

    def _steps(
        self, count: Number, tables: Sequence[Bytes], registers: Vectors, slots: Bytes, parts: Vectors
    ) -> tuple[Bytes, Vectors]:
        """Emit some steps over 16 inputs, which stand in a register, or at an address, for each row."""

        def step(_: Number, now: tuple[Bytes, Vectors]) -> tuple[Bytes, Vectors]:
            at, sums = now
            loaded = at.load(BYTES, STEP_BYTES)
            builder = self.lanes.builder
            sizes = builder.and_(self._shifted(loaded), _constant(BYTES, 7))
            if not self._has_lookup:
                added = [self._one_by_one(total, table, at, sizes) for total, table in zip(sums, tables, strict=True)]
                return at.after(STEP_BYTES), added
            places = builder.and_(loaded, _constant(BYTES, SIGN_BIT - 1))
            added: Vectors = []
            for total, table in zip(sums, registers, strict=True):
                added.append(builder.add(total, self._pair_products(sizes, self._signed(table, places, loaded))))
            return at.after(STEP_BYTES), added

        return fold(count, (slots, parts), step)

    def _repeated(self, table: Bytes) -> ir.Value:
        """Return 16 inputs in both halves of a register."""
        loaded = table.load(ir.VectorType(BYTE, LOOKED_UP), LOOKED_UP)
        mask = ir.Constant(ir.VectorType(I32, STEP_BYTES), [*range(LOOKED_UP), *range(LOOKED_UP)])
        return self.lanes.builder.shuffle_vector(loaded, loaded, mask)

    def _one_by_one(self, sums: ir.Value, table: Bytes, at: Bytes, sizes: ir.Value) -> ir.Value:
        """Return sums and the products of a step where nothing looks up bytes."""
        builder = self.lanes.builder
        for slot in range(STEP_BYTES):
            byte, lane = at[slot], ir.Constant(I32, slot // 2)
            value = table.narrow(byte & (LOOKED_UP - 1)).signed(I16)
            size = Number(builder, builder.extract_element(sizes, ir.Constant(I32, slot))).wide(I16)
            product = value * size
            product = select(byte >= SIGN_BIT, -product, product)
            total = Number(builder, builder.extract_element(sums, lane)) + product
            sums = builder.insert_element(sums, total.value, lane)
        return sums

    def _scaled(self, index: Number, number: Number, parts: Vectors, sums: Vectors) -> Vectors:
        """Return sums and the parts of a unit, each times the scales of its output and of the row."""
        lanes, builder = self.lanes, self.lanes.builder
        scales = builder.bitcast(
            self.panel.scales.after(index * (2 * PANEL_WIDTH)).load(WORDS, 2 * PANEL_WIDTH), lanes.int_vector
        )
        even, odd = builder.and_(scales, lanes.ints(0xFFFF)), builder.and_(scales, lanes.ints(-0x10000))
        following: Vectors = []
        for row, part in enumerate(parts):
            factor = lanes.splat(self.x.scales.at(row * self.x.scales_apart)[number])
            for half, chosen in enumerate((even, odd)):
                whole = self._products(part, builder.bitcast(chosen, WORDS), half)
                following.append(lanes.fma(lanes.to_float(whole), factor, sums[2 * row + half]))
        return following

    def _products(self, part: ir.Value, scales: ir.Value, half: int) -> ir.Value:
        """Return the products of even lanes, or odd ones, as 32-bit integers; the other scales are 0."""
        lanes, builder = self.lanes, self.lanes.builder
        if self._has_lookup:
            return call_intrinsic(builder, "llvm.x86.avx2.pmadd.wd", lanes.int_vector, [part, scales])
        mask = ir.Constant(ir.VectorType(I32, LANES), [2 * lane + half for lane in range(LANES)])
        left, right = (builder.sext(builder.shuffle_vector(one, one, mask), lanes.int_vector) for one in (part, scales))
        return builder.mul(left, right)

    def _place(self, form: LinearForm, sums: Vectors, y: _Results) -> None:
        """Emit the writing of results to the places of their outputs.

        The last panel may have fewer than 16, the first ones: it writes all others to the place of its first one,
        before this is written itself.
        """
        lanes, head = self.lanes, self.panel.head
        factors = [lanes.load(head.at(PANEL_WIDTH + start).cast(Floats), lanes.size) for start in (0, LANES)]
        biases = [lanes.load(head.at(2 * PANEL_WIDTH + start).cast(Floats), lanes.size) for start in (0, LANES)]
        numbers = [head.narrow(lane) for lane in range(PANEL_WIDTH)]
        for row in range(self.rows):
            halves = sums[2 * row : 2 * row + 2]
            values = [lanes.fma(*each) for each in zip(halves, factors, biases, strict=True)]
            results = activated(lanes, form.activation, values)
            target = y.address.at(row * y.apart)
            for lane in reversed(range(PANEL_WIDTH)):
                number = select(numbers[lane] >= 0, numbers[lane], numbers[0]).wide()
                place = ir.Constant(I32, lane % LANES)
                target[number] = lanes.builder.extract_element(results[lane // LANES], place)


def _has_lookup(target: CpuTarget) -> bool:
    return target.lookup_lanes >= LANES


def _constant(kind: ir.VectorType, number: int) -> ir.Constant:
    return ir.Constant(kind, [number] * kind.count)
