"""Planes of pixels: where the pixels of an image lie, so that a window's tap is the same distance for all of them.

The rows of an image follow each other at a pitch, with room for the pads of windows between them: pixel (i, j) has the
position i * pitch + j. Tiles are 64 positions each, feature-major [channels, 64], or fewer where images are small. A
convolution of stride 1 reads position p + tap.row * pitch + tap.column for position p of its result, which has the same
pitch. Positions that are no pixel hold zeros where a window may read them. For a stride s, the pixels of rows and
columns a + s i and b + s j are a plane of their own, a phase, that has the pitch of the result.

Small images would have a large part of their positions between rows. Where a tile holds whole rows, or all of them, the
same lanes of every tile read beyond a row: such images may have no room there, and windows leave these lanes out.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.window import Pair, WindowAttr
from ...dialect.ops.elementwise import rounds_to_codes
from ...dialect.ops.image_bands import MOST_TAPS
from ...dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp, WindowOp, image_shape
from ...kernels.tile_widths import IMAGE_TILES, PIXELS

KNOWN: Final = -1
"""Number of a length that is known."""

NO_PIXEL: Final = -1
"""A position that is no pixel, in tables of positions."""


@dataclass(frozen=True)
class Plane:
    """Positions of an image of `height` rows of `width` pixels, at a distance of `pitch`."""

    height: int
    width: int
    pitch: int
    tile: int = PIXELS
    """Positions of a tile."""
    ring: int = 0
    """Tiles that are in memory, where later ones take the places of earlier ones; 0 where all are."""
    length: int = KNOWN
    """The number of a length that only a call knows: then this is one tile of it."""

    @property
    def stored(self) -> int:
        """The tiles that are in memory."""
        return self.ring or self.tiles

    @property
    def tiles(self) -> int:
        """Number of tiles; behind the last pixel there are none."""
        return -(-((self.height - 1) * self.pitch + self.width) // self.tile)

    def pixels(self) -> NDArray[np.int64]:
        """Return the number of the pixel at each position of all tiles, row by row; `NO_PIXEL` where there is none."""
        row, column = np.divmod(np.arange(self.tiles * self.tile), self.pitch)
        is_pixel = (row < self.height) & (column < self.width)
        return np.where(is_pixel, row * self.width + column, NO_PIXEL)

    def positions(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position of pixels [n], `NO_PIXEL` where the image has none."""
        inside = (rows >= 0) & (rows < self.height) & (columns >= 0) & (columns < self.width)
        return np.where(inside, rows * self.pitch + columns, NO_PIXEL)

    def distances(self, positions: NDArray[np.int64], tile_values: int) -> NDArray[np.int64]:
        """Return the values from the first tile to positions, with so many from tile to tile; `NO_PIXEL` stays."""
        tiles, rest = np.divmod(positions, self.tile)
        tiles %= self.stored
        return np.where(positions == NO_PIXEL, NO_PIXEL, tiles * tile_values + rest)


class PhaseTap(NamedTuple):
    """A tap: the phase in which it reads, and how many rows and columns further."""

    phase: int
    row: int
    column: int


@dataclass(frozen=True)
class Phases:
    """The phases that a window reads, each (row, column) of its first pixel, and its taps in them."""

    stride: Pair
    offsets: tuple[Pair, ...]
    taps: tuple[PhaseTap, ...]

    @staticmethod
    def of(window: WindowAttr) -> "Phases":
        """Return the phases of a window."""
        down, across = window.stride
        offsets: list[Pair] = []
        taps: list[PhaseTap] = []
        for tap in window.taps:
            (row, first), (column, second) = divmod(tap.row, down), divmod(tap.column, across)
            if (first, second) not in offsets:
                offsets.append((first, second))
            taps.append(PhaseTap(offsets.index((first, second)), row, column))
        return Phases(window.stride, tuple(offsets), tuple(taps))

    def size(self, height: int, width: int) -> Pair:
        """Return the rows and columns of the largest phase of an image."""
        (down, across), firsts = self.stride, self.offsets
        return (
            max(max(0, -(-(height - first) // down)) for first, _ in firsts),
            max(max(0, -(-(width - first) // across)) for _, first in firsts),
        )

    @property
    def is_whole(self) -> bool:
        """Whether there is one phase, the image itself."""
        return self.stride == (1, 1)

    @property
    def is_point(self) -> bool:
        """Whether a result reads one pixel of each channel."""
        return self.taps == (PhaseTap(0, 0, 0),)

    def has_room(self, source: Plane, target: Plane) -> bool:
        """Return whether no tap of a result is in another row than it should be, as there are positions between."""
        columns = [tap.column for tap in self.taps]
        return source.pitch >= max(source.width - min(columns), target.width + max(columns))

    def reads_tiles(self, source: Plane, target: Plane) -> bool:
        """Return whether the windows of a tile of results are the tile of the same number of what is read."""
        same = (source.pitch, source.tile, source.length) == (target.pitch, target.tile, target.length)
        return self.is_point and same and target.tiles <= source.tiles


def reads_all(op: Operation) -> bool:
    """Return whether an op is the mean of all pixels, or the largest one."""
    return isinstance(op, Pool2dOp) and op.window.is_all_of(*_size(op.x))


def planes_of(ops: Iterable[Operation], values: Sequence[SSAValue], lanes: int) -> dict[Pair, Plane]:
    """Return the plane of each size of images among `values`: sizes that windows connect have one pitch, and tile.

    Both are those with which the convolutions of these sizes are predicted to take the least time; a tile has a vector
    of so many lanes at least.
    """
    ops, sizes = list(ops), {_size(value) for value in values}
    pitches = _Pitches({size: size for size in sizes}, {size: _Rows(size[0], size[1], size[1]) for size in sizes})
    for op in ops:
        if isinstance(op, WindowOp) and not reads_all(op):
            pitches.connect(op)
    planes = {size: Plane(*size, pitches.rows[pitches.root(size)].pitch) for size in sizes}
    if any((isinstance(op, Conv2dOp) and op.codes is not None) or rounds_to_codes(op) for op in ops):
        return planes
    tiles = [tile for tile in IMAGE_TILES if tile >= lanes]
    forms = _forms(planes, pitches, [op for op in ops if isinstance(op, Conv2dOp)], tiles)
    return {size: Plane(*size, *forms[pitches.root(size)]) for size in planes}


class _Form(NamedTuple):
    """The pitch of planes, and the positions of their tiles."""

    pitch: int
    tile: int


def _forms(
    planes: Mapping[Pair, Plane], pitches: "_Pitches", convolutions: Sequence[Conv2dOp], tiles: Sequence[int]
) -> dict[Pair, _Form]:
    """Return the form of planes for each root of sizes, with one of these widths of tiles."""
    widths: dict[Pair, list[int]] = {}
    costs: dict[tuple[Pair, _Form], float] = defaultdict(float)
    for op in convolutions:
        size, times = _size(op.result), dict[int, float]() if op.kernel is None else op.kernel.predicted
        root = pitches.root(size)
        widths[root] = [width for width in widths.get(root, tiles) if width in times]
        for form in pitches.rows[root].forms(widths[root]):
            costs[root, form] += times[form.tile] * Plane(*size, *form).tiles
    for size, plane in planes.items():
        if pitches.root(size) not in widths and plane.tiles == 1:
            # no convolution has a kernel for it: as many positions as there are
            widths[size] = [width for width in tiles if replace(plane, tile=width).tiles == 1][:1]
    found: dict[Pair, _Form] = {}
    for root in {pitches.root(size) for size in planes}:
        rows = pitches.rows[root]
        forms = rows.forms(widths.get(root, []))
        found[root] = min(forms, key=lambda form, root=root: costs[root, form], default=_Form(rows.pitch, PIXELS))
    return found


class _Rows(NamedTuple):
    """The rows of planes of one pitch: how many there are at most, their pitch, and that without room between them."""

    most: int
    pitch: int
    least: int

    def joined(self, other: "_Rows") -> "_Rows":
        """Return the rows of planes that are among either."""
        return _Rows(*map(max, zip(self, other, strict=True)))

    def forms(self, tiles: Iterable[int]) -> Iterator[_Form]:
        """Yield the forms with room between rows for each width of a tile, and those that can be without."""
        for tile in tiles:
            yield _Form(self.pitch, tile)
            if self.least < self.pitch and (tile % self.least == 0 or self.most * self.least <= tile):
                yield _Form(self.least, tile)


@dataclass
class _Pitches:
    """Sizes that have one pitch, as trees, and the rows of each tree."""

    parents: dict[Pair, Pair]
    rows: dict[Pair, _Rows]

    def root(self, size: Pair) -> Pair:
        """Return the size that stands for all of its pitch."""
        while self.parents[size] != size:
            size = self.parents[size]
        return size

    def connect(self, op: WindowOp) -> None:
        """Make room for the pads of a window, and let what it reads and writes have one pitch for stride 1."""
        phases, before, after = Phases.of(op.window), _size(op.x), _size(op.result)
        height, width = before if phases.is_whole else phases.size(*before)
        columns = [tap.column for tap in phases.taps]
        target = self.root(after)
        if phases.is_whole and isinstance(op, Conv2dOp | Depthwise2dOp):
            other = self.root(before)
            self.parents[other] = target
            self.rows[target] = self.rows[target].joined(self.rows[other])
        with_room = max(width, width - min(columns), after[1] + max(columns))
        # code for many taps has no lanes to leave out
        least = with_room if len(columns) > MOST_TAPS else max(width, after[1])
        self.rows[target] = self.rows[target].joined(_Rows(height, with_room, least))


def _size(value: SSAValue) -> Pair:
    _, _, height, width = image_shape(value)
    return height, width
