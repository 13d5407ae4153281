"""The code of an image on its way through an image network: where its values are, and what threads do of a layer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.tensors import shape_of
from ...kernels.tile_widths import PIXELS
from ..llvm.builder import BYTE, FLOAT_BYTES, I64, Code, byte_at, counted_loop, float_at, i64
from ..llvm.call_tables import ConstantTable, Packing
from ..llvm.values import Pointers
from ..llvm.vectors import FLOAT
from ..tiles.row_major import Sharing
from . import line_packing, packing
from .lines import clearing_lines
from .memory import ImageMemory, View
from .movement import clearing, moving

Each = Callable[[ir.Value], None]
"""Emits the work on a tile, or another item, by its number."""


@dataclass(frozen=True)
class ImageCode:
    """The code of one image, under construction; without `sharing` one thread does all of it."""

    code: Code
    builder: ir.IRBuilder
    memory: ImageMemory
    scratch: ir.Value
    constants: ConstantTable
    table: Pointers
    """The table of the addresses of packed constants."""
    threads: int
    """Threads for which layers are cut where tiles are few."""
    sharing: Sharing | None

    def meet(self) -> None:
        """Emit the barrier behind what threads do together."""
        sharing = self.sharing
        if sharing is not None:
            sharing.barrier.meet()

    def each(self, count: int, work: Each) -> None:
        """Emit the work on items below `count`: all of them, or the range that a thread has."""
        builder, sharing = self.builder, self.sharing
        first, stop = i64(0), i64(count)
        if sharing is not None:
            numbers = (sharing.number, sharing.number + 1)
            first, stop = ((number * count).quotient(sharing.threads).value for number in numbers)
        with counted_loop(builder, builder.sub(stop, first)) as done:
            work(builder.add(first, done))

    def arrays(self, key: tuple[object, ...], pack: Packing, op: Operation | None = None) -> list[ir.Value]:
        """Return the addresses of the arrays that `pack` makes of an op, known by `key`."""
        if not self.constants.has(key):
            self.constants.add(key, pack, op)
        return [address.value for address in self.constants.pointers(self.table, key)]

    def tile(self, view: View, number: ir.Value, channel: ir.Value | None = None) -> ir.Value:
        """Return the address of a tile of a value, from a channel on."""
        builder = self.builder
        start = byte_at(builder, self.scratch, i64(view.start))
        first: ir.Value = i64(view.first) if channel is None else builder.add(channel, i64(view.first))
        offset = builder.add(builder.mul(number, i64(view.tile_values)), builder.mul(first, i64(PIXELS)))
        return float_at(builder, start, offset) if view.item == FLOAT_BYTES else byte_at(builder, start, offset)

    def move(
        self, source: ir.Value, stride: int, target: tuple[ir.Value, ir.Value, ir.Value], what: tuple[int, float]
    ) -> None:
        """Emit the way of pixels into a tile: where it is, the table of all tiles, its number; channels and fill."""
        builder, (tile, table, number), (channels, fill) = self.builder, target, what
        entries = float_at(builder, table, builder.mul(number, i64(PIXELS)))
        arguments = [source, i64(stride), tile, i64(PIXELS), entries, i64(PIXELS), i64(channels)]
        builder.call(moving(self.code, whole=True), [*arguments, ir.Constant(FLOAT, fill)])

    def copy_pixels(
        self,
        op: Operation,
        pack: Callable[..., Sequence[NDArray[np.generic]]],
        x: SSAValue,
        target: View,
        fill: float = 0.0,
    ) -> None:
        """Emit copies of pixels of `x`, by a table for each part of the target that has the channels of `x`."""
        source = self.memory.views[x]
        parts = target.channels // source.channels
        recipe = partial(pack, source.plane, source.tile_values, target.plane)
        arrays = self.arrays((op, "pixels"), recipe, op)

        def tile(number: ir.Value) -> None:
            for part in range(parts):
                there = self.tile(target, number, i64(part * source.channels))
                self.move(self.tile(source, i64(0)), PIXELS, (there, arrays[part], number), (source.channels, fill))

        self.each(target.plane.tiles, tile)

    def own(self, row: int) -> ir.Value:
        """Return a row of the memory of a thread alone."""
        sharing = self.sharing
        own = self.scratch if sharing is None else sharing.scratch.value
        return float_at(self.builder, own, i64(row * PIXELS))

    def store_pixel(self, value: SSAValue, channel: ir.Value, pixel: ir.Value) -> None:
        """Emit the one pixel of a channel of floats, and zeros beside it where a window may read them."""
        there = self.tile(self.memory.views[value], i64(0), channel)
        self.builder.store(pixel, there)
        self.clear(value, i64(0), there, i64(1))

    def clear(self, value: SSAValue, number: ir.Value, tile: ir.Value, channels: ir.Value | None = None) -> None:
        """Emit zeros at the positions of a tile that are no pixels, where a window may read them."""
        if value not in self.memory.zeroed:
            return
        builder, plane, codes = self.builder, self.memory.views[value].plane, self.memory.stored.codes.get(value)
        if codes is not None:
            (bits,) = self.arrays(("pixels", plane), partial(line_packing.pixel_bits, plane))
            count = i64(shape_of(value)[1]) if channels is None else channels
            zero = ir.Constant(BYTE, codes.zero)
            builder.call(clearing_lines(self.code), [tile, bits, number, zero, count])
            return
        starts, positions = self.arrays(("empty", plane), partial(packing.empty_positions, plane))
        entry = builder.gep(starts, [number], source_etype=I64)
        first = builder.load(entry, typ=I64)
        end = builder.load(builder.gep(entry, [i64(1)], source_etype=I64), typ=I64)
        count = i64(shape_of(value)[1]) if channels is None else channels
        arguments = [tile, float_at(builder, positions, first), builder.sub(end, first), count]
        builder.call(clearing(self.code), arguments)
