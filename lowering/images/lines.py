"""Lines: the codes of 64 positions of a channel, bytes in one register; a tile is a line for each of its channels.

    window     line[p + s .. p + s + 64)      two loads where they end in the next tile, of which each gives some bytes
    places     line[i0] line[i1] ...          vpermb, or vpshufb in each quarter, or a load a byte
    chosen     places of one line here, of another one there: a bit for each byte

Pixels of an image as ONNX has them lie next to each other; positions leave room between rows. Those of a tile are the
pixels from one on, with gaps: a line of 64 of them is placed at once, on the way in and on the way out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from llvmlite import ir

from ...kernels.byte_lookup import INDEX_OF_ZERO, QUARTER
from ...kernels.byte_quads import QUAD
from ...kernels.tile_widths import PIXELS
from ..llvm.builder import (
    BYTE,
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
from ..llvm.intrinsics import call_intrinsic
from ..llvm.values import I1
from ..llvm.vectors import FLOAT, Lanes, int_constants
from ..quantized.byte_lanes import LOOK_UP, PLACING
from ..quantized.rounding import Rounding
from .geometry import PhaseTap

LINE: Final = ir.VectorType(BYTE, PIXELS)

OUTSIDE_BYTES: Final = 3 * PIXELS
"""Bytes of the row outside of the tiles, a line of which is in the middle: vectors begin before it, or end behind."""


@dataclass(frozen=True)
class LineWindows:
    """The form of windows: taps, the pitch, the channels of a phase and of a tile, and what is done with the taps."""

    taps: tuple[PhaseTap, ...]
    pitch: int
    channels: int
    tile_values: int
    work: Literal["copy", "largest"]

    @property
    def key(self) -> str:
        """A name for the function."""
        taps = "_".join(f"{tap.phase}p{tap.row}r{tap.column}".replace("-", "m") for tap in self.taps)
        return f"line_windows_{self.work}_{self.pitch}_{self.channels}_{self.tile_values}_{taps}"


def line_windows(code: Code, form: LineWindows) -> ir.Function:
    """Return `void (tile, number, tiles, outside, target, channels)`.

    `copy` puts the lines of the taps of a channel next to each other, `largest` writes the largest codes.
    """

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        tile, number, tiles, outside, target, channels = args
        known: dict[tuple[int, int], tuple[ir.Value, ir.Value]] = {}
        places = [_places(form, tap) for tap in form.taps]
        for tap, parts in zip(form.taps, places, strict=True):
            for distance, _ in parts:
                start = i64(distance * form.tile_values + tap.phase * form.channels * PIXELS)
                inside = builder.icmp_unsigned("<", builder.add(number, i64(distance)), tiles)
                row = byte_at(builder, outside, i64(PIXELS))
                address = builder.select(inside, byte_at(builder, tile, start), row)
                known[tap.phase, distance] = address, builder.select(inside, i64(PIXELS), i64(0))
        with counted_loop(builder, channels) as channel:
            lines: list[ir.Value] = []
            for tap, parts in zip(form.taps, places, strict=True):
                rows = [known[tap.phase, distance] for distance, _ in parts]
                loaded = [
                    load_line(builder, byte_at(builder, row, builder.add(builder.mul(channel, step), i64(offset))), 1)
                    for (row, step), (_, offset) in zip(rows, parts, strict=True)
                ]
                lines.append(
                    loaded[0] if len(loaded) == 1 else _joined(builder, (loaded[0], loaded[1]), PIXELS - parts[0][1])
                )
            if form.work == "largest":
                lines = [_largest(builder, lines)]
            first = builder.mul(channel, i64(PIXELS * len(lines)))
            for index, line in enumerate(lines):
                place = builder.add(first, i64(PIXELS * index))
                builder.store(line, byte_at(builder, target, place), align=PIXELS)

    return code.function(form.key, [POINTER, I64, I64, POINTER, POINTER, I64], body)


def _places(form: LineWindows, tap: PhaseTap) -> list[tuple[int, int]]:
    """Return the tiles, counted from this one, in which the line of a tap lies, and its offset in each."""
    tile, offset = divmod(tap.row * form.pitch + tap.column, PIXELS)
    return [(tile, offset), (tile + 1, offset - PIXELS)] if offset else [(tile, 0)]


def _joined(builder: ir.IRBuilder, pair: tuple[ir.Value, ir.Value], here: int) -> ir.Value:
    chosen = [lane if lane < here else PIXELS + lane for lane in range(PIXELS)]
    return builder.shuffle_vector(*pair, ir.Constant(ir.VectorType(I32, PIXELS), chosen))


def _largest(builder: ir.IRBuilder, lines: Sequence[ir.Value]) -> ir.Value:
    largest, *others = lines
    for line in others:
        largest = builder.select(builder.icmp_unsigned(">", line, largest), line, largest)
    return largest


def load_line(builder: ir.IRBuilder, address: ir.Value, align: int = PIXELS) -> ir.Value:
    """Return the line at an address."""
    return builder.load(address, align=align, typ=LINE)


def splat_code(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Return a line of one code."""
    undefined = ir.Constant(LINE, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, PIXELS), 0))


class _Placing:
    """Bytes of lines at other places; made where a function begins."""

    def __init__(self, code: Code, builder: ir.IRBuilder) -> None:
        self._builder, features = builder, code.target.extensions
        self._has_instruction = "avx512vbmi" in features
        self._lanes = 16 if "avx512bw" in features else 8 if "avx2" in features else 0
        if not self._lanes:
            self._room = [_line_of_memory(builder) for _ in range(2)]

    def placed(self, line: ir.Value, places: ir.Value) -> ir.Value:
        """Return the bytes of a line that the bytes at an address say."""
        builder = self._builder
        if self._has_instruction:
            return call_intrinsic(builder, PLACING, LINE, [line, load_line(builder, places)])
        if self._lanes:
            return self._looked_up(line, load_line(builder, places))
        source, target = self._room
        builder.store(line, source, align=PIXELS)
        with counted_loop(builder, i64(PIXELS)) as index:
            place = builder.zext(builder.load(byte_at(builder, places, index), typ=BYTE), I64)
            value = builder.load(byte_at(builder, source, place), typ=BYTE)
            builder.store(value, byte_at(builder, target, index))
        return load_line(builder, target)

    def _looked_up(self, line: ir.Value, places: ir.Value) -> ir.Value:
        """Return the same by look-ups in each quarter of the line, of which all but one yield 0 for a place."""
        builder, size = self._builder, QUAD * self._lanes
        kind, parts = ir.VectorType(BYTE, size), list[ir.Value]()
        for first in range(0, PIXELS, size):
            own = builder.shuffle_vector(places, places, int_constants(range(first, first + size)))
            found: ir.Value = ir.Constant(kind, [0] * size)
            for quarter in range(0, PIXELS, QUARTER):
                table = builder.shuffle_vector(line, line, int_constants(quarter + n % QUARTER for n in range(size)))
                # 0 to 15 in this quarter; more gets the highest bit, for which a look-up yields 0
                inside = builder.xor(own, ir.Constant(kind, [quarter] * size))
                index = builder.add(inside, ir.Constant(kind, [INDEX_OF_ZERO - QUARTER] * size))
                found = builder.or_(found, call_intrinsic(builder, LOOK_UP[self._lanes], kind, [table, index]))
            parts.append(found)
        return parts[0] if len(parts) == 1 else builder.shuffle_vector(parts[0], parts[1], int_constants(range(PIXELS)))


def _line_of_memory(builder: ir.IRBuilder) -> ir.Value:
    room = builder.alloca(ir.ArrayType(BYTE, PIXELS))
    room.align = PIXELS
    # llvmlite types what is allocated by its contents, and then refuses vectors of them
    return builder.inttoptr(builder.ptrtoint(room, I64), POINTER)


def _chosen(builder: ir.IRBuilder, masks: ir.Value, index: ir.Value) -> ir.Value:
    """Return 64 bits of a table as a vector."""
    bits = builder.load(builder.gep(masks, [index], source_etype=I64), typ=I64)
    return builder.bitcast(bits, ir.VectorType(I1, PIXELS))


def clearing_lines(code: Code) -> ir.Function:
    """Return `void (tile, pixels, number, zero, channels)`: the code `zero` where a tile has no pixel, by its bits."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        tile, pixels, number, zero, channels = args
        is_pixel, nothing = _chosen(builder, pixels, number), splat_code(builder, zero)
        with counted_loop(builder, channels) as channel:
            place = byte_at(builder, tile, builder.mul(channel, i64(PIXELS)))
            builder.store(builder.select(is_pixel, load_line(builder, place), nothing), place, align=PIXELS)

    return code.function("clear_lines", [POINTER, POINTER, I64, BYTE, I64], body)


def copying_lines(code: Code) -> ir.Function:
    """Return `void (source, tile bytes, target, begin, end, tiles, places, bits, fill, channels)`.

    Each line of the target is made of lines of tiles of the source: entries `begin` to `end` of the tables say which
    tile, the place in its line of each byte, and for which bytes that counts.
    """

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        source, tile_bytes, target, begin, end, tiles, places, bits, fill, channels = args
        placing, nothing = _Placing(code, builder), splat_code(builder, fill)
        with counted_loop(builder, channels) as channel:
            row = builder.mul(channel, i64(PIXELS))

            def entry(index: ir.Value, before: Sequence[ir.Value], row: ir.Value = row) -> list[ir.Value]:
                number = builder.load(builder.gep(tiles, [index], source_etype=I64), typ=I64)
                tile = byte_at(builder, source, builder.mul(number, tile_bytes))
                line = load_line(builder, byte_at(builder, tile, row))
                moved = placing.placed(line, byte_at(builder, places, builder.mul(index, i64(PIXELS))))
                return [builder.select(_chosen(builder, bits, index), moved, before[0])]

            (line,) = reduce_loop(builder, end, [nothing], entry, start=begin)
            builder.store(line, byte_at(builder, target, row), align=PIXELS)

    types = [POINTER, I64, POINTER, I64, I64, POINTER, POINTER, POINTER, BYTE, I64]
    return code.function("copy_lines", types, body)


def entering_lines(code: Code) -> ir.Function:
    """Return `void (source, stride, tile, count, places, bits, bounds, fill, channels)`: floats become a tile of codes.

    The source has `count` pixels of the tile next to each other, and `stride` floats from a channel to the next.
    """

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        source, stride, tile, count, places, bits, bounds, fill, channels = args
        lanes = code.lanes(builder)
        placing, nothing, rounding = _Placing(code, builder), splat_code(builder, fill), Rounding.read(lanes, bounds)
        is_pixel, firsts = _chosen(builder, bits, i64(0)), range(0, PIXELS, lanes.width)
        wanted = [_below(lanes, first, count) for first in firsts]
        with counted_loop(builder, channels) as channel:
            pixels = float_at(builder, source, builder.mul(channel, stride))
            parts = [
                rounding.code(rounding.quotient(lanes.load_chosen(float_at(builder, pixels, i64(first)), some)))
                for first, some in zip(firsts, wanted, strict=True)
            ]
            line = builder.select(is_pixel, placing.placed(joined_bytes(builder, parts), places), nothing)
            builder.store(line, byte_at(builder, tile, builder.mul(channel, i64(PIXELS))), align=PIXELS)

    types = [POINTER, I64, POINTER, I64, POINTER, POINTER, POINTER, BYTE, I64]
    return code.function("enter_lines", types, body)


def leaving_lines(code: Code) -> ir.Function:
    """Return `void (tile, target, stride, count, places, scale, zero, channels)`: the other way."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        tile, target, stride, count, places, scale, zero, channels = args
        lanes = code.lanes(builder)
        placing, firsts = _Placing(code, builder), range(0, PIXELS, lanes.width)
        wanted = [_below(lanes, first, count) for first in firsts]
        values = CodeValues(lanes, lanes.splat(scale), splat_int(lanes, zero))
        with counted_loop(builder, channels) as channel:
            line = load_line(builder, byte_at(builder, tile, builder.mul(channel, i64(PIXELS))))
            pixels, there = placing.placed(line, places), float_at(builder, target, builder.mul(channel, stride))
            for first, some in zip(firsts, wanted, strict=True):
                lanes.store_chosen(values.of(pixels, first), float_at(builder, there, i64(first)), some)

    return code.function("leave_lines", [POINTER, POINTER, I64, I64, POINTER, FLOAT, I32, I64], body)


def rounding_pixels(code: Code) -> ir.Function:
    """Return `void (source, stride, tile, table, bounds, fill, channels)`: floats of a plane become a tile of codes.

    A table says for each byte of a line where its pixel is, -1 where there is none.
    """

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        source, stride, tile, table, bounds, fill, channels = args
        lanes = code.lanes(builder)
        rounding, firsts = Rounding.read(lanes, bounds), range(0, PIXELS, lanes.width)
        where = [load_ints(lanes, builder.gep(table, [i64(first)], source_etype=I32)) for first in firsts]
        is_pixel = [builder.icmp_signed(">=", one, lanes.ints(0)) for one in where]
        safe = [builder.select(one, index, lanes.ints(0)) for one, index in zip(is_pixel, where, strict=True)]
        nothing = splat_int(lanes, builder.zext(fill, I32))
        with counted_loop(builder, channels) as channel:
            pixels = float_at(builder, source, builder.mul(channel, stride))
            row = byte_at(builder, tile, builder.mul(channel, i64(PIXELS)))
            for first, one, index in zip(firsts, is_pixel, safe, strict=True):
                words = rounding.code_words(rounding.quotient(gather(lanes, pixels, index)))
                codes = builder.trunc(builder.select(one, words, nothing), ir.VectorType(BYTE, lanes.width))
                builder.store(codes, byte_at(builder, row, i64(first)), align=1)

    return code.function("round_pixels", [POINTER, I64, POINTER, POINTER, POINTER, BYTE, I64], body)


@dataclass(frozen=True)
class CodeValues:
    """The floats that codes stand for: vectors of the scale and of the code of 0."""

    lanes: Lanes
    scale: ir.Value
    zero: ir.Value

    def of(self, line: ir.Value, first: int) -> ir.Value:
        """Return the values of a line from a byte on."""
        width = self.lanes.width
        chosen = int_constants(range(first, first + width))
        return self.of_bytes(self.lanes.builder.shuffle_vector(line, line, chosen))

    def of_bytes(self, codes: ir.Value) -> ir.Value:
        """Return the values of as many codes as there are lanes."""
        return self.of_words(self.lanes.builder.zext(codes, self.lanes.int_vector))

    def of_words(self, codes: ir.Value) -> ir.Value:
        """Return the values of codes that are words."""
        steps = self.lanes.builder.sub(codes, self.zero)
        return self.lanes.mul(self.lanes.to_float(steps), self.scale)


def lines_to_floats(code: Code) -> ir.Function:
    """Return `void (lines, y, scale, zero, channels)`: the values of a tile of codes."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        lines, y, scale, zero, channels = args
        lanes = code.lanes(builder)
        values = CodeValues(lanes, lanes.splat(scale), splat_int(lanes, zero))
        with counted_loop(builder, builder.mul(channels, i64(PIXELS)), lanes.width) as start:
            codes = builder.load(byte_at(builder, lines, start), align=1, typ=ir.VectorType(BYTE, lanes.width))
            lanes.store(values.of_bytes(codes), float_at(builder, y, start))

    return code.function("lines_to_floats", [POINTER, POINTER, FLOAT, I32, I64], body)


def joined_bytes(builder: ir.IRBuilder, parts: Sequence[ir.Value]) -> ir.Value:
    """Return vectors of bytes, a power of two of them, as a line."""
    size, rest = PIXELS // len(parts), list(parts)
    while len(rest) > 1:
        size *= 2
        mask = int_constants(range(size))
        rest = [builder.shuffle_vector(*pair, mask) for pair in zip(rest[::2], rest[1::2], strict=True)]
    return rest[0]


def _below(lanes: Lanes, first: int, count: ir.Value) -> ir.Value:
    """Return which lanes, counted from `first`, are below a count."""
    numbers = int_constants(range(first, first + lanes.width))
    return lanes.builder.icmp_signed("<", numbers, splat_int(lanes, lanes.builder.trunc(count, I32)))
