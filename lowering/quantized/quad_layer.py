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

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from llvmlite import ir

from ...kernels.byte_lookup import LookupForm
from ...kernels.byte_quads import COLUMNS, QUAD, QuadForm
from ..llvm.builder import Code
from ..llvm.flow import fold
from ..llvm.values import BYTE, Bytes, Index, Ints, Longs, Number, Shorts
from .byte_lanes import ByteLanes
from .lookup_layer import LayerEnd
from .quad_ends import LINE_BYTES, OutputArrays, QuadEnd, unpacked

OFFSET_TYPE_BYTES: Final = 2


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
        bytes_ = ByteLanes.at(x, form, code.target.lanes)
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
            step = self._scattered_step if self.quads.scattered else self._step
            totals = fold(stop, before, lambda quad, sums: step(x, quad, sums), start=done)
            for index, output in enumerate(outputs):
                part = totals[index * self._vectors : (index + 1) * self._vectors]
                if self.end is not None:
                    self.end.emit(part, output)
                else:
                    self.bytes.put(lines[index], part)
            return stop

        return fold(end, start, record, start=begin)

    def _step(self, x: Bytes, quad: Number, sums: Vectors) -> Vectors:
        """Return the sums after a quad of each output of a pair."""
        # the places of two quads in a word, the weights of both in two
        both = self.packed.offsets.cast(Ints).narrow(quad)
        places = [both & 0xFFFF, both >> 16]
        weights, count = self.packed.weights.cast(Longs).at(quad).cast(Ints), self._vectors
        totals: Vectors = []
        for output, place in enumerate(places):
            line = x.after(place.wide() * LINE_BYTES).cast(Ints)
            own = sums[output * count : (output + 1) * count]
            totals += self.bytes.add_products(own, weights.narrow(output).value, self.bytes.vectors(line, count))
        return totals

    def _scattered_step(self, x: Bytes, quad: Number, sums: Vectors) -> Vectors:
        """Return the sums after four inputs of each turn of a record."""
        builder, form = self.bytes.builder, self.quads
        count = form.share * self._vectors
        weights = self.packed.weights.after(quad * (QUAD * form.outputs)).cast(Ints)
        offsets = self.packed.offsets.after(quad * (form.turns * QUAD * OFFSET_TYPE_BYTES)).cast(Shorts)
        totals: Vectors = []
        for turn in range(form.turns):
            # the lines of four inputs become words, which the outputs of the turn share
            inputs = (x.cast(Longs).at(offsets[QUAD * turn + index]) for index in range(QUAD))
            lines = [line.load(ir.VectorType(BYTE, COLUMNS), COLUMNS) for line in inputs]
            words = [builder.bitcast(values, self.bytes.vector) for values in unpacked(builder, lines)]
            fours = (weights.narrow(output).value for output in range(turn * form.share, (turn + 1) * form.share))
            totals += self.bytes.add_outer(sums[turn * count : (turn + 1) * count], fours, words)
        return totals

    def _initial(self, line: Ints) -> Vectors:
        return [self.bytes.zero()] * self._vectors if self.first else list(self.bytes.vectors(line, self._vectors))
