"""Kernel families that a number of rows meets, of those that were chosen by the width of the tile."""

from collections.abc import Mapping

from redpebble.kernels.tile_widths import least_rows, tiles_of


def families_at(families: Mapping[int, str], us: Mapping[int, float], rows: int) -> set[str]:
    """Return the families of the tiles that rows are cut into.

    `families` are those from each width on, `us` the microseconds of a tile of each width.
    """
    tiles = tiles_of(least_rows(dict(sorted(us.items()))), rows)
    return {families[max(start for start in families if start <= tile.width)] for tile in tiles}
