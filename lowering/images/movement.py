"""Moving pixels: between images as ONNX has them and tiles of a plane, and from a plane to another one.

A table says for each position of the target where its pixel is. For all channels, vectors of positions:

    where    table[v .. v + lanes)          -1: no pixel, the fill value goes there
    x        gathered from source + where   for one channel after the other
    target   a whole vector, or the lanes before the end of the image
"""

from collections.abc import Sequence

from llvmlite import ir

from ...kernels.tile_widths import PIXELS
from ..llvm.builder import FLOAT_BYTES, I32, I64, POINTER, Code, counted_loop, float_at, i64
from ..llvm.gather_scatter import gather, load_ints, splat_int
from ..llvm.vectors import FLOAT, Lanes, int_constants


def moving(code: Code, *, whole: bool) -> ir.Function:
    """Return `void (source, source_stride, target, target_stride, table, count, channels, fill)` for a tile of targets.

    Strides are floats between channels. `whole` writes all 64 positions, else only the first `count` are.
    """

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        source, source_stride, target, target_stride, table, count, channels, fill = args
        lanes = code.lanes(builder)
        other = lanes.splat(fill)
        starts = range(0, PIXELS, lanes.width)
        where = [load_ints(lanes, builder.gep(table, [i64(first)], source_etype=I32)) for first in starts]
        is_pixel = [builder.icmp_signed(">=", one, lanes.ints(0)) for one in where]
        safe = [builder.select(one, index, lanes.ints(0)) for one, index in zip(is_pixel, where, strict=True)]
        wanted = [builder.icmp_signed("<", _numbers(lanes, first), _splat(lanes, count)) for first in starts]
        with counted_loop(builder, channels) as channel:
            pixels = float_at(builder, source, builder.mul(channel, source_stride))
            row = float_at(builder, target, builder.mul(channel, target_stride))
            for vector, first in enumerate(starts):
                value = lanes.select(is_pixel[vector], gather(lanes, pixels, safe[vector]), other)
                address = float_at(builder, row, i64(first))
                if whole:
                    lanes.store(value, address, FLOAT_BYTES * lanes.width)
                else:
                    lanes.store_chosen(value, address, wanted[vector])

    types = [POINTER, I64, POINTER, I64, POINTER, I64, I64, FLOAT]
    return code.function(f"move_pixels_{'whole' if whole else 'part'}", types, body)


def blending(code: Code, taps: int) -> ir.Function:
    """Return `void (source, target, channels, tables..., shares...)` for a tile: sums of shares of pixels."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        source, target, channels, *arrays = args
        lanes = code.lanes(builder)
        with counted_loop(builder, channels) as channel:
            start = builder.mul(channel, i64(PIXELS))
            pixels, row = float_at(builder, source, start), float_at(builder, target, start)
            for first in range(0, PIXELS, lanes.width):
                total = lanes.splat(0.0)
                for table, shares in zip(arrays[:taps], arrays[taps:], strict=True):
                    where = load_ints(lanes, builder.gep(table, [i64(first)], source_etype=I32))
                    is_pixel = builder.icmp_signed(">=", where, lanes.ints(0))
                    value = gather(lanes, pixels, builder.select(is_pixel, where, lanes.ints(0)))
                    share = lanes.load(float_at(builder, shares, i64(first)))
                    # what is read for no pixel may be anything
                    total = lanes.fma(share, lanes.select(is_pixel, value, lanes.splat(0.0)), total)
                lanes.store(total, float_at(builder, row, i64(first)), FLOAT_BYTES * lanes.width)

    return code.function(f"blend_pixels_{taps}", [POINTER, POINTER, I64, *[POINTER] * (2 * taps)], body)


def _numbers(lanes: Lanes, first: int) -> ir.Constant:
    return int_constants(range(first, first + lanes.width))


def _splat(lanes: Lanes, count: ir.Value) -> ir.Value:
    return splat_int(lanes, lanes.builder.trunc(count, I32))


def clearing(code: Code) -> ir.Function:
    """Return `void (tile, positions, count, channels)`, which writes zeros to `count` positions of all channels."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        tile, positions, count, channels = args
        with counted_loop(builder, count) as index:
            entry = builder.gep(positions, [index], source_etype=I32)
            position = builder.zext(builder.load(entry, typ=I32), I64)
            column = float_at(builder, tile, position)
            with counted_loop(builder, channels) as channel:
                builder.store(ir.Constant(FLOAT, 0.0), float_at(builder, column, builder.mul(channel, i64(PIXELS))))

    return code.function("clear_positions", [POINTER, POINTER, I64, I64], body)
