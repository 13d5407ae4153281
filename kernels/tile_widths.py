"""Which tiles rows are cut into: the widest one comes first, as long as enough rows are left for it."""

from collections.abc import Iterable, Mapping
from typing import Final

MIXED: Final = 1.15
"""Time of tiles of different widths over the sum of what each takes alone: often their kernels read other weights."""


def least_rows(alone: Mapping[int, float]) -> dict[int, int]:
    """Return the rows from which a tile of each width is used, given the microseconds of tiles of ascending widths.

    A wider tile is used as soon as it takes no longer than the best that narrower ones can do.
    """
    widths = list(alone)
    least = {widths[0]: 1}
    fastest, repeated = [0.0], [0.0]
    for rows in range(1, widths[-1] + 1):
        fastest.append(alone[widths[0]] + fastest[max(0, rows - widths[0])])
        repeated.append(-(-rows // widths[0]) * alone[widths[0]])
    for width in widths[1:]:
        limits = (min(one, MIXED * other) for one, other in zip(repeated[1:width], fastest[1:], strict=False))
        least[width] = next((rows for rows, limit in enumerate(limits, 1) if alone[width] <= limit), width)
        for rows in range(least[width], widths[-1] + 1):
            fastest[rows] = min(fastest[rows], alone[width] + fastest[max(0, rows - width)])
            repeated[rows] = min(repeated[rows], -(-rows // width) * alone[width])
    return least


def time_of_rows(alone: Mapping[int, float], rows: int) -> float:
    """Return the microseconds of the tiles into which some rows are cut."""
    widths = list(_cut(rows, least_rows(alone)))
    return (MIXED if len(set(widths)) > 1 else 1.0) * sum(alone[width] for width in widths)


def widths_in_use(alone: Mapping[int, float]) -> set[int]:
    """Return the widths that save time for some number of rows, and are used for it."""
    kept: dict[int, float] = {}
    for width, time in alone.items():
        if not kept or time <= time_of_rows(kept, width):
            kept[width] = time
    least = least_rows(kept)
    return {width for rows in range(1, max(kept) + 1) for width in _cut(rows, least)}


def _cut(rows: int, least: Mapping[int, int]) -> Iterable[int]:
    for width in sorted(least, reverse=True):
        while rows >= least[width]:
            yield width
            rows -= width
