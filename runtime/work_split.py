"""Which thread does which rows of a step."""

from typing import Final, NamedTuple

from redpebble.kernels.tile_widths import Tiles, tiles_of
from redpebble.lowering.program import Step, TiledRows

START_US: Final = 1.5
"""Microseconds that it takes to hand a call to threads and to learn that they are done."""


class Range(NamedTuple):
    """Rows from `begin` up to `end`."""

    begin: int
    end: int


class Split(NamedTuple):
    """The rows that threads do each for itself, and those that they do together."""

    alone: tuple[Range, ...]
    together: Range

    @property
    def is_parallel(self) -> bool:
        """Whether any thread but the first one has something to do."""
        return self.together != NOTHING or any(own.begin < own.end for own in self.alone[1:])


NOTHING: Final = Range(0, 0)
ONCE: Final = Range(0, 1)
"""Of a step that is one piece of work."""


def split_step(step: Step, rows: int, threads: int) -> Split:
    """Return how `threads` do a step of `rows` rows, the way that is estimated to be the fastest.

    One thread does all of them; or each does its range; or each does as many of the widest tiles as the others, and
    they do together what is left. In all of them a row becomes the same bits.
    """
    if step.tiled is None:
        return Split((ONCE, *[NOTHING] * (threads - 1)), NOTHING)
    tiled = step.tiled
    best, least = Split(_ranges(rows, rows, threads), NOTHING), _alone_us(tiled, rows)
    if threads == 1:
        return best
    for share in _shares(tiled, rows, threads):
        ranges = _ranges(share, rows, threads)
        time = START_US + max(_alone_us(tiled, own.end - own.begin) for own in ranges)
        if time < least:
            best, least = Split(ranges, NOTHING), time
    widest = tiled.times[-1].width
    share = rows // (widest * threads) * widest
    rest = rows - share * threads
    time = START_US + _alone_us(tiled, share) + _together_us(tiled, rest)
    if tiled.shared is not None and rest and time < least:
        best = Split(_ranges(share, share * threads, threads), Range(share * threads, rows))
    return best


def _shares(tiled: TiledRows, rows: int, threads: int) -> list[int]:
    """Return numbers of rows for each thread that make the same bits of every row as one thread makes."""
    widths = [time.width for time in tiled.times]
    narrow = _narrow(tiled, rows)
    shares: list[int] = []
    for width in widths:
        share = -(-rows // (threads * width)) * width
        if width >= tiled.same_from and not _narrow(tiled, share):
            last = rows - (rows - 1) // share * share if rows else 0
            if _narrow(tiled, last) == narrow:
                shares.append(share)
    return shares


def _narrow(tiled: TiledRows, rows: int) -> list[Tiles]:
    """Return the tiles, always the last ones, that are too narrow to make the same bits as others."""
    return [tiles for tiles in tiles_of(tiled.least_rows, rows) if tiles.width < tiled.same_from]


def _alone_us(tiled: TiledRows, rows: int) -> float:
    times = {time.width: time.alone for time in tiled.times}
    return sum(times[tiles.width] * tiles.number for tiles in tiles_of(tiled.least_rows, rows))


def _together_us(tiled: TiledRows, rows: int) -> float:
    times = {time.width: time.alone if time.together is None else time.together for time in tiled.times}
    return sum(times[tiles.width] * tiles.number for tiles in tiles_of(tiled.least_rows, rows))


def _ranges(share: int, rows: int, threads: int) -> tuple[Range, ...]:
    """Return ranges of `share` rows, as far as there are some."""
    starts = [min(share * number, rows) for number in range(threads)]
    return tuple(Range(start, min(start + share, rows)) for start in starts)
