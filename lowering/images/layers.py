"""Layers of images without windows: elementwise work, channels next to each other, the mean of all pixels."""

from collections.abc import Sequence
from functools import partial, reduce

from llvmlite import ir
from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.elementwise import BinaryOp
from ...dialect.ops.images import Pool2dOp, Resample2dOp, Spread, image_shape, spreads_of
from ...dialect.ops.movement import ConcatOp
from ...kernels.tile_widths import PIXELS
from ..kernels.elementwise import BinaryForm, activate, binary
from ..kernels.kernel_form import activated, activation_key
from ..llvm.builder import FLOAT_BYTES, I64, POINTER, Code, counted_loop, float_at, i64, reduce_loop
from ..llvm.call_tables import values_of_constant
from ..llvm.vectors import FLOAT
from . import packing
from .image_code import ImageCode
from .memory import View
from .movement import blending


def emit_elementwise(image: ImageCode, function: ir.Function, operands: Sequence[SSAValue], result: SSAValue) -> None:
    """Emit a function of operands and result, tile by tile."""
    views = [image.memory.views[value] for value in (*operands, result)]

    def tile(number: ir.Value) -> None:
        addresses = [image.tile(view, number) for view in views]
        image.builder.call(function, [*addresses, i64(views[-1].channels)])
        image.clear(result, number, addresses[-1])

    image.each(views[-1].plane.tiles, tile)


def emit_concat(image: ImageCode, op: ConcatOp) -> bool:
    """Emit copies of the parts that do not lie in the whole; return whether there were any."""
    whole, first, copied = image.memory.views[op.result], 0, False
    for part in op.parts:
        view = image.memory.views[part]
        there = View(whole.plane, whole.start, view.channels, whole.all_channels, whole.first + first, whole.item)
        if view != there:
            _copy_tiles(image, view, there)
            copied = True
        first += view.channels
    return copied


def _copy_tiles(image: ImageCode, source: View, target: View) -> None:
    copy = activate(image.code, None, PIXELS // (FLOAT_BYTES // source.item))

    def tile(number: ir.Value) -> None:
        addresses = [image.tile(source, number), image.tile(target, number)]
        image.builder.call(copy, [*addresses, i64(source.channels)])

    image.each(target.plane.tiles, tile)


def emit_arithmetic(image: ImageCode, op: BinaryOp) -> None:
    """Emit a function of two operands, images or what is spread over their pixels, tile by tile.

    Raises:
        ValueError: an operand is neither.
    """
    spreads = spreads_of(op)
    if spreads is None:
        raise ValueError(f"{op.name} inside a pebble.image_network has operands that are no images")
    function = binary(image.code, BinaryForm(op.name, *spreads, PIXELS))
    target = image.memory.views[op.result]

    def operand(value: SSAValue, spread: Spread, number: ir.Value) -> ir.Value:
        if spread == "tile":
            return image.tile(image.memory.views[value], number)
        if spread == "first_column":
            return image.tile(image.memory.views[value], i64(0))
        owner = value.owner if isinstance(value.owner, Operation) else None
        (constant,) = image.arrays((value, "values"), values_of_constant, owner)
        return constant

    def tile(number: ir.Value) -> None:
        read = [operand(value, spread, number) for value, spread in zip((op.left, op.right), spreads, strict=True)]
        there = image.tile(target, number)
        image.builder.call(function, [*read, there, i64(target.channels)])
        image.clear(op.result, number, there)

    image.each(target.plane.tiles, tile)


def emit_resampling(image: ImageCode, op: Resample2dOp) -> None:
    """Emit the way of pixels to other places, or means of them."""
    source, target = image.memory.views[op.x], image.memory.views[op.result]
    taps = len(op.rows.taps) * len(op.columns.taps)
    if taps == 1:
        image.copy_pixels(op, packing.resampled_pixels, op.x, target, op.fill.value.data)
        if op.fill.value.data:  # it is at positions without a pixel, too
            image.each(target.plane.tiles, lambda number: image.clear(op.result, number, image.tile(target, number)))
        return
    recipe = partial(packing.resampled_pixels, source.plane, source.tile_values, target.plane)
    arrays = image.arrays((op, "pixels"), recipe, op)

    def tile(number: ir.Value) -> None:
        first = image.builder.mul(number, i64(PIXELS))
        tables = [float_at(image.builder, array, first) for array in arrays]
        arguments = [image.tile(source, i64(0)), image.tile(target, number), i64(source.channels), *tables]
        image.builder.call(blending(image.code, taps), arguments)

    image.each(target.plane.tiles, tile)


def emit_pooling_of_all(image: ImageCode, op: Pool2dOp) -> None:
    """Emit the mean, or the largest, of all positions of each channel, of which those without a pixel are zeros."""
    source, builder = image.memory.views[op.x], image.builder
    lanes, pixels = image.code.lanes(builder), image_shape(op.x)[2] * image_shape(op.x)[3]
    firsts, largest = range(0, PIXELS, lanes.width), op.kind.data == "max"
    outside: list[ir.Value] = []
    if largest:
        outside = image.arrays(("outside", source.plane), partial(packing.minus_infinity_outside, source.plane))

    def joined(total: ir.Value, value: ir.Value) -> ir.Value:
        return lanes.max(total, value) if largest else lanes.add(total, value)

    def channel(number: ir.Value) -> None:
        def tile(index: ir.Value, totals: Sequence[ir.Value]) -> Sequence[ir.Value]:
            row = image.tile(source, index, number)
            values = [lanes.load(float_at(builder, row, i64(first))) for first in firsts]
            for array in outside:
                begin = float_at(builder, array, builder.mul(index, i64(PIXELS)))
                added = [lanes.load(float_at(builder, begin, i64(first))) for first in firsts]
                values = [lanes.add(value, more) for value, more in zip(values, added, strict=True)]
            return [joined(total, value) for total, value in zip(totals, values, strict=True)]

        starts = [lanes.splat(float("-inf") if largest else 0.0) for _ in firsts]
        totals = reduce_loop(builder, i64(source.plane.tiles), starts, tile)
        total = reduce(joined, totals)
        if largest:
            result = lanes.horizontal_max(total)
        else:
            result = builder.fdiv(lanes.horizontal_sum(total), ir.Constant(FLOAT, float(pixels)))
        image.store_pixel(op.result, number, result)

    image.each(source.channels, channel)


def adding(code: Code, activation: ActivationAttr | None) -> ir.Function:
    """Return `void (left, right, y, features)` for the activation of a sum, on tiles of pixels."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        left, right, y, features = args
        lanes = code.lanes(builder)
        with counted_loop(builder, builder.mul(features, i64(PIXELS)), lanes.width) as start:
            first, second, there = (float_at(builder, operand, start) for operand in (left, right, y))
            (result,) = activated(lanes, activation, [lanes.add(lanes.load(first), lanes.load(second))])
            lanes.store(result, there)

    return code.function(f"adding_{activation_key(activation)}", [POINTER, POINTER, POINTER, I64], body)
