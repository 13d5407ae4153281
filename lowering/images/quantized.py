"""Layers of image networks on codes: convolutions, means of all pixels, and the ways in and out.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).

A convolution puts the lines of its windows next to each other, or finds them there, and the kernel of a quantized layer
takes them as 64 rows of a batch. Where its result is not stored as codes, they become floats tile by tile.
"""

from functools import partial

from llvmlite import ir
from xdsl.ir import SSAValue

from ...dialect.attributes.codes import codes_in
from ...dialect.ops.images import Conv2dOp, Pool2dOp, image_shape
from ...dialect.tensors import shape_of
from ...kernels.byte_lookup import LookupForm
from ...kernels.byte_quads import COLUMNS, QUAD, block_quads
from ...kernels.byte_times import FORMS, SCATTERED
from ...kernels.tile_widths import PIXELS
from ..llvm.builder import Code
from ..llvm.flow import call, fold, loop
from ..llvm.intrinsics import call_intrinsic
from ..llvm.values import FLOAT, FLOAT_BYTES, I32, Bytes, Floats, Longs, Number, Value
from ..llvm.vectors import int_constants
from ..quantized.lookup_layer import LayerEnd
from ..quantized.quad_layer import Blocks, quad_layer
from ..quantized.step import WIDE_LANES
from . import packing
from .found_codes import scaled_by_range, to_floats, words_of
from .image_code import ImageCode
from .lines import entering_lines, leaving_lines, load_line
from .memory import OwnRows, View
from .stored_codes import Stored
from .window_layers import Windows


def emit_convolution_on_codes(image: ImageCode, op: Conv2dOp) -> None:
    """Emit for each tile the lines of its windows, and the kernel on them."""
    read, plane, own = Windows.of(image, op, "copy"), image.memory.views[op.result].plane, OwnRows.of(op)
    family = SCATTERED if op.kernel is None else op.kernel.family_at(PIXELS)
    blocks = 1 if op.kernel is None else op.kernel.blocks.get(family, 1)
    form = LookupForm(WIDE_LANES, bytewise=image.code.target.multiplies_bytes)
    output, rounds_sums = codes_in(op.result.type), op.on_codes.rounds_sums
    kind = "values" if output is None else "codes"
    end = LayerEnd(kind, op.activation, shape_of(op.weight)[1], adds=op.finds_codes)
    if output is not None and rounds_sums:
        end = LayerEnd(end.kind, None, end.outputs)
    inputs = Blocks(blocks, block_quads(shape_of(op.weight)[0], blocks))
    kernel = quad_layer(image.code, form, end, inputs, FORMS[family])
    packing_of = partial(packing.packed_quads, FORMS[family], blocks, image.code.target.code_center)
    packed: list[Value] = [*image.arrays((op, "quads"), packing_of, op)]
    if op.finds_codes:
        _, *scaled = scaled_by_range(image, op)
        packed = [*packed[:-3], *scaled, packed[-1]]

    def tile(number: Number, there: Bytes) -> None:
        sums, lines = image.own(own.windows), read.at(number, plane, image.own(0))
        # lines of codes are made in the result's place where it is stored so
        results = image.lines(op.result, there, own.windows + own.sums)
        call(kernel, lines, sums, results, packed)
        if output is None:
            call(sums_in_order(image.code), sums, there, end.outputs)
        else:
            to_floats(image, Stored.of(output), results, there, end.outputs)

    image.each_tile(op.result, tile)


def emit_code_mean(image: ImageCode, op: Pool2dOp) -> None:
    """Emit the mean of all pixels of each channel, floats; positions without a pixel have the code of 0."""
    source, builder = image.memory.views[op.x], image.scratch.builder
    codes, pixels = image.memory.stored.codes[op.x], image_shape(op.x)[2] * image_shape(op.x)[3]
    words, tiles = ir.VectorType(I32, PIXELS), source.plane.tiles

    def channel(number: Number) -> None:
        def tile(index: Number, total: ir.Value) -> ir.Value:
            line = load_line(image.tile(source, index, number))
            return builder.add(total, builder.zext(line, words))

        nothing: ir.Value = ir.Constant(words, [0] * PIXELS)
        sums = fold(number.constant(tiles), nothing, tile)
        total = Number(builder, call_intrinsic(builder, f"llvm.vector.reduce.add.v{PIXELS}i32", I32, [sums]))
        # every position has the zero point once too much, those without a pixel as well
        total = total - codes.zero * PIXELS * tiles
        value = builder.fmul(builder.sitofp(total.value, FLOAT), ir.Constant(FLOAT, codes.scale))
        image.store_pixel(op.result, number, builder.fdiv(value, ir.Constant(FLOAT, float(pixels))))

    image.each(source.channels, channel)


def sums_in_order(code: Code) -> ir.Function:
    """Return `void (sums, y, outputs)`: what unpacking took to other columns, floats, to their places in lines."""

    @code.kernel("sums_in_order")
    def kernel(sums: Floats, y: Floats, outputs: Number) -> None:
        builder, vectors, kind = sums.builder, COLUMNS // WIDE_LANES, ir.VectorType(FLOAT, WIDE_LANES)
        with loop(outputs) as output:
            row = output * COLUMNS
            parts = [sums.at(row + WIDE_LANES * part).load(kind, FLOAT_BYTES) for part in range(vectors)]
            pairs = [_concatenated(builder, *parts[index : index + 2]) for index in (0, 2)]
            whole = _concatenated(builder, *pairs)
            for part in range(vectors):
                # column 16 q + 4 v + j is in lane 4 q + j of vector v
                chosen = [WIDE_LANES * vector + QUAD * part + lane for vector in range(QUAD) for lane in range(QUAD)]
                value = builder.shuffle_vector(whole, whole, int_constants(chosen))
                y.at(row + WIDE_LANES * part).store(value, FLOAT_BYTES)

    return kernel


def _concatenated(builder: ir.IRBuilder, left: ir.Value, right: ir.Value) -> ir.Value:
    assert isinstance(left.type, ir.VectorType)
    size = 2 * len(left.type)
    return builder.shuffle_vector(left, right, int_constants(range(size)))


def emit_entrance(image: ImageCode, value: SSAValue, source: Floats) -> None:
    """Emit the codes of an image that comes in."""
    view = image.memory.views[value]
    codes, (_, channels, height, width) = image.memory.stored.codes[value], image_shape(value)
    firsts, places, _ = _places(image, view)
    words = words_of(image, value, codes)
    (bits,) = image.arrays(("pixels", view.plane), partial(packing.pixel_bits, view.plane))

    def tile(number: Number) -> None:
        first, count = _span(firsts, number)
        pixels = source.at(first), height * width, image.tile(view, number), count
        tables = places.at(number * PIXELS), bits.cast(Longs).at(number)
        call(entering_lines(image.code), pixels, tables, words.bounds, words.zero, channels)

    image.each(view.plane.tiles, tile)


def emit_exit(image: ImageCode, value: SSAValue, target: Floats) -> None:
    """Emit the floats of an image that leaves."""
    view = image.memory.views[value]
    codes, (_, channels, height, width) = image.memory.stored.codes[value], image_shape(value)
    firsts, _, places = _places(image, view)

    def tile(number: Number) -> None:
        first, count = _span(firsts, number)
        pixels = image.tile(view, number), target.at(first), height * width, count
        call(leaving_lines(image.code), pixels, places.at(number * PIXELS), codes.constants, channels)

    image.each(view.plane.tiles, tile)


def _places(image: ImageCode, view: View) -> list[Bytes]:
    return image.arrays(("places", view.plane), partial(packing.pixel_places, view.plane))


def _span(firsts: Bytes, number: Number) -> tuple[Number, Number]:
    """Return the first pixel of a tile, and how many it has."""
    entry = firsts.cast(Longs).at(number)
    first = entry[0]
    return first, entry[1] - first
