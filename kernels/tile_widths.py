"""Widths of tiles, and which of them rows are cut into: the widest first, as long as enough rows are left for it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

WIDTHS: Final = (1, 8, 16, 32, 48, 64)
"""Tile widths in batch columns for which there are kernels of all kinds."""

PIXELS: Final = WIDTHS[-1]
"""Pixels of a tile of an image: its batch columns."""

IMAGE_TILES: Final = (8, 16, 32, 48, PIXELS)
"""Pixels of a tile of a small image, which would leave much of a wide one empty: a vector or more of the machine."""

OPEN_TILES: Final = (8, 16, PIXELS)
"""The same of an image of one row, where the length is known at the call, which takes the one that suits."""

BYTE_ROWS: Final = 64
"""Rows of a tile of codes, or fewer: what they read of a layer is read once for all of them."""

BYTE_WIDTHS: Final = (1, 8, BYTE_ROWS)
"""Rows of codes for which there are times; code takes any number of them."""

REPLACING: Final = 48
"""Three vectors of 16 floats: in place of a wider tile where panels of eight rows like it best, else beside it."""

ANY_ROWS_WIDTHS: Final = (2, 3, 4, 5, 6, 9, 12, 20, 24, 36, 40, 56, 72, 96, 108, 144)
"""Further tile widths, for kernels that compute as many columns as there are rows."""

TILE_WIDTHS: Final = tuple(sorted((*WIDTHS, *ANY_ROWS_WIDTHS)))

MIXED: Final = 1.15
"""Time of tiles of different widths over the sum of what each takes alone: often their kernels read other weights."""


WORTH_REPEATING: Final = 0.9
"""Time of narrow tiles over that of a wide one from which on the wide one is there, too: each reads all weights again,
and one that is predicted to be as fast was measured to take 1.5 times as long."""


class Tiles(NamedTuple):
    """Tiles of one width: how many, and the rows in all of them; the last one may be padded."""

    width: int
    number: int
    rows: int


def image_tiles(height: int, width: int, tile: int = PIXELS) -> int:
    """Return the tiles of an image, about: rows have room for a pad, unless a tile holds whole ones, or all."""
    is_whole = min(height, width) == 1 or tile % width == 0 or height * width <= tile
    return -(-height * (width if is_whole else width + 1) // tile)


def image_widths(tiles: Callable[[int], int], lanes: int) -> list[int]:
    """Return the pixels that tiles of an image may have: fewer where that leaves fewer places empty.

    A tile has a vector of so many lanes or more; `tiles` says how many there are of a width.
    """
    places = PIXELS * tiles(PIXELS)
    return [*(one for one in IMAGE_TILES if lanes <= one < PIXELS and one * tiles(one) < places), PIXELS]


def open_tiles(lanes: int) -> list[int]:
    """Return the pixels that tiles of a row of any length may have on a machine of so many lanes, ascending."""
    return [tile for tile in OPEN_TILES if tile >= lanes]


def tiles_of(least: Mapping[int, int], rows: int) -> Sequence[Tiles]:
    """Return the tiles into which `rows` are cut, the widest first, given the least rows of a tile of each width."""
    return _cut(tuple(sorted(least.items(), reverse=True)), rows)


def all_tiles_of(least: Mapping[int, int], counts: Sequence[int]) -> Mapping[int, Sequence[Tiles]]:
    """Return the same for several numbers of rows; the many layers of a network share few answers."""
    return _all_cut(tuple(sorted(least.items(), reverse=True)), tuple(counts))


@lru_cache(maxsize=64)
def _all_cut(least: tuple[tuple[int, int], ...], counts: tuple[int, ...]) -> Mapping[int, Sequence[Tiles]]:
    return MappingProxyType({rows: _cut(least, rows) for rows in counts})


def _cut(least: tuple[tuple[int, int], ...], rows: int) -> Sequence[Tiles]:
    tiles: list[Tiles] = []
    for width, fewest in least:
        whole, left = divmod(rows, width)
        number = whole + (left >= fewest)
        if number:
            tiles.append(Tiles(width, number, min(rows, number * width)))
            rows -= tiles[-1].rows
    return tiles


def least_rows(time_of_width: Mapping[int, float]) -> dict[int, int]:
    """Return the rows from which a tile of each width is used, given the microseconds of a tile by ascending width.

    A wider tile is used as soon as it takes no longer than the narrower ones into which the rows would be cut.
    """
    return dict(_least_rows(tuple(time_of_width.items())))


@lru_cache(maxsize=256)
def _least_rows(times_of_widths: tuple[tuple[int, float], ...]) -> Mapping[int, int]:
    """Return the same of pairs; layers that are alike have the same times."""
    time_of_width = dict(times_of_widths)
    widest = max(time_of_width)
    least: dict[int, int] = {}
    # of so many rows: the time of their tiles, and the width of these, 0 where they have several
    times, width_of = [0.0] + widest * [float("inf")], (widest + 1) * [0]
    for width, time in time_of_width.items():
        limits = ((1.0 if one else MIXED) * limit for limit, one in zip(times[1:width], width_of[1:], strict=False))
        least[width] = next((rows for rows, limit in enumerate(limits, 1) if time <= limit), width) if least else 1
        for rows in range(least[width], widest + 1):
            rest = max(0, rows - width)
            times[rows] = time + times[rest]
            width_of[rows] = width if not rest or width_of[rest] == width else 0
    return least


def time_of_rows(time_of_width: Mapping[int, float], rows: int) -> float:
    """Return the microseconds of the tiles into which some rows are cut."""
    return times_of_rows(time_of_width, [rows])[rows]


def times_of_rows(time_of_width: Mapping[int, float], counts: Iterable[int]) -> dict[int, float]:
    """Return the same for several numbers of rows: to find the least rows of a tile takes longest."""
    least, times = least_rows(time_of_width), dict[int, float]()
    for rows in counts:
        tiles = tiles_of(least, rows)
        total = sum(time_of_width[one.width] for one in tiles for _ in range(one.number))
        times[rows] = (MIXED if len(tiles) > 1 else 1.0) * total
    return times


def measured_rows(time_of_width: Mapping[int, float], measured: Mapping[int, float], rows: int) -> float | None:
    """Return the measured microseconds of the same tiles; None where one of them was not measured."""
    tiles = tiles_of(least_rows(time_of_width), rows)
    if any(one.width not in measured for one in tiles):
        return None
    total = sum(one.number * measured[one.width] for one in tiles)
    return (MIXED if len(tiles) > 1 else 1.0) * total


def widths_in_use(time_of_width: Mapping[int, float]) -> set[int]:
    """Return the widths that save time for some number of rows, and are used for it."""
    kept: dict[int, float] = {}
    for width, time in time_of_width.items():
        if not kept or WORTH_REPEATING * time <= time_of_rows(kept, width):
            kept[width] = time
    least = least_rows(kept)
    return {one.width for rows in range(1, max(kept) + 1) for one in tiles_of(least, rows)}
