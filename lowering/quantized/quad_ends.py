"""The ends of outputs of quads for 64 columns: four vectors of sums become a line of codes, or floats.

    sums     columns 0 to 15 | 16 to 31 | 32 to 47 | 48 to 63          4 vectors, as unpacking has left them
             times the multiplier, bounded above, to the nearest       vcvtdq2ps, vmulps, vminps, vcvtps2dq
             packed to words, the code of 0 added                      vpackssdw, vpaddw
    line     packed to bytes, bounded below                            vpackuswb, vpmaxub

Packing saturates, and undoes what unpacking does to the order of columns. Words of quads of neighbours are lines that
were unpacked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.byte_lookup import QUARTER
from ...kernels.byte_quads import COLUMNS, QUAD
from ..kernels.kernel_form import activated
from ..llvm.builder import Code
from ..llvm.flow import loop, select
from ..llvm.interleaving import interleaved
from ..llvm.intrinsics import call_intrinsic
from ..llvm.values import BYTE, FLOAT_BYTES, I16, I32, Bytes, Floats, Number
from ..llvm.vectors import Lanes, broadcast, int_constants
from .byte_rows import other_kind
from .lookup_layer import LayerEnd
from .rounding import Rounding

LINE_BYTES: Final = FLOAT_BYTES * COLUMNS
"""Bytes of the words of a quad, and of the sums of an output."""

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
        return [activated(lanes, self.end.activation, [value])[0] for value in values]

    def _multiples(self, values: ir.Value) -> ir.Value:
        assert self.rounding is not None
        return values if self.end.activation is None else self.rounding.divided(values)

    def _line(self, values: Sequence[ir.Value]) -> ir.Value:
        """Return the codes of four vectors of values; a NaN is the least one."""
        if "avx512bw" not in self.lanes.target.extensions:
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
