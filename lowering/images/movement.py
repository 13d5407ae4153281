"""Moving pixels: between images as ONNX has them and tiles of a plane, and from a plane to another one.

A table says for each position of the target where its pixel is. For all channels, vectors of positions:

    where    table[v .. v + lanes)          -1: no pixel, the fill value goes there
    x        gathered from source + where   for one channel after the other
    target   a whole vector, or the lanes before the end of the image
"""

from collections.abc import Iterable
from typing import NamedTuple

from llvmlite import ir

from ...kernels.tile_widths import PIXELS
from ..llvm.builder import Code
from ..llvm.flow import loop
from ..llvm.gather_scatter import gather, load_ints
from ..llvm.values import FLOAT, Floats, Ints, Number
from ..llvm.vectors import Lanes


class Places(NamedTuple):
    """The positions of a vector that have pixels, and the place of each: that of the first one for others."""

    is_pixel: ir.Value
    number: ir.Value


def pixels_at(lanes: Lanes, table: Ints, firsts: Iterable[int]) -> list[Places]:
    """Return the places of vectors that begin at some positions of a table."""
    where = [load_ints(lanes, table.at(first)) for first in firsts]
    is_pixel = [lanes.builder.icmp_signed(">=", one, lanes.ints(0)) for one in where]
    safe = [lanes.builder.select(one, place, lanes.ints(0)) for one, place in zip(is_pixel, where, strict=True)]
    return [Places(*place) for place in zip(is_pixel, safe, strict=True)]


def leaving(code: Code, tile: int = PIXELS) -> ir.Function:
    """Return `void (source, target, target_stride, table, count, channels)`: the first pixels of a tile leave a plane.

    The stride is floats between channels; positions of a channel of the source are a `tile`.
    """

    @code.kernel(f"leave_plane_{tile}")
    def kernel(
        source: Floats, target: Floats, target_stride: Number, table: Ints, count: Number, channels: Number
    ) -> None:
        lanes = code.lanes(source)
        starts = range(0, tile, lanes.width)
        places = pixels_at(lanes, table, starts)
        wanted = [lanes.below(count, first) for first in starts]
        with loop(channels) as channel:
            pixels, row = source.at(channel * tile), target.at(channel * target_stride)
            for vector, first in enumerate(starts):
                lanes.store_chosen(gather(lanes, pixels, places[vector].number), row.at(first), wanted[vector])

    return kernel


def blending(code: Code, taps: int, source_tile: int = PIXELS, target_tile: int = PIXELS) -> ir.Function:
    """Return `void (source, target, channels, tables..., shares...)` for a tile: sums of shares of pixels.

    Tiles of the source have `source_tile` positions, the other one `target_tile`.
    """

    @code.kernel(f"blend_pixels_{taps}_{source_tile}_{target_tile}", rest=2 * taps)
    def kernel(source: Floats, target: Floats, channels: Number, *arrays: Floats) -> None:
        lanes = code.lanes(source)
        tables, shares = [table.cast(Ints) for table in arrays[:taps]], arrays[taps:]
        with loop(channels) as channel:
            pixels, row = source.at(channel * source_tile), target.at(channel * target_tile)
            for first in range(0, target_tile, lanes.width):
                total = lanes.splat(0.0)
                for table, factors in zip(tables, shares, strict=True):
                    (place,) = pixels_at(lanes, table, [first])
                    value = gather(lanes, pixels, place.number)
                    share = lanes.load(factors.at(first))
                    # what is read for no pixel may be anything
                    total = lanes.fma(share, lanes.select(place.is_pixel, value, lanes.splat(0.0)), total)
                lanes.store(total, row.at(first), lanes.size)

    return kernel


def clearing(code: Code, size: int = PIXELS) -> ir.Function:
    """Return `void (tile, positions, count, channels)`, which writes zeros to `count` positions of all channels.

    The tile has `size` positions.
    """

    @code.kernel(f"clear_positions_{size}")
    def kernel(tile: Floats, positions: Ints, count: Number, channels: Number) -> None:
        with loop(count) as index:
            column = tile.at(positions[index])
            with loop(channels) as channel:
                column[channel * size] = ir.Constant(FLOAT, 0.0)

    return kernel
