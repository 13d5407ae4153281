"""Windows of a tile: the values that its results read, of each tap a vector of positions further on.

    tile t      | 0 .. 63 |          tap at distance s, vector v of results: positions 64 t + v + s ...
    tile t + 1  | 64 .. 127 |        which begin in tile t + d at an offset that is known, and may end in the next one:
                                     two loads, of which each gives some lanes

A tile before the first one, or behind the last one, is a row that all its channels share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from llvmlite import ir

from ...dialect.attributes.activations import ActivationAttr
from ...kernels.tile_widths import PIXELS
from ..kernels.kernel_form import activated, activation_key
from ..llvm.builder import FLOAT_BYTES, I64, POINTER, Code, counted_loop, float_at, i64
from ..llvm.values import I1
from ..llvm.vectors import FLOAT, Lanes
from .geometry import PhaseTap

Work = Literal["copy", "weigh", "largest", "mean"]

OUTSIDE_FLOATS: Final = 2 * PIXELS
"""Floats of the row outside of the tiles, of which the tile's are in the middle: vectors may begin before it."""

OUTSIDE_FIRST: Final = PIXELS // 2


@dataclass(frozen=True)
class WindowForm:
    """The form of windows: taps, the pitch, the channels of a phase, floats between tiles, and what is done."""

    taps: tuple[PhaseTap, ...]
    pitch: int
    channels: int
    tile_values: int
    work: Work
    activation: ActivationAttr | None = None

    @property
    def distances(self) -> list[int]:
        """The positions from a result to each tap."""
        return [tap.row * self.pitch + tap.column for tap in self.taps]

    @property
    def key(self) -> str:
        """A name for the function."""
        taps = "_".join(f"{tap.phase}p{tap.row}r{tap.column}".replace("-", "m") for tap in self.taps)
        sizes = f"{self.pitch}_{self.channels}_{self.tile_values}"
        return f"windows_{self.work}_{sizes}_{taps}_{activation_key(self.activation)}"


def windows(code: Code, form: WindowForm) -> ir.Function:
    """Return `void (tile, number, tiles, outside, target, factors, bias, channels)`.

    `copy` puts the taps of a channel next to each other, a row of 64 each; `weigh` sums them with factors
    [channels, taps] and a bias; `largest` takes the largest; `mean` sums them, times `factors` [64].
    """

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        _Windows(code.lanes(builder), form, args).emit()

    return code.function(form.key, [POINTER, I64, I64, *[POINTER] * 4, I64], body)


class _Row:
    """The address of a tile's first channel, and the floats from a channel to the next one."""

    def __init__(self, address: ir.Value, stride: ir.Value) -> None:
        self.address = address
        self.stride = stride


class _Windows:
    def __init__(self, lanes: Lanes, form: WindowForm, args: Sequence[ir.Argument]) -> None:
        self.lanes, self.form, self.builder = lanes, form, lanes.builder
        self.tile, self.number, self.tiles, self.outside, self.target, self.factors, self.bias, self.channels = args
        self._rows: dict[tuple[int, int], _Row] = {}

    def emit(self) -> None:
        """Emit the loop over channels."""
        builder, form, taps = self.builder, self.form, range(len(self.form.taps))
        for tap in taps:
            for first in range(0, PIXELS, self.lanes.width):
                self._prepare(tap, first)
        with counted_loop(builder, self.channels) as channel:
            for first in range(0, PIXELS, self.lanes.width):
                if form.work == "copy":
                    for tap in taps:
                        row = builder.add(builder.mul(channel, i64(len(taps))), i64(tap))
                        self._store(self._load(channel, tap, first), row, first)
                else:
                    self._store(self._reduced(channel, first), channel, first)

    def _store(self, value: ir.Value, row: ir.Value, first: int) -> None:
        index = self.builder.add(self.builder.mul(row, i64(PIXELS)), i64(first))
        self.lanes.store(value, float_at(self.builder, self.target, index), FLOAT_BYTES * self.lanes.width)

    def _reduced(self, channel: ir.Value, first: int) -> ir.Value:
        """Return what becomes of the taps of a vector of positions."""
        builder, lanes, count = self.builder, self.lanes, len(self.form.taps)
        values = (self._load(channel, tap, first) for tap in range(count))
        if self.form.work == "weigh":
            total: ir.Value = lanes.splat(builder.load(float_at(builder, self.bias, channel), typ=FLOAT))
            for tap, value in enumerate(values):
                entry = builder.add(builder.mul(channel, i64(count)), i64(tap))
                factor = lanes.splat(builder.load(float_at(builder, self.factors, entry), typ=FLOAT))
                total = lanes.fma(factor, value, total)
            (total,) = activated(lanes, self.form.activation, [total])
            return total
        total = next(values)
        for value in values:
            total = lanes.max(total, value) if self.form.work == "largest" else lanes.add(total, value)
        if self.form.work == "mean":
            total = lanes.mul(total, lanes.load(float_at(builder, self.factors, i64(first))))
        return total

    def _places(self, tap: int, first: int) -> list[tuple[int, int]]:
        """Return the tiles, counted from this one, in which a vector of a tap lies, and its offset in each."""
        tile, offset = divmod(self.form.distances[tap] + first, PIXELS)
        ends = offset + self.lanes.width > PIXELS
        return [(tile, offset), (tile + 1, offset - PIXELS)] if ends else [(tile, offset)]

    def _prepare(self, tap: int, first: int) -> None:
        """Emit the addresses of the tiles in which a vector lies, in front of the loop."""
        builder, form, phase = self.builder, self.form, self.form.taps[tap].phase
        for distance, _ in self._places(tap, first):
            if (phase, distance) in self._rows:
                continue
            start = i64(distance * form.tile_values + phase * form.channels * PIXELS)
            inside = builder.icmp_unsigned("<", builder.add(self.number, i64(distance)), self.tiles)
            outside = float_at(builder, self.outside, i64(OUTSIDE_FIRST))
            address = builder.select(inside, float_at(builder, self.tile, start), outside)
            self._rows[phase, distance] = _Row(address, builder.select(inside, i64(PIXELS), i64(0)))

    def _load(self, channel: ir.Value, tap: int, first: int) -> ir.Value:
        """Return a vector of a tap."""
        builder, lanes, places = self.builder, self.lanes, self._places(tap, first)
        loaded: list[ir.Value] = []
        for distance, offset in places:
            row = self._rows[self.form.taps[tap].phase, distance]
            index = builder.add(builder.mul(channel, row.stride), i64(offset))
            loaded.append(lanes.load(float_at(builder, row.address, index)))
        if len(loaded) == 1:
            return loaded[0]
        here = PIXELS - places[0][1]
        chosen = ir.Constant(ir.VectorType(I1, lanes.width), [int(lane < here) for lane in range(lanes.width)])
        return lanes.select(chosen, loaded[0], loaded[1])
