"""The code of an image on its way through an image network: where its values are, and what threads do of a layer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.elementwise import BinaryOp
from ...dialect.ops.images import Spread, WindowOp, spreads_of
from ...dialect.tensors import shape_of
from ...kernels.tile_widths import PIXELS
from ..llvm.builder import Code
from ..llvm.call_tables import ConstantTable, Packing, values_of_constant
from ..llvm.flow import call, loop, select
from ..llvm.values import BYTE, FLOAT, FLOAT_BYTES, Bytes, Floats, Index, Ints, Longs, Number, Pointers
from ..tiles.row_major import Sharing
from . import packing
from .bands import BandedOps, Stage
from .geometry import KNOWN, Phases, Plane
from .lines import clearing_lines
from .memory import ImageMemory, View
from .movement import clearing
from .open_rows import OpenLength
from .runs import KINDS, RUN_TABLES, RunForm, Steps, in_runs, moving_runs

Each = Callable[[Number], None]
"""Emits the work on a tile, or another item, by its number."""


class PixelTable(NamedTuple):
    """A tile, the tables of the runs of pixels of all tiles, and the number of this one."""

    tile: Bytes
    tables: Sequence[Bytes]
    """Starts, entries and places: see `runs.in_runs`."""
    number: Number
    form: RunForm


class Band(NamedTuple):
    """A band of a group, by its number, and the table of the tiles of all."""

    group: BandedOps
    table: Longs
    number: Number

    def tiles(self, stage: Stage) -> tuple[Number, Number]:
        """Return the first tile of a stage, and the end."""
        entry = self.table.at(self.number + self.group.stages.index(stage) * (self.group.count + 1))
        return entry[0], entry[1]


@dataclass(frozen=True)
class ImageCode:
    """The code of one image, under construction; without `sharing` one thread does all of it."""

    code: Code
    memory: ImageMemory
    scratch: Bytes
    constants: ConstantTable
    table: Pointers
    """The table of the addresses of packed constants."""
    threads: int
    """Threads for which layers are cut where tiles are few."""
    sharing: Sharing | None
    band: Band | None = None
    """The band that is computed; None for all tiles."""
    lengths: Sequence[OpenLength] = ()
    """The lengths that planes have the numbers of."""
    most_tiles: Number | None = None
    """The tiles of the largest of them."""

    def tiles(self, plane: Plane) -> Index:
        """Return the tiles of a plane."""
        return plane.tiles if plane.length == KNOWN else self.lengths[plane.length].tiles

    def each(self, count: Index, work: Each, stage: Stage | None = None, shares: int = 1) -> None:
        """Emit the work on items below `count`: all of them, or those that a thread claims.

        The items of a stage are its tiles, of which each has some shares: those of a band, where there are bands.
        """
        first, stop = self.scratch.constant(0), self.scratch.constant(0) + count
        if stage is not None and self.band is not None:
            first, stop = (number * shares for number in self.band.tiles(stage))
        with loop(stop - first) if self.sharing is None else self.sharing.each(stop - first) as done:
            work(first + done)

    def each_tile(self, result: SSAValue, work: Callable[[Number, Bytes], None]) -> None:
        """Emit the work on each tile of a result, by its number and its address; then it is cleared beside pixels."""
        view = self.memory.views[result]

        def tile(number: Number) -> None:
            there = self.tile(view, number)
            work(number, there)
            self.clear(result, number, there)

        self.each(self.tiles(view.plane), tile, _stage_of(result))

    def arrays(self, key: tuple[object, ...], pack: Packing, op: Operation | None = None) -> list[Bytes]:
        """Return the addresses of the arrays of `key`, which `pack` makes of an op."""
        return self.constants.pointers(self.table, key, pack, op)

    def tile(self, view: View, number: Index, channel: Index = 0) -> Bytes:
        """Return the address of a tile of a value, from a channel on."""
        start = self.scratch.after(view.start)
        if self.most_tiles is not None:
            start = start.at(self.most_tiles * view.start_of_tile)
        if view.plane.ring and isinstance(number, Number):
            number = number % view.plane.ring
        offset = number * view.tile_values + (channel + view.first) * view.plane.tile
        return start.cast(Floats).at(offset).cast(Bytes) if view.item == FLOAT_BYTES else start.at(offset)

    def move(self, source: Bytes, stride: Index, target: PixelTable, channels: int, fill: float) -> None:
        """Emit the way of pixels of some channels into a tile, and of what to fill it with."""
        starts, entries, places = target.tables
        own = starts.cast(Longs).at(target.number * len(KINDS)), entries
        table, function = places.cast(Ints).at(target.number * target.form.tile), moving_runs(self.code, target.form)
        call(function, source, stride, target.tile, own, table, channels, ir.Constant(FLOAT, fill))

    def run_form(self, steps: Steps, plane: Plane) -> RunForm:
        """Return the form of runs into the tiles of a plane."""
        return RunForm(steps, self.code.target.lanes, plane.tile)

    def copy_pixels(
        self,
        op: Operation,
        pack: Callable[..., Sequence[NDArray[np.generic]]],
        x: SSAValue,
        target: View,
        steps: Steps,
        fill: float = 0.0,
        stage: Stage | None = None,
    ) -> None:
        """Emit copies of pixels of `x`, by tables for each part of the target that has the channels of `x`.

        They are a stage of `op`, unless another one is given.
        """
        source, form = self.memory.views[x], self.run_form(steps, target.plane)
        parts = target.channels // source.channels
        if source.plane.length != KNOWN:
            self._copy_phases(op, source, target, fill)
            return
        recipe = partial(pack, source.plane, source.tile_values, target.plane)
        arrays = self.arrays((op, "pixels"), partial(in_runs, recipe, form, source.row_values), op)

        def tile(number: Number) -> None:
            for part in range(parts):
                there = self.tile(target, number, part * source.channels)
                tables = arrays[part * RUN_TABLES : (part + 1) * RUN_TABLES]
                pixels = PixelTable(there, tables, number, form)
                self.move(self.tile(source, 0), source.plane.tile, pixels, source.channels, fill)

        self.each(target.plane.tiles, tile, stage or Stage(op, copies=self.memory.phases.get(op) is target))

    def _copy_phases(self, op: Operation, source: View, target: View, fill: float) -> None:
        """Emit copies of every so many pixels of a row, from each of the first ones on."""
        assert isinstance(op, WindowOp)
        phases, size = Phases.of(op.window), target.plane.tile
        stride, pixels = phases.stride[1], self.lengths[source.plane.length].pixels
        form = self.run_form(Steps.down_by(stride), target.plane)
        for part, (_, first) in enumerate(phases.offsets):
            recipe = partial(packing.strided_pixels, size, source.tile_values, stride, first)
            key = ("strided", size, source.tile_values, stride, first)
            tables = self.arrays(key, partial(in_runs, recipe, form, None))
            length = OpenLength(
                (pixels + (stride - 1 - first)).quotient(stride), self.lengths[target.plane.length].tiles
            )

            def tile(
                number: Number, part: int = part, tables: Sequence[Bytes] = tables, length: OpenLength = length
            ) -> None:
                there, used = self.tile(target, number, part * source.channels), length.used(number, size)
                known = PixelTable(there, tables, select(used < 0, 0, used), form)
                self.move(self.tile(source, number * stride), size, known, source.channels, fill)

            self.each(length.tiles, tile)

    def own(self, row: int) -> Bytes:
        """Return a row of the memory of a thread alone."""
        own = self.scratch if self.sharing is None else self.sharing.scratch
        return own.after(row * PIXELS * FLOAT_BYTES)

    def lines(self, result: SSAValue, there: Bytes, row: int = 0) -> Bytes:
        """Return where the codes of a tile `there` of a result are made: in its place, or in a row of the thread."""
        return there if result in self.memory.stored.codes else self.own(row)

    def operand(self, value: SSAValue, spread: Spread, number: Number) -> Bytes:
        """Return the address of an operand of elementwise work for a tile, by how it is spread over pixels."""
        if spread in ("tile", "first_column"):
            return self.tile(self.memory.views[value], number if spread == "tile" else 0)
        owner = value.owner if isinstance(value.owner, Operation) else None
        (constant,) = self.arrays((value, "values"), values_of_constant, owner)
        return constant

    def store_pixel(self, value: SSAValue, channel: Number, pixel: ir.Value) -> None:
        """Emit the one pixel of a channel of floats, and zeros beside it where a window may read them."""
        there = self.tile(self.memory.views[value], 0, channel)
        there.cast(Floats)[0] = pixel
        self.clear(value, channel.constant(0), there, 1)

    def clear(self, value: SSAValue, number: Number, tile: Bytes, channels: Index | None = None) -> None:
        """Emit zeros at the positions of a tile that are no pixels, where a window may read them."""
        if value not in self.memory.zeroed:
            return
        plane, codes = self.memory.views[value].plane, self.memory.stored.codes.get(value)
        count = shape_of(value)[1] if channels is None else channels
        if codes is not None:
            (bits,) = self.arrays(("pixels", plane), partial(packing.pixel_bits, plane))
            call(clearing_lines(self.code), tile, bits, number, ir.Constant(BYTE, codes.zero), count)
            return
        if plane.length != KNOWN:
            (table,) = self.arrays(("positions", plane.tile), partial(packing.all_positions, plane.tile))
            used = self.lengths[plane.length].used(number, plane.tile)
            call(clearing(self.code, plane.tile), tile, table.cast(Ints).at(used), plane.tile - used, count)
            return
        empty = self.arrays(("empty", plane), partial(packing.empty_positions, plane))
        self.clear_listed(empty, number, tile, plane.tile, count)

    def clear_listed(self, empty: Sequence[Bytes], number: Number, tile: Bytes, size: int, channels: Index) -> None:
        """Emit zeros at positions of a tile of so many: `empty` is where those of each tile begin, and all of them."""
        starts, positions = empty
        entry = starts.cast(Longs).at(number)
        first, end = entry[0], entry[1]
        call(clearing(self.code, size), tile, positions.cast(Ints).at(first), end - first, channels)


def _stage_of(result: SSAValue) -> Stage | None:
    return Stage(result.owner) if isinstance(result.owner, Operation) else None


def spreads_in_network(op: BinaryOp) -> tuple[Spread, Spread]:
    """Return how both operands are spread over pixels.

    Raises:
        ValueError: an operand is neither an image nor spread over its pixels.
    """
    spreads = spreads_of(op)
    if spreads is None:
        raise ValueError(f"{op.name} inside a pebble.image_network has operands that are no images")
    return spreads
