"""Windows of a tile: the values that its results read, of each tap a vector of positions further on.

    tile t      | 0 .. 63 |          tap at distance s, vector v of results: positions 64 t + v + s ...
    tile t + 1  | 64 .. 127 |        which begin in tile t + d at an offset that is known, and may end in the next one:
                                     two loads, of which each gives some lanes

A tile before the first one, or behind the last one, is a row that all its channels share. Of codes, a vector is a line:
all 64 positions at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Final, Literal, NamedTuple

from llvmlite import ir

from ...dialect.attributes.activations import ActivationAttr
from ...kernels.tile_widths import PIXELS
from ..kernels.kernel_form import activated, activation_key
from ..llvm.builder import Code
from ..llvm.flow import loop, select
from ..llvm.values import FLOAT_BYTES, I1, Bytes, Floats, Number
from ..llvm.vectors import Lanes
from .geometry import PhaseTap
from .lines import LineLanes

Work = Literal["copy", "weigh", "largest", "mean"]

OUTSIDE_FLOATS: Final = 2 * PIXELS
"""Floats of the row outside of the tiles, of which the tile's are in the middle: vectors may begin before it."""

OUTSIDE_BYTES: Final = 3 * PIXELS
"""Bytes of the row outside of tiles of codes, a line of which is in the middle: one may begin before it."""

VECTORS: Final = 8
"""Vectors of positions whose sums are made together: a factor is read once for all of them."""

Values = Floats | Bytes
"""The address of floats, or of codes."""


class Part(NamedTuple):
    """A tile, counted from the one at hand, in which a vector lies, and the position there at which it begins."""

    tile: int
    offset: int


@dataclass(frozen=True)
class WindowForm:
    """The form of windows: taps, pitch, channels of a phase, values between tiles; and what is done with them."""

    taps: tuple[PhaseTap, ...]
    pitch: int
    channels: int
    tile_values: int
    work: Work
    activation: ActivationAttr | None = None
    of_codes: bool = False
    tile: int = PIXELS
    """Positions of a tile."""
    ring: int = 0
    """Tiles in memory, if not all are: addresses are those of the first one then."""
    columns: int = 0
    """Columns of what is read, where taps beyond them have to be left out; 0 where there is room between rows."""

    @property
    def item(self) -> int:
        """Bytes of a value."""
        return 1 if self.of_codes else FLOAT_BYTES

    @property
    def middle(self) -> int:
        """The value of the row outside of tiles that stands for the first one of a tile."""
        return PIXELS if self.of_codes else OUTSIDE_FLOATS // 4

    @property
    def key(self) -> str:
        """A name for the function."""
        taps = "_".join(f"{tap.phase}p{tap.row}r{tap.column}".replace("-", "m") for tap in self.taps)
        words = f"windows_{self.work}_{self.tile}_{self.pitch}_{self.channels}_{self.tile_values}_{self.ring}"
        words = f"{words}_{self.columns}_{taps}"
        return f"line_{words}" if self.of_codes else f"{words}_{activation_key(self.activation)}"

    def inside(self, tap: int, first: int, width: int) -> list[bool]:
        """Return which lanes of a vector of a tap are in the row where they should be."""
        columns = [(first + lane) % self.pitch + self.taps[tap].column for lane in range(width)]
        return [not self.columns or 0 <= column < self.columns for column in columns]

    def parts(self, tap: int, first: int, width: int) -> list[Part]:
        """Return where a vector of a tap lies whose results begin at a position: in one tile, or also in the next."""
        distance = self.taps[tap].row * self.pitch + self.taps[tap].column
        tile, offset = divmod(distance + first, self.tile)
        ends = offset + width > self.tile
        return [Part(tile, offset), Part(tile + 1, offset - self.tile)] if ends else [Part(tile, offset)]


class _Rows:
    """The rows of the tiles around one: of each the address of its first channel, and values from a channel on."""

    def __init__(self, form: WindowForm, tile: Values, number: Number, tiles: Number, outside: Values) -> None:
        self._form, self._tile, self._number, self._tiles, self._outside = form, tile, number, tiles, outside
        self._rows: dict[tuple[int, int], tuple[Values, Number]] = {}

    def prepare(self, tap: int, parts: Sequence[Part]) -> None:
        """Emit the addresses of the tiles of a vector, in front of the loop; outside all channels share a row."""
        form, phase = self._form, self._form.taps[tap].phase
        for distance, _ in parts:
            if (phase, distance) in self._rows:
                continue
            # a number below 0 is a large one without its sign
            inside = (self._number + distance).unsigned("<", self._tiles)
            outside = self._outside.at(form.middle)
            number = distance if not form.ring else (self._number + distance) % form.ring
            start = number * form.tile_values + phase * form.channels * form.tile
            address = select(inside, self._tile.at(start), outside)
            self._rows[phase, distance] = address, select(inside, self._number.constant(form.tile), 0)

    def addresses(self, channel: Number, tap: int, parts: Sequence[Part]) -> Iterator[Values]:
        """Yield the addresses of the parts of a vector."""
        rows = [self._rows[self._form.taps[tap].phase, distance] for distance, _ in parts]
        return (row.at(channel * step + offset) for (row, step), (_, offset) in zip(rows, parts, strict=True))


def windows(code: Code, form: WindowForm) -> ir.Function:
    """Return `void (tile, number, tiles, outside, target, factors, bias, channels)`, of floats or of codes.

    `copy` puts the taps of a channel next to each other, a row of 64 each; `weigh` sums them with factors
    [channels, taps] and a bias; `largest` takes the largest; `mean` sums them, times `factors` [64].
    """

    @code.kernel(form.key)
    def kernel(
        tile: Bytes,
        number: Number,
        tiles: Number,
        outside: Bytes,
        target: Bytes,
        factors: Floats,
        bias: Floats,
        channels: Number,
    ) -> None:
        kind = Bytes if form.of_codes else Floats
        lanes = LineLanes(tile.builder, PIXELS, code.target) if form.of_codes else code.lanes(tile)
        rows, there = _Rows(form, tile.cast(kind), number, tiles, outside.cast(kind)), target.cast(kind)
        work = _Windows(lanes, form, rows, factors, bias)
        starts, taps = range(0, form.tile, lanes.width), range(len(form.taps))
        # where the tiles of all taps are does not depend on the channel
        for tap in taps:
            for first in starts:
                rows.prepare(tap, form.parts(tap, first, lanes.width))
        with loop(channels) as channel:
            if form.work == "copy":
                for first, tap in product(starts, taps):
                    row = channel * len(taps) + tap
                    value = work.load(channel, tap, first)
                    lanes.store(value, there.at(row * form.tile + first), lanes.size)
                return
            for begin in range(0, len(starts), VECTORS):
                some = starts[begin : begin + VECTORS]
                for first, value in zip(some, work.reduced(channel, some), strict=True):
                    lanes.store(value, there.at(channel * form.tile + first), lanes.size)

    return kernel


@dataclass(frozen=True)
class _Windows:
    """The work on windows: `factors` and `bias` as `windows` says."""

    lanes: Lanes
    form: WindowForm
    rows: _Rows
    factors: Floats
    bias: Floats

    def reduced(self, channel: Number, starts: Sequence[int]) -> Sequence[ir.Value]:
        """Return what becomes of the taps of vectors of positions, given the first of each."""
        lanes, count = self.lanes, len(self.form.taps)
        if self.form.work == "weigh":
            totals: list[ir.Value] = [lanes.splat(self.bias[channel])] * len(starts)
            for tap in range(count):
                factor = lanes.splat(self.factors[channel * count + tap])
                totals = [
                    lanes.fma(factor, self.load(channel, tap, first), total)
                    for first, total in zip(starts, totals, strict=True)
                ]
            return activated(lanes, self.form.activation, totals)
        join = lanes.max if self.form.work == "largest" else lanes.add
        totals = [reduce(join, (self.load(channel, tap, first) for tap in range(count))) for first in starts]
        if self.form.work == "mean":
            return [
                lanes.mul(total, lanes.load(self.factors.at(first)))
                for first, total in zip(starts, totals, strict=True)
            ]
        return totals

    def load(self, channel: Number, tap: int, first: int) -> ir.Value:
        """Return a vector of a tap."""
        lanes, parts = self.lanes, self.form.parts(tap, first, self.lanes.width)
        # the lanes up to the end of a tile are in it, the others begin the next one
        value, *others = (lanes.load(one, self.form.item) for one in self.rows.addresses(channel, tap, parts))
        here = self.form.tile - parts[0].offset
        for other in others:
            value = lanes.select(_constant([lane < here for lane in range(lanes.width)]), value, other)
        inside = self.form.inside(tap, first, lanes.width)
        if all(inside):
            return value
        return lanes.select(
            _constant(inside), value, lanes.splat(float("-inf") if self.form.work == "largest" else 0.0)
        )


def _constant(lanes: Sequence[bool]) -> ir.Constant:
    return ir.Constant(ir.VectorType(I1, len(lanes)), [int(lane) for lane in lanes])
