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
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.byte_lookup import LookupForm
from ...kernels.byte_quads import COLUMNS, QUAD, QuadForm
from ..llvm.builder import (
    FLOAT_BYTES,
    I32,
    I64,
    POINTER,
    Code,
    byte_at,
    entry_of,
    i64,
    reduce_loop,
)
from ..llvm.vectors import Lanes, int_constants
from .byte_lanes import BYTE, WORD, ByteLanes
from .lookup_layer import LayerEnd
from .quad_ends import LINE_BYTES, QuadEnd, unpacked

OFFSET_TYPE_BYTES: Final = 2


class Blocks(NamedTuple):
    """Number of blocks of inputs, and quads of each."""

    number: int
    quads: int


class PackedQuads(NamedTuple):
    """The addresses of the arrays of a layer."""

    borders: ir.Value
    records: ir.Value
    offsets: ir.Value
    weights: ir.Value
    bias: ir.Value
    multiplier: ir.Value
    tail: ir.Value
    """The bounds of codes, or what is added to values."""


def quad_layer(code: Code, form: LookupForm, end: LayerEnd, blocks: Blocks, quads: QuadForm) -> ir.Function:
    """Return `void (x, sums, y, packed arrays...)`.

    In x are words, or lines if inputs are scattered; in y lines of codes, or in the place of sums floats [outputs, 64].
    """

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, sums, y, packed = *args[:3], PackedQuads(*args[3:])
        bytes_ = ByteLanes(builder, form, code.target.lanes)
        lanes = Lanes(builder, code.target, form.lanes)
        last = QuadEnd.of(lanes, end, (packed.bias, packed.multiplier, packed.tail), (y, sums))
        borders = builder.gep(packed.borders, [i64(1)], source_etype=I64)

        def block(index: ir.Value, start: ir.Value, kind: _Block) -> ir.Value:
            here = builder.gep(borders, [index], source_etype=I64)
            first, behind = (entry_of(builder, here, offset, I64) for offset in (0, 1))
            lines = byte_at(builder, x, builder.mul(index, i64(blocks.quads * LINE_BYTES)))
            return kind.emit(lines, first, behind, start)

        only = blocks.number == 1
        start = block(i64(0), i64(0), _Block(bytes_, packed, sums, quads, True, last if only else None))
        if only:
            return
        inner = _Block(bytes_, packed, sums, quads, False, None)
        final = i64(blocks.number - 1)
        (start,) = reduce_loop(builder, final, [start], lambda at, done: [block(at, done[0], inner)], start=i64(1))
        block(final, start, replace(inner, end=last))

    kind = f"scattered_{quads.share}" if quads.scattered else "quads"
    key = f"{kind}_{form.lanes}_{blocks.number}_{blocks.quads}_{end.outputs}_{end.key}"
    return code.function(key, [POINTER, POINTER, POINTER, *[POINTER] * len(PackedQuads._fields)], body)


@dataclass(frozen=True)
class _Block:
    """The records of a block of inputs."""

    bytes: ByteLanes
    packed: PackedQuads
    sums: ir.Value
    quads: QuadForm
    first: bool
    end: QuadEnd | None
    """The end of sums behind the last block; they wait in memory for the next one."""

    @property
    def _vectors(self) -> int:
        return COLUMNS // self.bytes.form.lanes

    def emit(self, x: ir.Value, begin: ir.Value, end: ir.Value, start: ir.Value) -> ir.Value:
        """Emit the records from `begin` on, whose quads begin at `start`; return where those of the next one do."""
        builder = self.bytes.builder

        def record(number: ir.Value, done: Sequence[ir.Value]) -> list[ir.Value]:
            words = self.quads.outputs + 1
            here = builder.gep(self.packed.records, [builder.mul(number, i64(words))], source_etype=I32)
            *outputs, count = (self._word(here, place) for place in range(words))
            lines = [byte_at(builder, self.sums, builder.mul(output, i64(LINE_BYTES))) for output in outputs]
            before = [self._initial(self._vector(line, part)) for line in lines for part in range(self._vectors)]
            stop = builder.add(done[0], count)
            step = self._scattered_step if self.quads.scattered else self._step
            totals = reduce_loop(builder, stop, before, lambda quad, sums: step(x, quad, sums), start=done[0])
            for index, output in enumerate(outputs):
                part = totals[index * self._vectors : (index + 1) * self._vectors]
                if self.end is not None:
                    self.end.emit(part, output)
                    continue
                for place, total in enumerate(part):
                    builder.store(total, self._vector(lines[index], place), align=FLOAT_BYTES * self.bytes.form.lanes)
            return [stop]

        return reduce_loop(builder, end, [start], record, start=begin)[0]

    def _step(self, x: ir.Value, quad: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the sums after a quad of each output of a pair."""
        builder, form = self.bytes.builder, self.bytes.form
        both = builder.load(builder.gep(self.packed.offsets, [quad], source_etype=I32), typ=I32)
        places = [builder.and_(both, ir.Constant(I32, 0xFFFF)), builder.lshr(both, ir.Constant(I32, 16))]
        weights = builder.gep(self.packed.weights, [quad], source_etype=I64)
        totals: list[ir.Value] = []
        for output, place in enumerate(places):
            line = byte_at(builder, x, builder.mul(builder.zext(place, I64), i64(LINE_BYTES)))
            word = builder.load(byte_at(builder, weights, i64(QUAD * output)), typ=I32)
            four = self._splat(word)
            for part in range(self._vectors):
                values = builder.load(self._vector(line, part), align=FLOAT_BYTES * form.lanes, typ=self.bytes.sums)
                totals.append(self.bytes.dot(sums[output * self._vectors + part], values, four))
        return totals

    def _scattered_step(self, x: ir.Value, quad: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the sums after four inputs of each turn of a record."""
        builder, lanes, form = self.bytes.builder, self._vectors, self.quads
        weights = byte_at(builder, self.packed.weights, builder.mul(quad, i64(QUAD * form.outputs)))
        offsets = byte_at(builder, self.packed.offsets, builder.mul(quad, i64(form.turns * QUAD * OFFSET_TYPE_BYTES)))
        totals: list[ir.Value] = []
        for turn in range(form.turns):
            lines: list[ir.Value] = []
            for index in range(QUAD):
                place = byte_at(builder, offsets, i64(OFFSET_TYPE_BYTES * (QUAD * turn + index)))
                offset = builder.zext(builder.load(place, typ=WORD), I64)
                line = builder.gep(x, [offset], source_etype=I64)
                lines.append(builder.load(line, align=COLUMNS, typ=ir.VectorType(BYTE, COLUMNS)))
            words = [builder.bitcast(values, self.bytes.sums) for values in unpacked(builder, lines)]
            for output in range(turn * form.share, (turn + 1) * form.share):
                four = self._splat(builder.load(byte_at(builder, weights, i64(QUAD * output)), typ=I32))
                before = sums[output * lanes : (output + 1) * lanes]
                totals += [self.bytes.dot(*pair, four) for pair in zip(before, words, strict=True)]
        return totals

    def _initial(self, place: ir.Value) -> ir.Value:
        if self.first:
            return int_constants([0] * self.bytes.form.lanes)
        return self.bytes.builder.load(place, align=FLOAT_BYTES * self.bytes.form.lanes, typ=self.bytes.sums)

    def _word(self, record: ir.Value, place: int) -> ir.Value:
        builder = self.bytes.builder
        return builder.zext(builder.load(builder.gep(record, [i64(place)], source_etype=I32), typ=I32), I64)

    def _vector(self, line: ir.Value, part: int) -> ir.Value:
        return byte_at(self.bytes.builder, line, i64(FLOAT_BYTES * self.bytes.form.lanes * part))

    def _splat(self, word: ir.Value) -> ir.Value:
        builder, undefined = self.bytes.builder, ir.Constant(self.bytes.sums, ir.Undefined)
        first = builder.insert_element(undefined, word, ir.Constant(I32, 0))
        return builder.shuffle_vector(first, undefined, int_constants([0] * self.bytes.form.lanes))
