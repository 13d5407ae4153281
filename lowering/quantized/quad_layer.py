"""The kernel of a quantized layer for 64 rows at once: lines of words, four bytes of neighbouring inputs of a column.

    x[quad]     bytes 0 to 3 of column 0 | column 1 | ...                       4 vectors of 16 columns
    sums[r][v]  + x[quad][v] . weights of the quad, one word in every lane      vpdpbusd with a memory operand

Where inputs are scattered, a quad is made of four lines of bytes, an input each, when it is met. Columns lie in a line
as unpacking takes them to words in their order, and as packing leaves them:

    line         bytes 0 to 3: columns 0 to 3 | 16 to 19 | 32 to 35 | 48 to 51 | 4 to 7 | ...
    a, b, c, d   -> abab..., cdcd...          vpunpcklbw, vpunpckhbw
                 -> abcd abcd ...             vpunpcklwd, vpunpckhwd: the 4 vectors of x[quad]

Two outputs take turns, so that eight sums are on their way; two or four that share their inputs unpack them once. Sums
of 32 bits wait in memory between blocks of inputs; behind the last block they become lines while they are in registers.

The ends of outputs, four vectors of sums, become a line of codes, or floats:

    sums     columns 0 to 15 | 16 to 31 | 32 to 47 | 48 to 63          4 vectors, as unpacking has left them
             times the multiplier, bounded above, to the nearest       vcvtdq2ps, vmulps, vminps, vcvtps2dq
             packed to words, the code of 0 added                      vpackssdw, vpaddw
    line     packed to bytes, bounded below                            vpackuswb, vpmaxub

Packing saturates, and undoes what unpacking does to the order of columns. Words of quads of neighbours are lines that
were unpacked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.byte_lookup import QUARTER, LookupForm
from ...kernels.byte_quads import COLUMNS, QUAD, QuadForm
from ..kernels.kernel_form import activated
from ..llvm.builder import Code
from ..llvm.flow import fold, loop, select
from ..llvm.interleaving import interleaved
from ..llvm.intrinsics import call_intrinsic
from ..llvm.values import BYTE, FLOAT_BYTES, I16, I32, Bytes, Floats, Index, Ints, Longs, Number, Shorts
from ..llvm.vectors import Lanes, broadcast, int_constants
from .byte_lanes import ByteLanes
from .lookup_layer import LayerEnd
from .rounding import Rounding, other_kind

LINE_BYTES: Final = FLOAT_BYTES * COLUMNS
"""Bytes of the words of a quad, and of the sums of an output."""

OFFSET_TYPE_BYTES: Final = 2

HALVES: Final = (False, True)
"""The low half, and the high one."""

LINE: Final = ir.VectorType(BYTE, COLUMNS)
WORDS: Final = ir.VectorType(I16, COLUMNS // 2)

NEAREST: Final = ("llvm.x86.avx512.mask.cvtps2dq.512", 4)
"""Floats to integers, the even one of two; what is too large becomes the least one. Its last argument says so."""

PACK_WORDS: Final = "llvm.x86.avx512.packssdw.512"
PACK_BYTES: Final = "llvm.x86.avx512.packuswb.512"


class OutputArrays(NamedTuple):
    """The addresses of the biases and multipliers [outputs] of a layer."""

    bias: Floats
    multiplier: Floats
    tail: Bytes
    """The bounds of codes, or what is added to values."""


@dataclass(frozen=True)
class QuadEnd:
    """The end of an output: its sums less the bias in, a line of codes out, or floats in the place of sums."""

    lanes: Lanes
    end: LayerEnd
    arrays: OutputArrays
    rounding: Rounding | None
    lines: Bytes
    sums: Bytes

    @staticmethod
    def of(lanes: Lanes, end: LayerEnd, arrays: OutputArrays, lines: Bytes, sums: Bytes) -> "QuadEnd":
        """Return the end by the addresses of a layer's arrays, and those of lines and sums."""
        rounding = None if end.kind == "values" else Rounding.read(lanes, arrays.tail)
        return QuadEnd(lanes, end, arrays, rounding, lines, sums)

    def emit(self, sums: Sequence[ir.Value], output: Number) -> None:
        """Write what becomes of the sums of an output; one behind the last leaves its own behind theirs."""
        exists, own = output < self.end.outputs, self.sums.after(output * LINE_BYTES)
        line = select(exists, self.lines.after(output * COLUMNS), own)
        self.put(sums, select(exists, output, 0), line, own)

    def put(self, sums: Sequence[ir.Value], output: Number, line: Bytes, floats: Bytes) -> None:
        """Write what becomes of the sums of an output to a line, or to where its floats are."""
        values = self._values(sums, output)
        if self.end.kind in ("codes", "bytes"):
            line.store(self._line(values), COLUMNS)
            return
        if self.rounding is not None:
            values = [self.rounding.value(self.rounding.rounded(self._multiples(value))) for value in values]
        self.lanes.put(floats.cast(Floats), values)

    def _values(self, sums: Sequence[ir.Value], output: Number) -> list[ir.Value]:
        lanes = self.lanes
        bias, multiplier = (lanes.splat(numbers[output]) for numbers in self.arrays[:2])
        totals = [lanes.builder.add(one, lanes.bits(bias)) for one in sums]
        values = [lanes.mul(lanes.to_float(total), multiplier) for total in totals]
        if self.end.adds:
            addend = lanes.splat(self.arrays.tail.cast(Floats)[output])
            values = [lanes.add(value, addend) for value in values]
        return activated(lanes, self.end.activation, values, of_codes=self.end.kind != "values")

    def _multiples(self, values: ir.Value) -> ir.Value:
        assert self.rounding is not None
        multiples = self.end.quick_multiples(self.lanes, self.rounding, values)
        return self.rounding.divided(values) if multiples is None else multiples

    def _line(self, values: Sequence[ir.Value]) -> ir.Value:
        """Return the codes of four vectors of values; a NaN is the least one."""
        if not self.lanes.target.packs_lines:
            return self._line_by_words(values)
        builder, lanes, rounding = self.lanes.builder, self.lanes, self.rounding
        assert rounding is not None
        name, rule = NEAREST
        mask = ir.Constant(ir.IntType(lanes.width), -1)
        numbers: list[ir.Value] = []
        for value in values:
            bounded = lanes.min(self._multiples(value), rounding.high)
            arguments = [bounded, lanes.ints(0), mask, ir.Constant(I32, rule)]
            numbers.append(call_intrinsic(builder, name, lanes.int_vector, arguments))
        zero, least = self._every(rounding.zero, WORDS), self._every(rounding.least, LINE)
        words = [
            builder.add(call_intrinsic(builder, PACK_WORDS, WORDS, numbers[part : part + 2]), zero) for part in (0, 2)
        ]
        line = call_intrinsic(builder, PACK_BYTES, LINE, words)
        line = builder.select(builder.icmp_unsigned(">", least, line), least, line)
        return other_kind(builder, line) if self.end.signed else line

    def _line_by_words(self, values: Sequence[ir.Value]) -> ir.Value:
        """Return the same where no instruction packs 64 bytes."""
        builder, rounding = self.lanes.builder, self.rounding
        assert rounding is not None
        a, b, c, d = (rounding.code(rounding.rounded(self._multiples(value))) for value in values)
        half = int_constants(range(COLUMNS // 2))
        low, high = builder.shuffle_vector(a, b, half), builder.shuffle_vector(c, d, half)
        chosen = [
            COLUMNS // QUAD * vector + QUAD * quarter + column
            for quarter in range(QUAD)
            for vector in range(QUAD)
            for column in range(QUAD)
        ]
        line = builder.shuffle_vector(low, high, int_constants(chosen))
        return other_kind(builder, line) if self.end.signed else line

    def _every(self, number: Number, kind: ir.VectorType) -> ir.Value:
        """Return a number in every lane of another vector."""
        assert isinstance(kind.element, ir.IntType)
        return broadcast(self.lanes.builder, number.narrow(kind.element).value, kind.count)


def unpacked(builder: ir.IRBuilder, lines: Sequence[ir.Value]) -> list[ir.Value]:
    """Return four vectors of words of four lines, 16 columns each."""
    a, b, c, d = lines
    words = [(interleaved(builder, a, b, 1, high), interleaved(builder, c, d, 1, high)) for high in HALVES]
    return [interleaved(builder, *pair, 2, high) for pair in words for high in HALVES]


def lines_to_words(code: Code) -> ir.Function:
    """Return `void (x, quads)`: lines of inputs become the words of quads of neighbours, in the same place."""
    return _in_place(code, "lines_to_words", unpacked)


def words_to_lines(code: Code) -> ir.Function:
    """Return `void (x, quads)`: words of quads of neighbours become lines of their inputs, in the same place."""
    # in each quarter the bytes of four columns, input by input; then quarters of one input from all parts
    order = [
        quarter + QUAD * (byte % QUAD) + byte // QUAD
        for quarter in range(0, COLUMNS, QUARTER)
        for byte in range(QUARTER)
    ]

    def change(builder: ir.IRBuilder, words: Sequence[ir.Value]) -> list[ir.Value]:
        a, b, c, d = (builder.shuffle_vector(part, part, int_constants(order)) for part in words)
        halves = [(interleaved(builder, a, b, 4, high), interleaved(builder, c, d, 4, high)) for high in HALVES]
        return [interleaved(builder, *pair, 8, high) for pair in halves for high in HALVES]

    return _in_place(code, "words_to_lines", change)


Change = Callable[[ir.IRBuilder, Sequence[ir.Value]], list[ir.Value]]


def _in_place(code: Code, name: str, change: Change) -> ir.Function:
    """Return `void (x, quads)`, which changes the four vectors of each quad."""

    @code.kernel(name)
    def kernel(x: Bytes, quads: Number) -> None:
        with loop(quads) as quad:
            line = x.after(quad * LINE_BYTES)
            places = [line.after(COLUMNS * part) for part in range(QUAD)]
            parts = [place.load(LINE, COLUMNS) for place in places]
            for made, place in zip(change(x.builder, parts), places, strict=True):
                place.store(made, COLUMNS)

    return kernel


class Blocks(NamedTuple):
    """Number of blocks of inputs, and quads of each."""

    number: int
    quads: int


class PackedQuads(NamedTuple):
    """The addresses of the arrays of a layer."""

    borders: Longs
    records: Ints
    offsets: Bytes
    weights: Bytes
    outputs: OutputArrays


def quad_layer(code: Code, form: LookupForm, end: LayerEnd, blocks: Blocks, quads: QuadForm) -> ir.Function:
    """Return `void (x, sums, y, packed arrays...)`.

    In x are words, or lines if inputs are scattered; in y lines of codes, or in the place of sums floats [outputs, 64].
    """

    kind = f"scattered_{quads.share}" if quads.scattered else "quads"

    @code.kernel(f"{kind}_{form.lanes}_{blocks.number}_{blocks.quads}_{end.outputs}_{end.key}")
    def layer(x: Bytes, sums: Bytes, y: Bytes, packed: PackedQuads) -> None:
        bytes_ = ByteLanes.at(x, form, code.target)
        last = QuadEnd.of(code.lanes(x, form.lanes), end, packed.outputs, y, sums)
        borders = packed.borders.at(1)

        def block(index: Index, start: Number, kind: _Block) -> Number:
            """Emit a block from a step on; return the step of the next one."""
            here = borders.at(index)
            first, behind = here[0], here[1]
            return kind.emit(x.after(index * (blocks.quads * LINE_BYTES)), first, behind, start)

        zero, only = x.constant(0), blocks.number == 1
        start = block(0, zero, _Block(bytes_, packed, sums, quads, True, last if only else None))
        if only:
            return
        inner = _Block(bytes_, packed, sums, quads, False, None)
        final = x.constant(blocks.number - 1)
        start = fold(final, start, lambda at, done: block(at, done, inner), start=1)
        block(final, start, replace(inner, end=last))

    return layer


Vectors = list[ir.Value]


@dataclass(frozen=True)
class _Block:
    """The records of a block of inputs."""

    bytes: ByteLanes
    packed: PackedQuads
    sums: Bytes
    quads: QuadForm
    first: bool
    end: QuadEnd | None
    """The end of sums behind the last block; they wait in memory for the next one."""

    @property
    def _vectors(self) -> int:
        return COLUMNS // self.bytes.form.lanes

    def emit(self, x: Bytes, begin: Number, end: Number, start: Number) -> Number:
        """Emit the records from `begin` on, whose quads begin at `start`; return where those of the next one do."""

        def record(number: Number, done: Number) -> Number:
            # a record: its outputs, and the number of quads
            words = self.quads.outputs + 1
            here = self.packed.records.at(number * words)
            *outputs, count = (here[place] for place in range(words))
            lines = [self.sums.after(output * LINE_BYTES).cast(Ints) for output in outputs]
            before = [value for line in lines for value in self._initial(line)]
            stop = done + count
            totals = [total for turns in self._turns for total in self._sums_of(turns, x, before, (done, stop))]
            for index, output in enumerate(outputs):
                part = totals[index * self._vectors : (index + 1) * self._vectors]
                if self.end is not None:
                    self.end.emit(part, output)
                else:
                    self.bytes.put(lines[index], part)
            return stop

        return fold(end, start, record, start=begin)

    @property
    def _turns(self) -> list[range]:
        """The turns whose sums are accumulated at once: all, where there are more registers than they take."""
        target, turns = self.bytes.target, self.quads.turns
        fit = self.quads.outputs * COLUMNS // target.lanes < target.registers
        return [range(turns)] if fit else [range(turn, turn + 1) for turn in range(turns)]

    def _sums_of(self, turns: range, x: Bytes, before: Vectors, quads: tuple[Number, Number]) -> Vectors:
        """Return the sums of some turns after all quads of a record, from the first on to the one behind the last."""
        step, count = self._scattered_step if self.quads.scattered else self._step, self.quads.share * self._vectors
        own = before[turns.start * count : turns.stop * count]
        return fold(quads[1], own, lambda quad, sums: step(x, quad, turns, sums), start=quads[0])

    def _step(self, x: Bytes, quad: Number, turns: range, sums: Vectors) -> Vectors:
        """Return the sums after a quad of the outputs of some turns."""
        # the places of two quads in a word, the weights of both in two
        both = self.packed.offsets.cast(Ints).narrow(quad)
        places = [both & 0xFFFF, both >> 16]
        weights, count = self.packed.weights.cast(Longs).at(quad).cast(Ints), self._vectors
        totals: Vectors = []
        for index, output in enumerate(turns):
            line = x.after(places[output].wide() * LINE_BYTES).cast(Ints)
            own = sums[index * count : (index + 1) * count]
            words = map(self.bytes.centered, self.bytes.vectors(line, count))
            totals += self.bytes.add_products(own, weights.narrow(output).value, words)
        return totals

    def _scattered_step(self, x: Bytes, quad: Number, turns: range, sums: Vectors) -> Vectors:
        """Return the sums after four inputs of each turn of a record."""
        builder, form = self.bytes.builder, self.quads
        count = form.share * self._vectors
        weights = self.packed.weights.after(quad * (QUAD * form.outputs)).cast(Ints)
        offsets = self.packed.offsets.after(quad * (form.turns * QUAD * OFFSET_TYPE_BYTES)).cast(Shorts)
        totals: Vectors = []
        for index, turn in enumerate(turns):
            # the lines of four inputs become words, which the outputs of the turn share
            inputs = (x.cast(Longs).at(offsets[QUAD * turn + place]) for place in range(QUAD))
            lines = [self.bytes.centered(line.load(ir.VectorType(BYTE, COLUMNS), COLUMNS)) for line in inputs]
            words = [builder.bitcast(values, self.bytes.vector) for values in unpacked(builder, lines)]
            fours = (weights.narrow(output).value for output in range(turn * form.share, (turn + 1) * form.share))
            totals += self.bytes.add_outer(sums[index * count : (index + 1) * count], fours, words)
        return totals

    def _initial(self, line: Ints) -> Vectors:
        return [self.bytes.zero()] * self._vectors if self.first else list(self.bytes.vectors(line, self._vectors))
