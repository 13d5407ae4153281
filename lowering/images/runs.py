"""Pixels that move in runs: where the pixels of a vector lie evenly, they are loaded as vectors, not one by one.

A table says for each position of the target where its pixel is. Lane l of a vector has the one at base + l, at
base + 2 l for every second pixel of a row, or at base + l / 2 for pixels that are repeated, as long as the row is:

    positions    0 1 2 3 4 5 6 7           8 9 ...
    pixels       4 6 8 10 12 14 - 68       70 72 ...
    runs         4 + 2 l in lanes 0 to 5, a pad, 54 + 2 l in lane 7 (of the next row, or the next tile)

A run that is a whole vector is written. Shorter runs are selected lane by lane: the first is merged with the filling
value, each further one with the lanes already chosen. A vector of many runs is gathered, and so is one with a run that
would read outside the source.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import Operation

from ...kernels.tile_widths import PIXELS
from ..llvm.builder import Code
from ..llvm.flow import loop
from ..llvm.gather_scatter import gather
from ..llvm.values import I32, Float, Floats, Ints, Longs, Number
from ..llvm.vectors import Lanes, int_constants
from .geometry import NO_PIXEL
from .movement import pixels_at

Tables = list[NDArray[np.generic]]
Recipe = Callable[[Operation | None], Sequence[NDArray[np.generic]]]
Flags = NDArray[np.bool_]

MOST_RUNS: Final = 3
"""Runs of a vector: more take as long as a load for each lane."""

MOST_STEPS: Final = 4
"""Pixels from one lane to the next up to which a run is loaded as vectors."""

CHANNELS_AT_ONCE: Final = 32
"""Channels whose tiles stay in the first-level cache while their vectors are moved one after the other."""

WORDS: Final = 3
"""Numbers of an entry: where its pixels are, the position of its vector, a bit for each lane of the run."""

WHOLE, FIRST, FURTHER, GATHERED = KINDS = range(4)
"""Kinds of entries of a tile, in their order: whole vectors, first runs, further ones, vectors that are gathered."""


RUN_TABLES: Final = 3
"""Tables of `in_runs` for each table of places."""


class Steps(NamedTuple):
    """Lane l of a run has the pixel at l * down // up."""

    down: int = 1
    up: int = 1

    @staticmethod
    def down_by(stride: int) -> "Steps":
        """Return the steps to the pixels of a stride; pixels that are too far apart are loaded one by one."""
        return Steps(stride if stride <= MOST_STEPS else 1)

    @staticmethod
    def between(pixels: int, resized: int) -> "Steps":
        """Return the steps in which rows of pixels are resized, about."""
        return Steps(1, round(resized / pixels)) if resized > pixels else Steps.down_by(round(pixels / resized))


class RunForm(NamedTuple):
    """The form of runs: their steps, floats in a vector, positions of a tile."""

    steps: Steps = Steps()
    lanes: int = 8
    tile: int = PIXELS

    @property
    def places(self) -> list[int]:
        """The pixel of each lane, from the first one on."""
        return [lane * self.steps.down // self.steps.up for lane in range(self.lanes)]

    @property
    def loads(self) -> int:
        """Vectors that are loaded for a run."""
        return self.places[-1] // self.lanes + 1


def in_runs(recipe: Recipe, form: RunForm, room: int | None, op: Operation | None) -> Tables:
    """Return three tables for each table of places of a recipe: starts [4 tiles + 1], entries, and the places.

    From the first pixel on, `room` floats may be read; where only a call knows how many, runs are whole vectors.
    """
    return [table for places in recipe(op) for table in _runs_of(places.ravel().astype(np.int64), form, room)]


def _runs_of(places: NDArray[np.int64], form: RunForm, room: int | None) -> Tables:
    vectors = places.reshape(-1, form.lanes)
    left: Flags = vectors != NO_PIXEL
    bases, reach = vectors - form.places, form.loads * form.lanes
    gathered: Flags = np.zeros(len(vectors), np.bool_)
    runs: list[tuple[NDArray[np.int64], Flags]] = []
    for _ in range(MOST_RUNS):
        first = np.take_along_axis(bases, left.argmax(axis=1)[:, None], axis=1)
        first = np.where(left.any(axis=1, keepdims=True), first, 0)
        inside = left & (bases == first)
        if room is not None:
            gathered |= (first[:, 0] < 0) | (first[:, 0] + reach > room)
        runs.append((first[:, 0], inside))
        left = left & ~inside
    gathered |= left.any(axis=1)
    if room is None:
        gathered |= ~runs[0][1].all(axis=1)
    found: list[NDArray[np.int64]] = []
    for number, (base, inside) in enumerate(runs):
        whole = inside.all(axis=1)
        kind = np.where(whole, WHOLE, FIRST) if number == 0 else np.full(len(vectors), FURTHER)
        counts = ~gathered & (inside.any(axis=1) if number else True)
        found.append(_entries(np.flatnonzero(counts), kind, base, inside))
    rest = np.flatnonzero(gathered)
    found.append(_entries(rest, np.full(len(vectors), GATHERED), np.zeros(len(vectors), np.int64), vectors != NO_PIXEL))
    return [*_sorted(np.concatenate(found), form, len(places) // form.tile), places.astype(np.int32)]


def _entries(
    numbers: NDArray[np.int64], kind: NDArray[np.int64], base: NDArray[np.int64], inside: Flags
) -> NDArray[np.int64]:
    """Return [entries, 4] for vectors by number: the kind, the number, the base, and the lanes as bits."""
    lanes = np.array([1 << lane for lane in range(inside.shape[1])])
    bits = np.where(inside[numbers], lanes, 0).sum(axis=1)
    return np.stack([kind[numbers], numbers, base[numbers], bits], axis=1)


def _sorted(entries: NDArray[np.int64], form: RunForm, tiles: int) -> Tables:
    """Return where the entries of each kind begin in each tile, and the entries."""
    tile, vector = np.divmod(entries[:, 1], form.tile // form.lanes)
    groups = tile * len(KINDS) + entries[:, 0]
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(tiles * len(KINDS) + 1))
    words = np.stack([entries[:, 2], vector * form.lanes, entries[:, 3]], axis=1)[order]
    # a table is never empty
    return [starts.astype(np.int64), np.append(words, np.zeros((1, WORDS), np.int64), axis=0).astype(np.int32)]


def moving_runs(code: Code, form: RunForm) -> ir.Function:
    """Return `void (source, source_stride, target, starts, entries, places, channels, fill)` for a tile of the target.

    `source_stride` are floats between channels; the tables are those of `in_runs`, from the tile on.
    """

    @code.kernel(f"move_runs_{form.steps.down}_{form.steps.up}_{form.tile}")
    def kernel(
        source: Floats,
        source_stride: Number,
        target: Floats,
        starts: Longs,
        entries: Ints,
        places: Ints,
        channels: Number,
        fill: Float,
    ) -> None:
        lanes = code.lanes(source)
        other = lanes.splat(fill)
        with loop(channels.divided_up(CHANNELS_AT_ONCE)) as part:
            first = part * CHANNELS_AT_ONCE
            count = (channels - first).smaller(CHANNELS_AT_ONCE)
            pixels, rows = source.at(first * source_stride), target.at(first * form.tile)
            for kind in KINDS:
                begin = starts[kind]
                with loop(starts[kind + 1] - begin) as index:
                    base, position, bits = (entries.at((begin + index) * WORDS)[word] for word in range(WORDS))
                    chosen = _lanes_of(lanes, bits)
                    own = pixels if kind == GATHERED else pixels.at(base)
                    alone = pixels_at(lanes, places.at(position), [0])[0].number if kind == GATHERED else None
                    with loop(count) as channel:
                        here, row = own.at(channel * source_stride), rows.at(channel * form.tile + position)
                        value = _run(lanes, here, form) if alone is None else gather(lanes, here, alone)
                        if kind:
                            value = lanes.select(
                                chosen, value, lanes.load(row, lanes.size) if kind == FURTHER else other
                            )
                        lanes.store(value, row, lanes.size)

    return kernel


def _lanes_of(lanes: Lanes, bits: Number) -> ir.Value:
    """Return the lanes whose bits are set."""
    own = int_constants(1 << lane for lane in range(lanes.width))
    return lanes.builder.icmp_signed("!=", lanes.builder.and_(lanes.splat_int(bits.narrow(I32)), own), lanes.ints(0))


def _run(lanes: Lanes, address: Floats, form: RunForm) -> ir.Value:
    """Return the pixels of a run."""
    vectors = [lanes.load(address.at(number * lanes.width)) for number in range(form.loads)]
    return vectors[0] if form.steps == Steps() else _picked(lanes, vectors, form.places)


def _picked(lanes: Lanes, vectors: Sequence[ir.Value], places: Sequence[int]) -> ir.Value:
    """Return the lanes of vectors, side by side, that are at places."""
    if len(vectors) <= 2:
        return lanes.builder.shuffle_vector(vectors[0], vectors[-1], int_constants(places))
    # those of the first half, then the others
    half = 2 * lanes.width
    low = _picked(lanes, vectors[:2], [min(place, half - 1) for place in places])
    high = _picked(lanes, vectors[2:], [max(place - half, 0) for place in places])
    behind = [lane + lanes.width * (place >= half) for lane, place in enumerate(places)]
    return lanes.builder.shuffle_vector(low, high, int_constants(behind))
