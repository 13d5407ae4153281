"""Layers of images without windows: elementwise work, channels next to each other, the mean of all pixels."""

from dataclasses import replace
from functools import partial, reduce

from llvmlite import ir
from xdsl.ir import SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.elementwise import ActivateOp, BinaryOp, ConvertOp
from ...dialect.ops.images import Interleave2dOp, Pool2dOp, Resample2dOp, image_shape
from ...dialect.ops.movement import ConcatOp
from ..kernels.elementwise import BinaryForm, activate, binary
from ..kernels.kernel_form import activated, activation_key
from ..llvm.builder import Code
from ..llvm.flow import call, fold, loop
from ..llvm.values import FLOAT, FLOAT_BYTES, Bytes, Floats, Number
from . import packing
from .bands import Stage
from .image_code import ImageCode, PixelTable, spreads_in_network
from .memory import View
from .movement import blending
from .runs import Steps, in_runs


def emit_activation(image: ImageCode, op: ActivateOp | ConvertOp) -> None:
    """Emit an activation, or a rounding, tile by tile."""
    activation = op.codes.rounding if isinstance(op, ConvertOp) else op.activation
    x = image.memory.views[op.x]
    function = activate(image.code, activation, x.plane.tile)
    image.each_tile(op.result, lambda number, there: call(function, image.tile(x, number), there, x.channels))


def emit_concat(image: ImageCode, op: ConcatOp) -> None:
    """Emit copies of the parts that do not lie in the whole."""
    whole, first = image.memory.views[op.result], 0
    for part in op.parts:
        view = image.memory.views[part]
        there = replace(whole, channels=view.channels, first=whole.first + first)
        if view != there:
            _copy_tiles(image, op, view, there)
        first += view.channels


def _copy_tiles(image: ImageCode, op: ConcatOp, source: View, target: View) -> None:
    copy = activate(image.code, None, source.plane.tile // (FLOAT_BYTES // source.item))

    def tile(number: Number) -> None:
        call(copy, image.tile(source, number), image.tile(target, number), source.channels)

    image.each(image.tiles(target.plane), tile, Stage(op))


def emit_arithmetic(image: ImageCode, op: BinaryOp) -> None:
    """Emit a function of two operands, images or what is spread over their pixels, tile by tile."""
    spreads, channels = spreads_in_network(op), image.memory.views[op.result].channels
    views, width = image.memory.views, image.memory.views[op.result].plane.tile
    (columns,) = {
        views[value].plane.tile for value, spread in zip(op.operands, spreads, strict=True) if spread == "first_column"
    } or {width}
    function = binary(image.code, BinaryForm(op.name, *spreads, width, columns))

    def tile(number: Number, there: Bytes) -> None:
        read = [image.operand(value, spread, number) for value, spread in zip(op.operands, spreads, strict=True)]
        call(function, read, there, channels)

    image.each_tile(op.result, tile)


def _clear(image: ImageCode, result: SSAValue, number: Number) -> None:
    image.clear(result, number, image.tile(image.memory.views[result], number))


def emit_resampling(image: ImageCode, op: Resample2dOp) -> None:
    """Emit the way of pixels to other places, or means of them."""
    source, target = image.memory.views[op.x], image.memory.views[op.result]
    taps = len(op.rows.taps) * len(op.columns.taps)
    if taps == 1:
        steps = Steps.between(source.plane.width, target.plane.width)
        image.copy_pixels(op, packing.resampled_pixels, op.x, target, steps, op.fill.value.data)
        if op.fill.value.data:  # it is at positions without a pixel, too
            clearing = partial(_clear, image, op.result)
            image.each(target.plane.tiles, clearing, Stage(op))
        return
    recipe = partial(packing.resampled_pixels, source.plane, source.tile_values, target.plane)
    arrays = image.arrays((op, "pixels"), recipe, op)

    def tile(number: Number) -> None:
        first = number * target.plane.tile
        tables = [array.cast(Floats).at(first) for array in arrays]
        function = blending(image.code, taps, source.plane.tile, target.plane.tile)
        call(function, image.tile(source, 0), image.tile(target, number), source.channels, tables)

    image.each(target.plane.tiles, tile, Stage(op))


def emit_interleaving(image: ImageCode, op: Interleave2dOp) -> None:
    """Emit the way of channels to the pixels that they become."""
    source, target = image.memory.views[op.x], image.memory.views[op.result]
    recipe = partial(packing.interleaved_pixels, source.plane, source.tile_values, target.plane)
    distance, form = (
        op.channels_of_parts()[0][1] * source.plane.tile,
        image.run_form(Steps(1, op.parts[1]), target.plane),
    )
    room = source.row_values + source.channels * source.plane.tile - target.channels * distance
    arrays = image.arrays((op, "pixels"), partial(in_runs, recipe, form, room), op)

    def tile(number: Number) -> None:
        pixels = PixelTable(image.tile(target, number), arrays, number, form)
        image.move(image.tile(source, 0), distance, pixels, target.channels, 0.0)

    image.each(target.plane.tiles, tile, Stage(op))


def emit_pooling_of_all(image: ImageCode, op: Pool2dOp) -> None:
    """Emit the mean, or the largest, of all positions of each channel, of which those without a pixel are zeros."""
    source, lanes = image.memory.views[op.x], image.code.lanes(image.scratch)
    vectors, largest = source.plane.tile // lanes.width, op.kind.data == "max"
    pixels = image_shape(op.x)[2] * image_shape(op.x)[3]
    outside: list[Bytes] = []
    if largest:
        outside = image.arrays(("outside", source.plane), partial(packing.minus_infinity_outside, source.plane))

    def joined(total: ir.Value, value: ir.Value) -> ir.Value:
        return lanes.max(total, value) if largest else lanes.add(total, value)

    def channel(number: Number) -> None:
        def tile(index: Number, totals: list[ir.Value]) -> list[ir.Value]:
            row = image.tile(source, index, number).cast(Floats)
            values = [lanes.load(row.at(lanes.width * vector)) for vector in range(vectors)]
            for array in outside:
                # minus infinity where no pixel is
                begin = array.cast(Floats).at(index * source.plane.tile)
                added = [lanes.load(begin.at(lanes.width * vector)) for vector in range(vectors)]
                values = [lanes.add(value, more) for value, more in zip(values, added, strict=True)]
            return [joined(total, value) for total, value in zip(totals, values, strict=True)]

        starts = [lanes.splat(float("-inf") if largest else 0.0) for _ in range(vectors)]
        total = reduce(joined, fold(number.constant(source.plane.tiles), starts, tile))
        if largest:
            result = lanes.horizontal_max(total)
        else:
            result = lanes.builder.fdiv(lanes.horizontal_sum(total), ir.Constant(FLOAT, float(pixels)))
        image.store_pixel(op.result, number, result)

    image.each(source.channels, channel)


def adding(code: Code, activation: ActivationAttr | None, tile: int) -> ir.Function:
    """Return `void (left, right, y, features)` for the activation of a sum, on tiles of pixels."""

    @code.kernel(f"adding_{activation_key(activation)}_{tile}")
    def kernel(left: Floats, right: Floats, y: Floats, features: Number) -> None:
        lanes = code.lanes(left)
        with loop(features * tile, lanes.width) as start:
            first, second, there = (operand.at(start) for operand in (left, right, y))
            (result,) = activated(lanes, activation, [lanes.add(lanes.load(first), lanes.load(second))])
            lanes.store(result, there)

    return kernel
