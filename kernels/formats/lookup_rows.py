"""`lookup_rows`: the panels of `permute_lookup`, for several rows of activations at a time.

A layer that is used for one row, and for several, is packed once.
"""

from typing import Final

from ..family import KernelFamily
from ..work import Layer, Tile, Work
from . import permute_lookup

AT_ONCE: Final = 6
"""Rows that share a reading of indices and weights: the sums and tables of so many fit the registers."""

PASS_ROWS: Final = 2 * AT_ONCE
"""Rows that go through a panel before the next one: so many in transposed order fit the second-level cache."""

WIDTHS: Final = (2, 3, 4, 5, 6, 9, 12)
"""Rows of its tiles, at most: for more of them tiles of columns were measured to take as long, or less."""


def blocks_of(rows: int) -> int:
    """Return the number of blocks of up to `AT_ONCE` rows into which some rows are cut."""
    passes, left = divmod(rows, PASS_ROWS)
    return passes * (PASS_ROWS // AT_ONCE) + -(-left // AT_ONCE)


def work(layer: Layer, tile: Tile) -> Work:
    """Return the work for inputs that are transposed, steps of all blocks of rows, and of rows, gathers, panels.

    The last three are of all rows; a step is one for 32 outputs.
    """
    once, rows = permute_lookup.work(layer, tile), tile.width
    transposed, steps, gathers, panels = once.units
    units = (transposed * rows, steps * blocks_of(rows), steps * rows, gathers * rows, panels * rows)
    return Work(units, once.stream_bytes, -(-rows // PASS_ROWS))


FAMILY = KernelFamily(
    "lookup_rows",
    permute_lookup.pack,
    work,
    WIDTHS,
    lanes=(16,),
    packed_as=permute_lookup.FAMILY.name,
    row_major=True,
)
