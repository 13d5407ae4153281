"""Layers of image networks on codes: convolutions, poolings, and the ways in and out.

A convolution puts the lines of its windows next to each other, or finds them there, and the kernel of a quantized layer
takes them as 64 rows of a batch. Where its result is not stored as codes, they become floats tile by tile.
"""

from collections.abc import Sequence
from functools import partial

from llvmlite import ir
from xdsl.ir import SSAValue

from ...dialect.ops.images import Pool2dOp, QuantizedConv2dOp, image_shape
from ...dialect.semantics.quantized import rounds_sums
from ...dialect.tensors import shape_of
from ...kernels.byte_lookup import LookupForm
from ...kernels.byte_quads import COLUMNS, QUAD, block_quads
from ...kernels.byte_times import FORMS, SCATTERED
from ...kernels.tile_widths import PIXELS
from ..llvm.builder import (
    BYTE,
    FLOAT_BYTES,
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
from ..llvm.intrinsics import call_intrinsic
from ..llvm.values import Bytes
from ..llvm.vectors import FLOAT, int_constants
from ..quantized.byte_lanes import multiplies_bytes
from ..quantized.lookup_layer import LayerEnd
from ..quantized.quad_layer import Blocks, quad_layer
from ..quantized.step import WIDE_LANES
from . import line_packing, packing
from .found_codes import CodeWords, outside_of, scaled_by_range, words_of
from .geometry import Phases
from .image_code import ImageCode
from .lines import (
    LineWindows,
    copying_lines,
    entering_lines,
    leaving_lines,
    line_windows,
    lines_to_floats,
    load_line,
    rounding_pixels,
)
from .memory import OwnRows, View, needs_phases
from .stored_codes import Stored


def emit_quantized_convolution(image: ImageCode, op: QuantizedConv2dOp) -> None:
    """Emit for each tile the lines of its windows, and the kernel on them."""
    phases, codes = Phases.of(op.window), Stored.of(op.codes)
    source, target, builder = _source(image, op, codes), image.memory.views[op.result], image.builder
    own, is_stored = OwnRows.of(op), op.result in image.memory.stored.codes
    family = SCATTERED if op.kernel is None else op.kernel.family_at(PIXELS)
    blocks = 1 if op.kernel is None else op.kernel.blocks.get(family, 1)
    form = LookupForm(WIDE_LANES, bytewise=multiplies_bytes(image.code.target))
    kind = "values" if op.output is None else "codes"
    end = LayerEnd(kind, op.activation, shape_of(op.weight)[1], adds=op.codes.is_dynamic)
    if op.output is not None and rounds_sums(op.layer):
        end = LayerEnd(end.kind, None, end.outputs)
    inputs = Blocks(blocks, block_quads(shape_of(op.weight)[0], blocks))
    kernel = quad_layer(image.code, form, end, inputs, FORMS[family])
    packed = image.arrays((op, "quads"), partial(line_packing.packed_quads, FORMS[family], blocks), op)
    if op.codes.is_dynamic:
        _, *scaled = scaled_by_range(image, op)
        packed = [*packed[:-3], *scaled, packed[-1]]
    outside = words_of(image, op.x, codes).outside
    is_direct = phases.reads_tiles(source.plane, target.plane)

    def tile(number: ir.Value) -> None:
        lines, sums = image.own(0), image.own(own.windows)
        if is_direct:
            lines = image.tile(source, number)
        else:
            _call_windows(image, _windows(op, source, phases), (source, number, outside), lines)
        there, outputs = image.tile(target, number), i64(end.outputs)
        results = there if is_stored else image.own(own.windows + own.sums)
        builder.call(kernel, [lines, sums, results, *packed])
        if op.output is None:
            builder.call(sums_in_order(image.code), [sums, there, outputs])
        elif not is_stored:
            _call_to_floats(image, Stored.of(op.output), results, there, outputs)
        image.clear(op.result, number, there)

    image.each(target.plane.tiles, tile)


def _call_to_floats(image: ImageCode, codes: Stored, lines: ir.Value, there: ir.Value, channels: ir.Value) -> None:
    arguments = [lines, there, ir.Constant(FLOAT, codes.scale), ir.Constant(I32, codes.zero), channels]
    image.builder.call(lines_to_floats(image.code), arguments)


def _source(image: ImageCode, op: QuantizedConv2dOp | Pool2dOp, codes: Stored, fill: int | None = None) -> View:
    """Return the lines that the windows of an op read, copied before where they are not those of the value itself."""
    if not needs_phases(op, image.memory.stored):
        return image.memory.views[op.x]
    target, source, builder = image.memory.phases[op], image.memory.views[op.x], image.builder
    words = words_of(image, op.x, codes)
    nothing = words.zero if fill is None else ir.Constant(BYTE, fill)
    if op.x not in image.memory.stored.codes:
        _round_pixels(image, op, (source, target), words)
        image.meet()
        return target
    arrays = image.arrays((op, "lines"), partial(line_packing.phase_lines, source.plane, target.plane), op)
    first, tile_bytes = image.tile(source, i64(0)), i64(source.tile_values)

    def tile(number: ir.Value) -> None:
        for part in range(target.channels // source.channels):
            starts, tiles, places, bits = arrays[4 * part : 4 * (part + 1)]
            begin, end = (
                builder.load(builder.gep(starts, [builder.add(number, i64(more))], source_etype=I64), typ=I64)
                for more in (0, 1)
            )
            there = image.tile(target, number, i64(part * source.channels))
            arguments = [first, tile_bytes, there, begin, end, tiles, places, bits, nothing, i64(source.channels)]
            builder.call(copying_lines(image.code), arguments)

    image.each(target.plane.tiles, tile)
    image.meet()
    return target


def _round_pixels(
    image: ImageCode, op: QuantizedConv2dOp | Pool2dOp, views: tuple[View, View], words: CodeWords
) -> None:
    """Emit the codes of pixels of floats, in the phases that an op reads."""
    (source, target), builder = views, image.builder
    recipe = partial(packing.phase_pixels, source.plane, source.tile_values, target.plane)
    tables = image.arrays((op, "pixels"), recipe, op)

    def tile(number: ir.Value) -> None:
        for part, table in enumerate(tables):
            there = image.tile(target, number, i64(part * source.channels))
            entries = float_at(builder, table, builder.mul(number, i64(PIXELS)))
            arguments = [image.tile(source, i64(0)), i64(PIXELS), there, entries, words.bounds]
            arguments += [words.zero, i64(source.channels)]
            builder.call(rounding_pixels(image.code), arguments)

    image.each(target.plane.tiles, tile)


def _windows(op: QuantizedConv2dOp | Pool2dOp, source: View, phases: Phases) -> LineWindows:
    work = "largest" if isinstance(op, Pool2dOp) else "copy"
    return LineWindows(phases.taps, source.plane.pitch, shape_of(op.x)[1], source.tile_values, work)


def _call_windows(
    image: ImageCode, form: LineWindows, source: tuple[View, ir.Value, ir.Value], target: ir.Value
) -> None:
    """Emit the windows of a tile: what they read, the tile's number, the line outside; where they go."""
    view, number, outside = source
    arguments = [image.tile(view, number), number, i64(view.plane.tiles), outside, target, i64(form.channels)]
    image.builder.call(line_windows(image.code, form), arguments)


def emit_code_pooling(image: ImageCode, op: Pool2dOp) -> None:
    """Emit the largest codes of windows."""
    codes = image.memory.stored.codes[op.x]
    source, target = _source(image, op, codes, fill=0), image.memory.views[op.result]
    form, is_stored = _windows(op, source, Phases.of(op.window)), op.result in image.memory.stored.codes
    outside = outside_of(image, 0)

    def tile(number: ir.Value) -> None:
        there = image.tile(target, number)
        lines = there if is_stored else image.own(0)
        _call_windows(image, form, (source, number, outside), lines)
        if not is_stored:
            _call_to_floats(image, codes, lines, there, i64(target.channels))
        image.clear(op.result, number, there)

    image.each(target.plane.tiles, tile)


def emit_code_mean(image: ImageCode, op: Pool2dOp) -> None:
    """Emit the mean of all pixels of each channel, floats; positions without a pixel have the code of 0."""
    source, builder = image.memory.views[op.x], image.builder
    codes, pixels = image.memory.stored.codes[op.x], image_shape(op.x)[2] * image_shape(op.x)[3]
    words, tiles = ir.VectorType(I32, PIXELS), source.plane.tiles

    def channel(number: ir.Value) -> None:
        def tile(index: ir.Value, totals: Sequence[ir.Value]) -> list[ir.Value]:
            line = load_line(Bytes(builder, image.tile(source, index, number)))
            return [builder.add(totals[0], builder.zext(line, words))]

        (sums,) = reduce_loop(builder, i64(tiles), [ir.Constant(words, [0] * PIXELS)], tile)
        total = call_intrinsic(builder, f"llvm.vector.reduce.add.v{PIXELS}i32", I32, [sums])
        total = builder.sub(total, ir.Constant(I32, codes.zero * PIXELS * tiles))
        value = builder.fmul(builder.sitofp(total, FLOAT), ir.Constant(FLOAT, codes.scale))
        image.store_pixel(op.result, number, builder.fdiv(value, ir.Constant(FLOAT, float(pixels))))

    image.each(source.channels, channel)


def sums_in_order(code: Code) -> ir.Function:
    """Return `void (sums, y, outputs)`: what unpacking took to other columns, floats, to their places in lines."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        sums, y, outputs = args
        vectors, width = COLUMNS // WIDE_LANES, ir.VectorType(FLOAT, WIDE_LANES)
        with counted_loop(builder, outputs) as output:
            row = builder.mul(output, i64(COLUMNS))
            parts = [
                builder.load(
                    float_at(builder, sums, builder.add(row, i64(WIDE_LANES * part))), align=FLOAT_BYTES, typ=width
                )
                for part in range(vectors)
            ]
            pairs = [_concatenated(builder, *parts[index : index + 2]) for index in (0, 2)]
            whole = _concatenated(builder, *pairs)
            for part in range(vectors):
                # column 16 q + 4 v + j is in lane 4 q + j of vector v
                chosen = [WIDE_LANES * vector + QUAD * part + lane for vector in range(QUAD) for lane in range(QUAD)]
                value = builder.shuffle_vector(whole, whole, int_constants(chosen))
                place = builder.add(row, i64(WIDE_LANES * part))
                builder.store(value, float_at(builder, y, place), align=FLOAT_BYTES)

    return code.function("sums_in_order", [POINTER, POINTER, I64], body)


def _concatenated(builder: ir.IRBuilder, left: ir.Value, right: ir.Value) -> ir.Value:
    assert isinstance(left.type, ir.VectorType)
    size = 2 * len(left.type)
    return builder.shuffle_vector(left, right, int_constants(range(size)))


def emit_entrance(image: ImageCode, value: SSAValue, source: ir.Value) -> None:
    """Emit the codes of an image that comes in."""
    view, builder = image.memory.views[value], image.builder
    codes, (_, channels, height, width) = image.memory.stored.codes[value], image_shape(value)
    firsts, places, _ = _places(image, view)
    words = words_of(image, value, codes)
    (bits,) = image.arrays(("pixels", view.plane), partial(line_packing.pixel_bits, view.plane))

    def tile(number: ir.Value) -> None:
        first, count = _span(builder, firsts, number)
        arguments = [float_at(builder, source, first), i64(height * width), image.tile(view, number), count]
        arguments += [byte_at(builder, places, builder.mul(number, i64(PIXELS)))]
        arguments += [builder.gep(bits, [number], source_etype=I64), words.bounds]
        builder.call(entering_lines(image.code), [*arguments, words.zero, i64(channels)])

    image.each(view.plane.tiles, tile)


def emit_exit(image: ImageCode, value: SSAValue, target: ir.Value) -> None:
    """Emit the floats of an image that leaves."""
    view, builder = image.memory.views[value], image.builder
    codes, (_, channels, height, width) = image.memory.stored.codes[value], image_shape(value)
    firsts, _, places = _places(image, view)

    def tile(number: ir.Value) -> None:
        first, count = _span(builder, firsts, number)
        arguments = [image.tile(view, number), float_at(builder, target, first), i64(height * width), count]
        arguments += [byte_at(builder, places, builder.mul(number, i64(PIXELS)))]
        arguments += [ir.Constant(FLOAT, codes.scale), ir.Constant(I32, codes.zero), i64(channels)]
        builder.call(leaving_lines(image.code), arguments)

    image.each(view.plane.tiles, tile)


def _places(image: ImageCode, view: View) -> list[ir.Value]:
    return image.arrays(("places", view.plane), partial(line_packing.pixel_places, view.plane))


def _span(builder: ir.IRBuilder, firsts: ir.Value, number: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the first pixel of a tile, and how many it has."""
    entry = builder.gep(firsts, [number], source_etype=I64)
    first = builder.load(entry, typ=I64)
    return first, builder.sub(builder.load(builder.gep(entry, [i64(1)], source_etype=I64), typ=I64), first)
