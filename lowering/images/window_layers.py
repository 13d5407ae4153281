"""Windows of layers on images, of floats or of codes, and the layers that are windows alone: depthwise, poolings.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from ...dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp, WindowOp
from ...dialect.tensors import shape_of
from ...kernels.tile_widths import PIXELS
from ..llvm.flow import call
from ..llvm.values import BYTE, NULL, Byte, Bytes, Floats, Index, Ints, Longs, Number
from . import packing
from .found_codes import CodeWords, outside_of, to_floats, words_of
from .geometry import KNOWN, Phases, Plane
from .image_code import ImageCode
from .lines import copying_lines, rounding_pixels
from .many_taps import has_many_taps, tap_tables, windows_of_many_taps
from .memory import View, needs_phases
from .runs import Steps
from .stored_codes import Stored
from .windows import OUTSIDE_FLOATS, WindowForm, Work, windows


class Channels(NamedTuple):
    """Channels from the first one on."""

    first: Index
    number: Index


@dataclass(frozen=True)
class Windows:
    """The windows of an op: what they read, and how."""

    image: ImageCode
    source: View
    phases: Phases
    form: WindowForm
    outside: Callable[[], Bytes]
    """Emits the address of the row outside of all tiles."""

    @staticmethod
    def of(image: ImageCode, op: WindowOp, work: Work, fill: float = 0.0) -> "Windows":
        """Return the windows of an op, with `fill` outside of the image; pixels are copied where an op needs phases."""
        codes, phases = _codes_of(image, op), Phases.of(op.window)
        is_made = any(phased.reader is op for phased in image.memory.phased.values())
        source = image.memory.phases[op] if is_made else image.memory.views[op.x]
        words = None if codes is None else _words_of(image, op, codes)
        if needs_phases(op, image.memory.stored) and not is_made:
            source = image.memory.phases[op]
            if words is None:
                image.copy_pixels(op, packing.phase_pixels, op.x, source, Steps.down_by(op.window.stride[1]), fill)
            else:
                (_copy_lines if op.x in image.memory.stored.codes else _round_pixels)(image, op, source, words)
        activation = op.activation if isinstance(op, Depthwise2dOp) else None
        fields = phases.taps, source.plane.pitch, shape_of(op.x)[1], source.tile_values
        # rows whose lengths only a call knows are alone
        has_room = source.plane.length != KNOWN or phases.has_room(source.plane, image.memory.views[op.result].plane)
        columns = 0 if has_room else source.plane.width
        form = WindowForm(*fields, work, activation, codes is not None, source.plane.tile, source.plane.ring, columns)

        def outside() -> Bytes:
            if words is not None:
                return words.outside
            return image.arrays(("outside", fill), partial(packing.outside_row, np.float32(fill), OUTSIDE_FLOATS))[0]

        return Windows(image, source, phases, form, outside)

    def emit(
        self, tile: Number, target: Bytes, parameters: Sequence[Floats] = (), channels: Channels | None = None
    ) -> None:
        """Emit the windows of a tile, or those of some channels."""
        outside, (factors, bias) = self.outside(), (*parameters, NULL, NULL)[:2]
        first, count = Channels(0, self.form.channels) if channels is None else channels
        near = tile.constant(0) if self.form.ring else tile
        read = self.image.tile(self.source, near, first), tile, self.image.tiles(self.source.plane), outside
        if has_many_taps(self.form):
            tables = self.image.arrays(("taps", self.form.key), partial(tap_tables, self.form))
            call(windows_of_many_taps(self.image.code, self.form), read, target, tables, count)
            return
        call(windows(self.image.code, self.form), read, target, factors, bias, count)

    def at(self, tile: Number, target: Plane, room: Bytes, channels: Channels | None = None) -> Bytes:
        """Return where the windows of a tile of results are: in the source, or emitted into `room`."""
        if self.phases.reads_tiles(self.source.plane, target):
            return self.image.tile(self.source, tile)
        self.emit(tile, room, channels=channels)
        return room


def _codes_of(image: ImageCode, op: WindowOp) -> Stored | None:
    """Return the codes that windows are made of, None for floats."""
    codes = op.codes if isinstance(op, Conv2dOp) else None
    return image.memory.stored.codes.get(op.x) if codes is None else Stored.of(codes)


def _words_of(image: ImageCode, op: WindowOp, codes: Stored) -> CodeWords:
    """Return the words of codes; outside of an image a convolution has the zero point, a pooling the least one."""
    words = words_of(image, op.x, codes)
    if isinstance(op, Conv2dOp):
        return words
    return words._replace(zero=Byte(words.bounds.builder, ir.Constant(BYTE, 0)), outside=outside_of(image, 0))


def _copy_lines(image: ImageCode, op: WindowOp, target: View, words: CodeWords) -> None:
    """Emit copies of codes to the phases that an op reads."""
    source = image.memory.views[op.x]
    arrays = image.arrays((op, "lines"), partial(packing.phase_lines, source.plane, target.plane), op)
    first = image.tile(source, 0)

    def tile(number: Number) -> None:
        for part in range(target.channels // source.channels):
            starts, *tables = arrays[4 * part : 4 * (part + 1)]
            entries = starts.cast(Longs).at(number)
            span = entries[0], entries[1]
            there, channels = image.tile(target, number, part * source.channels), source.channels
            call(copying_lines(image.code), first, source.tile_values, there, span, tables, words.zero, channels)

    image.each(target.plane.tiles, tile)


def _round_pixels(image: ImageCode, op: WindowOp, target: View, words: CodeWords) -> None:
    """Emit the codes of pixels of floats, in the phases that an op reads."""
    source = image.memory.views[op.x]
    recipe = partial(packing.phase_pixels, source.plane, source.tile_values, target.plane)
    tables = image.arrays((op, "pixels"), recipe, op)

    def tile(number: Number) -> None:
        for part, table in enumerate(tables):
            there = image.tile(target, number, part * source.channels)
            entries, bounds = table.cast(Ints).at(number * PIXELS), (words.bounds, words.zero)
            call(rounding_pixels(image.code), image.tile(source, 0), PIXELS, there, entries, bounds, source.channels)

    image.each(target.plane.tiles, tile)


def emit_depthwise(image: ImageCode, op: Depthwise2dOp) -> None:
    """Emit a convolution of each channel."""
    read = Windows.of(image, op, "weigh")
    parameters = [one.cast(Floats) for one in image.arrays((op.weight, op.bias, "taps"), packing.channel_taps, op)]
    image.each_tile(op.result, lambda number, there: read.emit(number, there, parameters))


def emit_pooling(image: ImageCode, op: Pool2dOp) -> None:
    """Emit the largest values of windows, or the largest codes, or means."""
    codes, largest = image.memory.stored.codes.get(op.x), op.kind.data == "max"
    read = Windows.of(image, op, "largest" if largest else "mean", float("-inf") if largest else 0.0)
    shares: Sequence[Bytes] = []
    plane = image.memory.views[op.result].plane
    is_open = plane.length != KNOWN
    if not largest and is_open:
        shares = image.arrays((op, "shares", plane.tile), partial(packing.even_shares, plane.tile), op)
    elif not largest:
        recipe = partial(packing.window_shares, plane)
        shares = image.arrays((op, "shares"), recipe, op)

    def tile(number: Number, there: Bytes) -> None:
        own = [array.cast(Floats).at(0 if is_open else number * read.form.tile) for array in shares]
        target = there if codes is None else image.lines(op.result, there)
        read.emit(number, target, own)
        if codes is not None:
            to_floats(image, codes, target, there, read.form.channels)

    image.each_tile(op.result, tile)
