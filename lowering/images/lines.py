"""Lines: the codes of 64 positions of a channel, bytes in one register; a tile is a line for each of its channels.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).

    places     line[i0] line[i1] ...          vpermb, or vpshufb in each quarter, or a load a byte
    chosen     places of one line here, of another one there: a bit for each byte

Pixels of an image as ONNX has them lie next to each other; positions leave room between rows. Those of a tile are the
pixels from one on, with gaps: a line of 64 of them is placed at once, on the way in and on the way out.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Final

from llvmlite import ir

from ...kernels.byte_lookup import INDEX_OF_ZERO, QUARTER
from ...kernels.tile_widths import PIXELS
from ..cpu_target import ByteLookUp
from ..llvm.builder import Code
from ..llvm.flow import allocated, fold, loop
from ..llvm.gather_scatter import gather
from ..llvm.intrinsics import call_intrinsic
from ..llvm.register_parts import joined, part_of
from ..llvm.values import BYTE, I1, I32, Byte, Bytes, Float, Floats, Int, Ints, Longs, Number
from ..llvm.vectors import Lanes, Operand, broadcast, int_constants
from ..quantized.byte_lanes import PLACING, looked_up
from ..quantized.rounding import Rounding
from .movement import pixels_at

LINE: Final = ir.VectorType(BYTE, PIXELS)


class LineLanes(Lanes):
    """The codes of a line as lanes: what moves, chooses and compares them is written as it is for floats."""

    @property
    def vector(self) -> ir.VectorType:
        """The type of a line."""
        return LINE

    @property
    def size(self) -> int:
        """The bytes of a line."""
        return self.width

    def max(self, x: Operand, bound: Operand) -> ir.Value:
        """Return the larger codes."""
        codes, others = self.splat(x), self.splat(bound)
        return self.builder.select(self.builder.icmp_unsigned(">", others, codes), others, codes)


def load_line(address: Bytes, align: int = PIXELS) -> ir.Value:
    """Return the line at an address."""
    return address.load(LINE, align)


def splat_code(code: Number) -> ir.Value:
    """Return a line of one code."""
    return broadcast(code.builder, code.value, PIXELS)


class _Placing:
    """Bytes of lines at other places; made where a function begins."""

    def __init__(self, code: Code, place: Bytes) -> None:
        self._builder = place.builder
        self._has_instruction, self._by_parts = code.target.looks_up_lines, code.target.line_look_up
        self._by_quarters = code.target.look_up
        if self._by_quarters is None:
            self._room = [allocated(place, Bytes, PIXELS) for _ in range(2)]

    def placed(self, line: ir.Value, places: Bytes) -> ir.Value:
        """Return the bytes of a line that the bytes at an address say."""
        if self._has_instruction:
            return call_intrinsic(self._builder, PLACING, LINE, [line, load_line(places)])
        if self._by_parts is not None:
            return looked_up(self._builder, self._by_parts, quarters_of(self._builder, line), load_line(places))
        if self._by_quarters is not None:
            return self._looked_up(self._by_quarters, line, load_line(places))
        source, target = self._room
        source.store(line, PIXELS)
        with loop(source.constant(PIXELS)) as index:
            target[index] = source.narrow(places[index])
        return load_line(target)

    def _looked_up(self, look_up: ByteLookUp, line: ir.Value, places: ir.Value) -> ir.Value:
        """Return the same by look-ups in each quarter of the line, of which all but one yield 0 for a place."""
        builder, found = self._builder, list[ir.Value]()
        for start, quarter in zip(range(0, PIXELS, QUARTER), quarters_of(builder, line), strict=True):
            # 0 to 15 in this quarter; more gets the highest bit, for which a look-up yields 0
            inside = builder.xor(places, ir.Constant(LINE, [start] * PIXELS))
            index = builder.add(inside, ir.Constant(LINE, [INDEX_OF_ZERO - QUARTER] * PIXELS))
            found.append(looked_up(builder, look_up, [quarter], index))
        return reduce(builder.or_, found)


def quarters_of(builder: ir.IRBuilder, line: ir.Value) -> list[ir.Value]:
    """Return a line as four tables of 16 bytes."""
    return [part_of(builder, line, start, QUARTER) for start in range(0, PIXELS, QUARTER)]


def _chosen(masks: Longs, index: Number | int) -> ir.Value:
    """Return 64 bits of a table as a vector."""
    return masks.builder.bitcast(masks[index].value, ir.VectorType(I1, PIXELS))


def clearing_lines(code: Code) -> ir.Function:
    """Return `void (tile, pixels, number, zero, channels)`: the code `zero` where a tile has no pixel, by its bits."""

    @code.kernel("clear_lines")
    def kernel(tile: Bytes, pixels: Longs, number: Number, zero: Byte, channels: Number) -> None:
        is_pixel, nothing = _chosen(pixels, number), splat_code(zero)
        with loop(channels) as channel:
            line = tile.at(channel * PIXELS)
            line.store(tile.builder.select(is_pixel, load_line(line), nothing), PIXELS)

    return kernel


def copying_lines(code: Code) -> ir.Function:
    """Return `void (source, tile bytes, target, begin, end, tiles, places, bits, fill, channels)`.

    Each line of the target is made of lines of tiles of the source: entries `begin` to `end` of the tables say which
    tile, the place in its line of each byte, and for which bytes that counts.
    """

    @code.kernel("copy_lines")
    def kernel(
        source: Bytes,
        tile_bytes: Number,
        target: Bytes,
        begin: Number,
        end: Number,
        tiles: Longs,
        places: Bytes,
        bits: Longs,
        fill: Byte,
        channels: Number,
    ) -> None:
        placing, nothing = _Placing(code, source), splat_code(fill)
        with loop(channels) as channel:
            row = channel * PIXELS

            def entry(index: Number, before: ir.Value, row: Number = row) -> ir.Value:
                line = load_line(source.at(tiles[index] * tile_bytes).at(row))
                moved = placing.placed(line, places.at(index * PIXELS))
                return source.builder.select(_chosen(bits, index), moved, before)

            # each tile of the source gives some bytes; what none gives is filled
            line = fold(end, nothing, entry, start=begin)
            target.at(row).store(line, PIXELS)

    return kernel


def entering_lines(code: Code) -> ir.Function:
    """Return `void (source, stride, tile, count, places, bits, bounds, fill, channels)`: floats become a tile of codes.

    The source has `count` pixels of the tile next to each other, and `stride` floats from a channel to the next.
    """

    @code.kernel("enter_lines")
    def kernel(
        source: Floats,
        stride: Number,
        tile: Bytes,
        count: Number,
        places: Bytes,
        bits: Longs,
        bounds: Bytes,
        fill: Byte,
        channels: Number,
    ) -> None:
        lanes = code.lanes(source)
        placing, nothing, rounding = _Placing(code, tile), splat_code(fill), Rounding.read(lanes, bounds)
        is_pixel, firsts = _chosen(bits, 0), range(0, PIXELS, lanes.width)
        wanted = [lanes.below(count, first) for first in firsts]
        with loop(channels) as channel:
            pixels = source.at(channel * stride)
            parts = [
                rounding.code(rounding.quotient(lanes.load_chosen(pixels.at(first), some)))
                for first, some in zip(firsts, wanted, strict=True)
            ]
            # codes of pixels side by side go to their positions; what is none has the code of 0
            line = placing.placed(joined(lanes.builder, parts), places)
            line = lanes.builder.select(is_pixel, line, nothing)
            tile.at(channel * PIXELS).store(line, PIXELS)

    return kernel


def leaving_lines(code: Code) -> ir.Function:
    """Return `void (tile, target, stride, count, places, scale, zero, channels)`: the other way."""

    @code.kernel("leave_lines")
    def kernel(
        tile: Bytes,
        target: Floats,
        stride: Number,
        count: Number,
        places: Bytes,
        scale: Float,
        zero: Int,
        channels: Number,
    ) -> None:
        lanes = code.lanes(tile)
        placing, firsts = _Placing(code, tile), range(0, PIXELS, lanes.width)
        wanted = [lanes.below(count, first) for first in firsts]
        values = CodeValues(lanes, lanes.splat(scale), lanes.splat_int(zero))
        with loop(channels) as channel:
            # positions without a pixel drop out: what is left lies side by side
            line = load_line(tile.at(channel * PIXELS))
            pixels, there = placing.placed(line, places), target.at(channel * stride)
            for first, some in zip(firsts, wanted, strict=True):
                lanes.store_chosen(values.of(pixels, first), there.at(first), some)

    return kernel


def rounding_pixels(code: Code) -> ir.Function:
    """Return `void (source, stride, tile, table, bounds, fill, channels)`: floats of a plane become a tile of codes.

    A table says for each byte of a line where its pixel is, -1 where there is none.
    """

    @code.kernel("round_pixels")
    def kernel(
        source: Floats, stride: Number, tile: Bytes, table: Ints, bounds: Bytes, fill: Byte, channels: Number
    ) -> None:
        lanes = code.lanes(source)
        builder = lanes.builder
        rounding, firsts = Rounding.read(lanes, bounds), range(0, PIXELS, lanes.width)
        places = pixels_at(lanes, table, firsts)
        nothing = lanes.splat_int(fill.wide(I32))
        with loop(channels) as channel:
            pixels, row = source.at(channel * stride), tile.at(channel * PIXELS)
            for first, (is_pixel, index) in zip(firsts, places, strict=True):
                words = rounding.code_words(rounding.quotient(gather(lanes, pixels, index)))
                codes = builder.trunc(builder.select(is_pixel, words, nothing), ir.VectorType(BYTE, lanes.width))
                row.at(first).store(codes, 1)

    return kernel


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

    @code.kernel("lines_to_floats")
    def kernel(lines: Bytes, y: Floats, scale: Float, zero: Int, channels: Number) -> None:
        lanes = code.lanes(lines)
        values = CodeValues(lanes, lanes.splat(scale), lanes.splat_int(zero))
        with loop(channels * PIXELS, lanes.width) as start:
            codes = lines.at(start).load(ir.VectorType(BYTE, lanes.width), 1)
            lanes.store(values.of_bytes(codes), y.at(start))

    return kernel
