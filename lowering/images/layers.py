"""Layers of images without windows: elementwise work, channels next to each other, the mean of all pixels."""

from collections.abc import Sequence

from llvmlite import ir
from xdsl.ir import SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.images import Pool2dOp
from redpebble.dialect.ops.movement import ConcatOp
from redpebble.dialect.tensors import shape_of
from redpebble.kernels.tile_widths import PIXELS
from redpebble.lowering.images.image_code import ImageCode
from redpebble.lowering.images.memory import View
from redpebble.lowering.kernels.elementwise import activate
from redpebble.lowering.kernels.kernel_form import activated, activation_key
from redpebble.lowering.llvm.builder import I64, POINTER, Code, counted_loop, float_at, i64, reduce_loop
from redpebble.lowering.llvm.vectors import FLOAT


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
        there = View(whole.plane, whole.start, view.channels, whole.all_channels, whole.first + first)
        if view != there:
            _copy_tiles(image, view, there)
            copied = True
        first += view.channels
    return copied


def _copy_tiles(image: ImageCode, source: View, target: View) -> None:
    copy = activate(image.code, None, PIXELS)

    def tile(number: ir.Value) -> None:
        addresses = [image.tile(source, number), image.tile(target, number)]
        image.builder.call(copy, [*addresses, i64(source.channels)])

    image.each(target.plane.tiles, tile)


def emit_mean_of_all(image: ImageCode, op: Pool2dOp) -> None:
    """Emit the sum of all positions of each channel, of which those without a pixel are zeros."""
    source, target, builder = image.memory.views[op.x], image.memory.views[op.result], image.builder
    lanes, pixels = image.code.lanes(builder), shape_of(op.x)[2] * shape_of(op.x)[3]

    def channel(number: ir.Value) -> None:
        def tile(index: ir.Value, sums: Sequence[ir.Value]) -> Sequence[ir.Value]:
            row = image.tile(source, index, number)
            values = [lanes.load(float_at(builder, row, i64(first))) for first in range(0, PIXELS, lanes.width)]
            return [lanes.add(total, value) for total, value in zip(sums, values, strict=True)]

        starts = [lanes.splat(0.0) for _ in range(0, PIXELS, lanes.width)]
        sums = reduce_loop(builder, i64(source.plane.tiles), starts, tile)
        total = sums[0]
        for other in sums[1:]:
            total = lanes.add(total, other)
        mean = builder.fdiv(lanes.horizontal_sum(total), ir.Constant(FLOAT, float(pixels)))
        builder.store(mean, image.tile(target, i64(0), number))

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
