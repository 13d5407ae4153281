"""An image network as a step of a program: image after image, layer after layer, tile after tile.

The rows of the step are images. One thread does an image alone; or threads do it together: each takes a range of the
tiles of a layer, and of the shares of outputs where tiles are few, and all meet behind it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from math import prod
from typing import Final

from xdsl.ir import Operation, SSAValue

from ...dialect.ops.elementwise import ActivateOp, BinaryOp, ConvertOp
from ...dialect.ops.image_network import ImageNetworkOp
from ...dialect.ops.images import (
    Conv2dOp,
    Depthwise2dOp,
    Interleave2dOp,
    Pool2dOp,
    Resample2dOp,
    image_shape,
    is_open,
)
from ...dialect.ops.movement import ConcatOp, SplitOp
from ...kernels.tile_widths import open_tiles
from ..llvm.flow import branch, call, loop, select
from ..llvm.values import Bytes, Floats, Ints, Longs, Number
from ..program import ScratchBytes, TiledRows, TileTime
from ..tiles.row_major import RowMajorStep
from . import packing
from .bands import BandedOps
from .code_chains import emit_chain
from .convolutions import emit_convolution
from .found_codes import emit_range
from .geometry import KNOWN, reads_all
from .image_code import Band, ImageCode, PixelTable
from .layers import (
    emit_activation,
    emit_arithmetic,
    emit_concat,
    emit_interleaving,
    emit_pooling_of_all,
    emit_resampling,
)
from .memory import ImageMemory, View, ops_of, plan_images
from .movement import leaving
from .open_rows import OpenLength, OpenRows
from .quantized import emit_code_mean, emit_convolution_on_codes, emit_entrance, emit_exit
from .runs import Steps, in_runs
from .window_layers import emit_depthwise, emit_pooling

SHARED_GAIN: Final = 0.95
"""Share of the work of an image that threads can do at the same time."""


def image_tiles(op: ImageNetworkOp) -> TiledRows:
    """Return how threads may cut images."""
    serial, threads = max(1.0, op.predicted_us.value.data), op.threads.value.data
    together = serial * (1 - SHARED_GAIN + SHARED_GAIN / threads) if threads > 1 else None
    return TiledRows((TileTime(1, 1, serial, together),), 1)


@dataclass(frozen=True)
class ImageStep:
    """The code of a step."""

    op: ImageNetworkOp
    step: RowMajorStep
    images: Number | None = None
    """The images of a call, of which codes are found; None where that need not be known."""

    def emit(self, begin: Number, end: Number) -> int | Sequence[ScratchBytes]:
        """Emit the images from `begin` to the one before `end`; return the bytes of scratch memory of a thread."""
        lanes = self.step.code.target.lanes
        if not is_open(self.op.inputs[0]):
            memory = plan_images(self.op, lanes)
            image = self._code(memory)
            self._emit_ranges(image)
            self._emit_images(image, begin, end)
            return memory.total
        shapes = self.step.sizes.shapes
        rows = [OpenRows.of(self.op, shapes, tile) for tile in open_tiles(lanes)]
        plans = [plan_images(self.op, lanes, one) for one in rows]
        pixels = [self.step.number(size) for size in rows[0].sizes]
        longest = reduce(lambda one, other: select(one < other, other, one), pixels)

        def tiled(one: OpenRows, memory: ImageMemory) -> None:
            lengths = [OpenLength(length, length.divided_up(one.tile)) for length in pixels]
            image = replace(self._code(memory), lengths=lengths, most_tiles=longest.divided_up(one.tile))
            self._emit_images(image, begin, end)

        by_length = partial(tiled, rows[-1], plans[-1])
        for (one, wider), memory in reversed([*zip(pairwise(rows), plans[:-1], strict=True)]):
            narrow = partial(tiled, one, memory)
            by_length = partial(branch, longest <= _shortest(self.op, one.tile, wider.tile), narrow, by_length)
        by_length()
        # each plan for the tiles that it is used for, one of which may have few pixels
        whole = max(memory.total + memory.total_of_tile for memory in plans)
        each = max(-(-memory.total_of_tile // one.tile) for one, memory in zip(rows, plans, strict=True))
        return [ScratchBytes(whole, size, each) for size in rows[0].sizes]

    def _code(self, memory: ImageMemory) -> ImageCode:
        step, threads = self.step, self.op.threads.value.data
        return ImageCode(step.code, memory, step.scratch, step.constants, step.table, threads, step.sharing)

    def _emit_images(self, image: ImageCode, begin: Number, end: Number) -> None:
        with loop(end - begin) as done:
            _ImageCall(self.op, self.step.pointers, image, begin + done).emit()

    def _emit_ranges(self, image: ImageCode) -> None:
        """Emit the search for codes in all images; every thread finds them by itself, or they would have to meet."""
        outer = dict[SSAValue, SSAValue](zip(self.op.body.block.args, self.op.inputs, strict=True))
        for op in ops_of(self.op):
            if isinstance(op, Conv2dOp) and op.finds_codes:
                assert self.images is not None
                values = self.images * prod(image_shape(op.x)[1:])
                emit_range(image, op, self.step.pointers[outer[op.x]], values)


def _shortest(op: ImageNetworkOp, narrow: int, wide: int) -> int:
    """Return the length up to which narrow tiles are predicted to take less time than a wide one."""
    kernels = [one.kernel for one in ops_of(op) if isinstance(one, Conv2dOp) and one.kernel is not None]
    times = [[kernel.predicted.get(tile, 0.0) for kernel in kernels] for tile in (narrow, wide)]
    narrow_us, wide_us = map(sum, times)
    return narrow * int(wide_us / narrow_us) if narrow_us and wide_us < narrow_us * wide / narrow else wide - narrow


@dataclass(frozen=True)
class _ImageCall:
    """One image of a call, by its number."""

    op: ImageNetworkOp
    pointers: Mapping[SSAValue, Floats]
    image: ImageCode
    number: Number

    def emit(self) -> None:
        """Emit the way in, all layers, and the way out."""
        network, image = self.op, self.image
        for outer, inner in zip(network.inputs, network.body.block.args, strict=True):
            self._move_in(outer, inner)
        for group in image.memory.groups:
            if isinstance(group, BandedOps):
                self._emit_bands(group)
            else:
                _emit_layer(image, group)
        for outer, inner in zip(network.outputs, network.yielded, strict=True):
            self._move_out(inner, outer)

    def _emit_bands(self, group: BandedOps) -> None:
        image = self.image
        (table,) = image.arrays(("bands", *group.ops), lambda _: [group.bands.borders])
        with loop(self.number.constant(group.count)) as number:
            band = replace(image, band=Band(group, table.cast(Longs), number))
            for op in group.ops:
                _emit_layer(band, op)

    def _move_in(self, outer: SSAValue, inner: SSAValue) -> None:
        view = self.image.memory.views[inner]
        _, channels, height, width = image_shape(outer)
        if view.plane.length != KNOWN:
            self._move_in_open(outer, view, self.image.lengths[view.plane.length])
            return
        image = self.pointers[outer].at(self.number * (channels * height * width))
        if inner in self.image.memory.stored.codes:
            emit_entrance(self.image, inner, image)
            return
        form = self.image.run_form(Steps(), view.plane)
        recipe = partial(in_runs, partial(packing.incoming_pixels, view.plane), form, height * width)
        tables = self.image.arrays(("in", view.plane), recipe)

        def tile(number: Number) -> None:
            target = PixelTable(self.image.tile(view, number), tables, number, form)
            self.image.move(image.cast(Bytes), height * width, target, channels, 0.0)

        self.image.each(view.plane.tiles, tile)

    def _move_in_open(self, outer: SSAValue, view: View, length: OpenLength) -> None:
        size, form = view.plane.tile, self.image.run_form(Steps(), view.plane)
        recipe = partial(in_runs, partial(packing.first_pixels, size), form, None)
        tables, first = self.image.arrays(("first", size), recipe), self._first_of_tiles(outer, view, length)

        def tile(number: Number) -> None:
            target = PixelTable(self.image.tile(view, number), tables, length.used(number, size), form)
            self.image.move(first(number).cast(Bytes), length.pixels, target, view.channels, 0.0)

        self.image.each(length.tiles, tile)

    def _move_out_open(self, outer: SSAValue, view: View, length: OpenLength) -> None:
        size, first = view.plane.tile, self._first_of_tiles(outer, view, length)
        (table,) = self.image.arrays(("positions", size), partial(packing.all_positions, size))

        def tile(number: Number) -> None:
            places = self.image.tile(view, number), first(number), length.pixels, table
            call(leaving(self.image.code, size), *places, length.used(number, size), view.channels)

        self.image.each(length.tiles, tile)

    def _first_of_tiles(self, outer: SSAValue, view: View, length: OpenLength) -> Callable[[Number], Floats]:
        """Return the address in the image of the first pixel of each tile."""
        image = self.pointers[outer].at(self.number * view.channels * length.pixels)
        return lambda number: image.at(number * view.plane.tile)

    def _move_out(self, inner: SSAValue, outer: SSAValue) -> None:
        view = self.image.memory.views[inner]
        _, channels, height, width = image_shape(outer)
        if view.plane.length != KNOWN:
            self._move_out_open(outer, view, self.image.lengths[view.plane.length])
            return
        pixels, tile = height * width, view.plane.tile
        image = self.pointers[outer].at(self.number * (channels * pixels))
        if inner in self.image.memory.stored.codes:
            emit_exit(self.image, inner, image)
            return
        pack = partial(packing.outgoing_pixels, view.plane, view.tile_values)
        (table,) = self.image.arrays(("out", view.plane, view.tile_values), pack)

        def part(number: Number) -> None:
            first = number * tile
            count = (pixels - first).smaller(tile)
            places = self.image.tile(view, 0), image.at(first), pixels, table.cast(Ints).at(first)
            call(leaving(self.image.code, tile), *places, count, channels)

        self.image.each(-(-pixels // tile), part)


def _emit_layer(image: ImageCode, op: Operation) -> None:
    """Emit a layer, where there is anything to do."""
    stored = image.memory.stored
    if op in stored.chains:
        emit_chain(image, stored.chains[op])
        return
    if any(result in stored.inner or result in stored.same for result in op.results):
        return
    match op:
        case Conv2dOp():
            (emit_convolution if op.codes is None else emit_convolution_on_codes)(image, op)
        case Depthwise2dOp():
            emit_depthwise(image, op)
        case Pool2dOp() if reads_all(op):
            (emit_code_mean if op.x in stored.codes else emit_pooling_of_all)(image, op)
        case Pool2dOp():
            emit_pooling(image, op)
        case Resample2dOp():
            emit_resampling(image, op)
        case Interleave2dOp():
            emit_interleaving(image, op)
        case ActivateOp() | ConvertOp():
            emit_activation(image, op)
        case BinaryOp():
            emit_arithmetic(image, op)
        case ConcatOp():
            emit_concat(image, op)
        case SplitOp():
            pass
        case _:
            raise ValueError(f"{op.name} has no code inside a pebble.image_network")
