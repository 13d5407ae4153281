"""The tiles of one width into which rows are cut, as code: `kernels.tile_widths.tiles_of` says it in Python."""

from typing import NamedTuple

from llvmlite import ir

from ..llvm.builder import I64


class RowTiles(NamedTuple):
    """Tiles of one width: how many, and the rows in all of them; the last one may be padded."""

    number: ir.Value
    rows: ir.Value


def tiles_of_width(builder: ir.IRBuilder, rows: ir.Value, width: ir.Value, least: ir.Value) -> RowTiles:
    """Return the tiles that are made of some rows while at least `least` are left."""
    whole, rest = builder.udiv(rows, width), builder.urem(rows, width)
    is_padded = builder.icmp_signed(">=", rest, least)
    done = builder.select(is_padded, rows, builder.sub(rows, rest))
    return RowTiles(builder.add(whole, builder.zext(is_padded, I64)), done)
