"""Windows of many taps, as first layers over sound have them: a loop over the taps, where `windows` has code for each.

A vector of a tap may begin anywhere, and end in the next tile. So the tiles that the taps of a channel reach are put
next to each other first, those of each phase in a line of their own, and the taps are copied from there:

    line    | tile t - 1 | tile t | tile t + 1 | ...        64 positions each
    tap            | place .. place + 64 |                  which begins where a table says
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import Operation

from ...dialect.ops.image_bands import MOST_TAPS
from ..llvm.builder import Code
from ..llvm.flow import allocated, loop, select
from ..llvm.values import Floats, Longs, Number
from .windows import WindowForm


class _Line(NamedTuple):
    """The tiles that the taps of a phase reach, counted from the one at hand."""

    phase: int
    tiles: range


def has_many_taps(form: WindowForm) -> bool:
    """Return whether taps are copied in a loop."""
    return form.work == "copy" and not form.of_codes and len(form.taps) > MOST_TAPS


def _distances(form: WindowForm) -> list[int]:
    return [tap.row * form.pitch + tap.column for tap in form.taps]


def _lines(form: WindowForm) -> Iterator[_Line]:
    distances = _distances(form)
    for phase in dict.fromkeys(tap.phase for tap in form.taps):
        reached = [distance for tap, distance in zip(form.taps, distances, strict=True) if tap.phase == phase]
        behind = max(reached) + form.tile - 1
        yield _Line(phase, range(min(reached) // form.tile, behind // form.tile + 1))


def tap_tables(form: WindowForm, _: Operation | None) -> list[NDArray[np.int64]]:
    """Return the tiles of the lines, each with its distance and the floats to it, and the place of each tap."""
    tiles: list[tuple[int, int]] = []
    starts: dict[int, int] = {}
    for phase, reached in _lines(form):
        starts[phase] = (len(tiles) - reached.start) * form.tile
        tiles += [(tile, tile * form.tile_values + phase * form.channels * form.tile) for tile in reached]
    places = [starts[tap.phase] + distance for tap, distance in zip(form.taps, _distances(form), strict=True)]
    return [np.array(tiles, np.int64), np.array(places, np.int64)]


def windows_of_many_taps(code: Code, form: WindowForm) -> ir.Function:
    """Return `void (tile, number, tiles, outside, target, lines, places, channels)`, the work "copy" of `windows`."""
    count, taps = sum(len(line.tiles) for line in _lines(form)), len(form.taps)

    @code.kernel(f"many_taps_{count}_{taps}_{form.tile}")
    def kernel(
        tile: Floats,
        number: Number,
        tiles: Number,
        outside: Floats,
        target: Floats,
        lines: Longs,
        places: Longs,
        channels: Number,
    ) -> None:
        lanes, room = code.lanes(tile), allocated(tile, Floats, count * form.tile)
        starts = range(0, form.tile, lanes.width)

        def copy(source: Floats, there: Floats, *sizes: int) -> None:
            for first in starts:
                lanes.store(lanes.load(source.at(first)), there.at(first), *sizes)

        with loop(channels) as channel:
            with loop(tile.constant(count)) as part:
                entry = lines.at(part * 2)
                inside = (number + entry[0]).unsigned("<", tiles)
                pixels = tile.at(entry[1] + channel * form.tile)
                copy(select(inside, pixels, outside.at(form.middle)), room.at(part * form.tile))
            with loop(tile.constant(taps)) as tap:
                there = target.at((channel * taps + tap) * form.tile)
                copy(room.at(places[tap]), there, lanes.size)

    return kernel
