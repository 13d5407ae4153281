"""The kernel of a quantized layer for 64 rows at once: lines of words, four bytes of neighbouring inputs of a column.

    x[quad]     bytes 0 to 3 of column 0 | column 1 | ...                       4 vectors of 16 columns
    sums[r][v]  + x[quad][v] . weights of the quad, one word in every lane      vpdpbusd with a memory operand

Where inputs are scattered, a quad is made of four lines of bytes, an input each, when it is met. Columns lie in a line
as unpacking takes them to words in their order, and as packing leaves them:

    line         bytes 0 to 3: columns 0 to 3 | 16 to 19 | 32 to 35 | 48 to 51 | 4 to 7 | ...
    a, b, c, d   -> abab..., cdcd...          vpunpcklbw, vpunpckhbw
                 -> abcd abcd ...             vpunpcklwd, vpunpckhwd: the 4 vectors of x[quad]

Two outputs take turns, so that eight sums are on their way; two or four that share their inputs unpack them once. Sums
of 32 bits wait in memory between blocks of inputs; behind the last block they become the words of the next layer, four
outputs each, without a shuffle, or its lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from llvmlite import ir

from redpebble.kernels.byte_lookup import QUARTER, LookupForm
from redpebble.kernels.byte_quads import COLUMNS, QUAD, QuadForm
from redpebble.lowering.kernels.kernel_form import activated
from redpebble.lowering.llvm.builder import (
    FLOAT_BYTES,
    I32,
    I64,
    POINTER,
    Code,
    byte_at,
    counted_loop,
    entry_of,
    float_at,
    i64,
    reduce_loop,
)
from redpebble.lowering.llvm.interleaving import interleaved
from redpebble.lowering.llvm.vectors import Lanes, int_constants
from redpebble.lowering.quantized.byte_lanes import BYTE, WORD, ByteLanes
from redpebble.lowering.quantized.lookup_layer import LayerEnd
from redpebble.lowering.quantized.rounding import Rounding

LINE_BYTES: Final = FLOAT_BYTES * COLUMNS
"""Bytes of the words of a quad, and of the sums of an output."""

OFFSET_TYPE_BYTES: Final = 2

SIGNS: Final = 0x80808080
"""The bits by which four signed codes differ from unsigned ones."""

HALVES: Final = (False, True)
"""The low half, and the high one."""


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


def quad_layer(code: Code, form: LookupForm, end: LayerEnd, block_quads: int, quads: QuadForm) -> ir.Function:
    """Return `void (x, sums, y, packed arrays...)`.

    Words are in x and y, or lines if inputs are scattered; in the place of sums floats [outputs, 64], or words.
    """

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, sums, y, packed = *args[:3], PackedQuads(*args[3:])
        bytes_ = ByteLanes(builder, form, code.target.lanes)
        borders = builder.gep(packed.borders, [i64(1)], source_etype=I64)
        zero, one = (entry_of(builder, borders, index, I64) for index in (0, 1))
        start = _Block(bytes_, packed, sums, quads, first=True).emit(x, zero, one, i64(0))
        more = builder.sub(entry_of(builder, packed.borders, 0, I64), i64(1))

        def block(index: ir.Value, done: Sequence[ir.Value]) -> list[ir.Value]:
            here = builder.gep(borders, [builder.add(index, i64(1))], source_etype=I64)
            first, last = (entry_of(builder, here, offset, I64) for offset in (0, 1))
            lines = byte_at(builder, x, builder.mul(builder.add(index, i64(1)), i64(block_quads * LINE_BYTES)))
            following = _Block(bytes_, packed, sums, quads, first=False)
            return [following.emit(lines, first, last, done[0])]

        reduce_loop(builder, more, [start], block)
        emit_end = _emit_lines if quads.scattered and end.kind == "codes" else _emit_end
        emit_end(Lanes(builder, code.target, form.lanes), end, packed, (sums, y))

    kind = f"scattered_{quads.share}" if quads.scattered else "quads"
    # the end is a loop over the outputs
    key = f"{kind}_{form.lanes}_{block_quads}_{end.outputs}_{end.key}"
    return code.function(key, [POINTER, POINTER, POINTER, *[POINTER] * len(PackedQuads._fields)], body)


@dataclass(frozen=True)
class _Block:
    """The records of a block of inputs."""

    bytes: ByteLanes
    packed: PackedQuads
    sums: ir.Value
    quads: QuadForm
    first: bool

    @property
    def _vectors(self) -> int:
        return COLUMNS // self.bytes.form.lanes

    def emit(self, x: ir.Value, begin: ir.Value, end: ir.Value, start: ir.Value) -> ir.Value:
        """Emit the records from `begin` on, whose quads begin at `start`; return where those of the next one do."""
        builder = self.bytes.builder

        def record(index: ir.Value, done: Sequence[ir.Value]) -> list[ir.Value]:
            words = self.quads.outputs + 1
            here = builder.gep(self.packed.records, [builder.mul(index, i64(words))], source_etype=I32)
            *outputs, count = (self._word(here, place) for place in range(words))
            lines = [byte_at(builder, self.sums, builder.mul(output, i64(LINE_BYTES))) for output in outputs]
            before = [self._initial(self._vector(line, part)) for line in lines for part in range(self._vectors)]
            stop = builder.add(done[0], count)
            step = self._scattered_step if self.quads.scattered else self._step
            totals = reduce_loop(builder, stop, before, lambda quad, sums: step(x, quad, sums), start=done[0])
            places = [self._vector(line, part) for line in lines for part in range(self._vectors)]
            for total, place in zip(totals, places, strict=True):
                builder.store(total, place, align=FLOAT_BYTES * self.bytes.form.lanes)
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
            words = [builder.bitcast(values, self.bytes.sums) for values in _unpacked(builder, lines)]
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


def _unpacked(builder: ir.IRBuilder, lines: Sequence[ir.Value]) -> list[ir.Value]:
    """Return four vectors of words of four lines, 16 columns each."""
    a, b, c, d = lines
    words = [(interleaved(builder, a, b, 1, high), interleaved(builder, c, d, 1, high)) for high in HALVES]
    return [interleaved(builder, *pair, 2, high) for pair in words for high in HALVES]


def words_to_lines(code: Code) -> ir.Function:
    """Return `void (x, quads)`: words of quads of neighbours become lines of their inputs, in the same place."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, quads = args
        kind = ir.VectorType(BYTE, COLUMNS)
        with counted_loop(builder, quads) as quad:
            line = byte_at(builder, x, builder.mul(quad, i64(LINE_BYTES)))
            places = [byte_at(builder, line, i64(COLUMNS * part)) for part in range(QUAD)]
            parts = [builder.load(place, align=COLUMNS, typ=kind) for place in places]
            # in each quarter the bytes of four columns, input by input; then quarters of one input from all parts
            order = [
                quarter + QUAD * (byte % QUAD) + byte // QUAD
                for quarter in range(0, COLUMNS, QUARTER)
                for byte in range(QUARTER)
            ]
            mask = int_constants(order)
            a, b, c, d = (builder.shuffle_vector(part, part, mask) for part in parts)
            halves = [(interleaved(builder, a, b, 4, high), interleaved(builder, c, d, 4, high)) for high in HALVES]
            lines = [interleaved(builder, *pair, 8, high) for pair in halves for high in HALVES]
            for made, place in zip(lines, places, strict=True):
                builder.store(made, place, align=COLUMNS)

    return code.function("words_to_lines", [POINTER, I64], body)


def _emit_lines(lanes: Lanes, end: LayerEnd, packed: PackedQuads, buffers: tuple[ir.Value, ir.Value]) -> None:
    """Emit what becomes of the sums: a line of codes of each output."""
    builder, (sums, y) = lanes.builder, buffers
    ending = _End(lanes, end, packed, Rounding.read(lanes, packed.tail))
    chosen = [
        COLUMNS // QUAD * vector + QUAD * quarter + column
        for quarter in range(QUAD)
        for vector in range(QUAD)
        for column in range(QUAD)
    ]
    mask = int_constants(chosen)
    with counted_loop(builder, i64(end.outputs)) as output:
        line = byte_at(builder, sums, builder.mul(output, i64(LINE_BYTES)))
        bytes_ = [
            builder.trunc(
                ending.code(byte_at(builder, line, i64(FLOAT_BYTES * part)), output), ir.VectorType(BYTE, lanes.width)
            )
            for part in range(0, COLUMNS, lanes.width)
        ]
        joined = _joined(builder, bytes_, lanes.width)
        codes = builder.shuffle_vector(joined, joined, mask)
        builder.store(codes, byte_at(builder, y, builder.mul(output, i64(COLUMNS))), align=COLUMNS)


def _joined(builder: ir.IRBuilder, parts: list[ir.Value], width: int) -> ir.Value:
    """Return vectors of a width, a power of two of them, as one."""
    size = width
    while len(parts) > 1:
        size *= 2
        mask = int_constants(range(size))
        parts = [builder.shuffle_vector(*pair, mask) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _emit_end(lanes: Lanes, end: LayerEnd, packed: PackedQuads, buffers: tuple[ir.Value, ir.Value]) -> None:
    """Emit what becomes of the sums: words of the codes of four outputs, or floats in the place of sums."""
    builder, (sums, y) = lanes.builder, buffers
    ending = _End(lanes, end, packed, None if end.kind == "values" else Rounding.read(lanes, packed.tail))
    yields_words = end.kind in ("codes", "bytes")
    step = QUAD if yields_words else 1
    with counted_loop(builder, i64(end.outputs), step) as output:
        lines = [builder.add(output, i64(index)) for index in range(step)]
        for part in range(0, COLUMNS, lanes.width):
            at = [
                byte_at(builder, sums, builder.add(builder.mul(line, i64(LINE_BYTES)), i64(FLOAT_BYTES * part)))
                for line in lines
            ]
            if not yields_words:
                lanes.store(ending.value(at[0], lines[0]), at[0], FLOAT_BYTES * lanes.width)
                continue
            words: ir.Value | None = None
            for index, (place, line) in enumerate(zip(at, lines, strict=True)):
                code = builder.shl(ending.code(place, line), lanes.ints(8 * index))
                words = code if words is None else builder.or_(words, code)
            target = builder.add(builder.mul(output, i64(LINE_BYTES // QUAD)), i64(FLOAT_BYTES * part))
            assert words is not None
            if end.signed:
                words = builder.xor(words, lanes.ints(SIGNS))
            builder.store(words, byte_at(builder, y, target), align=FLOAT_BYTES * lanes.width)


@dataclass(frozen=True)
class _End:
    """The end of a vector of columns of an output."""

    lanes: Lanes
    end: LayerEnd
    packed: PackedQuads
    rounding: Rounding | None

    def value(self, place: ir.Value, output: ir.Value) -> ir.Value:
        """Return floats of the sums at an address."""
        values = self._values(place, output)
        return values if self.rounding is None else self.rounding.value(self._rounded(values))

    def code(self, place: ir.Value, output: ir.Value) -> ir.Value:
        """Return the codes of the sums at an address, each a word."""
        assert self.rounding is not None
        return self.rounding.code_words(self._rounded(self._values(place, output)))

    def _rounded(self, values: ir.Value) -> ir.Value:
        assert self.rounding is not None
        multiples = values if self.end.activation is None else self.rounding.divided(values)
        return self.rounding.rounded(multiples)

    def _values(self, place: ir.Value, output: ir.Value) -> ir.Value:
        builder, lanes = self.lanes.builder, self.lanes
        sums = builder.load(place, align=FLOAT_BYTES * lanes.width, typ=lanes.int_vector)
        bias = builder.load(builder.gep(self.packed.bias, [output], source_etype=I32), typ=I32)
        multiplier = builder.load(
            builder.gep(self.packed.multiplier, [output], source_etype=ir.FloatType()), typ=ir.FloatType()
        )
        total = builder.add(sums, lanes.bits(lanes.splat(builder.bitcast(bias, ir.FloatType()))))
        value = lanes.mul(lanes.to_float(total), lanes.splat(multiplier))
        if self.end.adds:
            place = float_at(builder, self.packed.tail, output)
            value = lanes.add(value, lanes.splat(builder.load(place, typ=ir.FloatType())))
        return activated(lanes, self.end.activation, [value])[0]
