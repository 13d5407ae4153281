"""The tiles of one width into which rows are cut, as code: `kernels.tile_widths.tiles_of` says it in Python."""

from typing import NamedTuple

from ..llvm.flow import select
from ..llvm.values import Number


class RowTiles(NamedTuple):
    """Tiles of one width: how many, and the rows in all of them; the last one may be padded."""

    number: Number
    rows: Number


def tiles_of_width(rows: Number, width: Number | int, least: Number | int) -> RowTiles:
    """Return the tiles that are made of some rows while at least `least` are left."""
    whole, rest = rows // width, rows % width
    is_padded = rest >= least
    done = select(is_padded, rows, rows - rest)
    return RowTiles(whole + is_padded.number(), done)
