"""Charts as SVG text, and pictures of matrices, for pages that need nothing but themselves."""

import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 960, 400
LEFT, RIGHT, TOP, BOTTOM = 74, 216, 12, 50
LEGEND_GAP = 22
"""Pixels from a name of the legend to the next."""


@dataclass(frozen=True)
class Line:
    """A named line through points; `style` is a class of the page's style sheet."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    style: str


@dataclass(frozen=True)
class Axes:
    """Titles of the axes; `log_x` and `log_y` make them logarithmic, `marked_x` draws a vertical line."""

    x: str
    y: str
    log_x: bool = False
    log_y: bool = False
    marked_x: float | None = None


@dataclass(frozen=True)
class _Scale:
    """A map from values to pixels."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool

    def __call__(self, value: float) -> float:
        low, high, value = (log10(v) if self.is_log else v for v in (self.low, self.high, max(value, 1e-9)))
        return self.start + (value - low) / ((high - low) or 1.0) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round values to mark: about five of them."""
        if not self.is_log:
            step = _round_step((self.high - self.low) / 5)
            return [step * count for count in range(ceil(self.low / step), floor(self.high / step) + 1)]
        powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        few = len(powers) <= 3
        found = [digit * 10.0**power for power in powers for digit in ((1, 2, 5) if few else (1,))]
        return [value for value in found if self.low <= value <= self.high * 1.0001]


def line_chart(lines: Sequence[Line], axes: Axes) -> str:
    """Return an SVG of lines, with their names beside them."""
    xs = [x for line in lines for x in line.xs]
    ys = [y for line in lines for y in line.ys]
    x = _Scale(min(xs), max(xs), LEFT, WIDTH - RIGHT, axes.log_x)
    room = 1.0 if axes.log_y else 0.04 * (max(ys) - min(ys) or 1.0)
    lowest, highest = (min(ys) / 1.15, max(ys) * 1.15) if axes.log_y else (min(ys) - room, max(ys) + room)
    y = _Scale(lowest, highest, HEIGHT - BOTTOM, TOP, axes.log_y)
    parts = [_grid(x, y, axes)]
    if axes.marked_x is not None:
        at = x(axes.marked_x)
        parts.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    for line in lines:
        points = " ".join(f"{x(px):.1f},{y(py):.1f}" for px, py in zip(line.xs, line.ys, strict=True))
        parts.append(
            f'<polyline class="line {line.style}" points="{points}"><title>{escape(line.name)}</title></polyline>'
        )
    parts += _legend(lines, axes.marked_x)
    label = escape(f"{axes.y} against {axes.x}")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _grid(x: _Scale, y: _Scale, axes: Axes) -> str:
    parts: list[str] = []
    for value in y.ticks():
        at = y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{short_number(value)}</text>'
        )
    for value in x.ticks():
        at = x(value)
        parts.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 5}"/>'
        )
        place = f'x="{at:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle"'
        parts.append(f'<text class="tick" {place}>{short_number(value)}</text>')
    middle, centre = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text class="axis" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(axes.x)}</text>')
    rotated = f'x="14" y="{centre}" text-anchor="middle" transform="rotate(-90 14 {centre})"'
    parts.append(f'<text class="axis" {rotated}>{escape(axes.y)}</text>')
    return "".join(parts)


def _legend(lines: Sequence[Line], marked_x: float | None) -> list[str]:
    """Return the names beside the chart, in the order of the lines at the marked x, or else at their ends."""

    def height(line: Line) -> float:
        return line.ys[-1] if marked_x is None else float(np.interp(marked_x, line.xs, line.ys))

    start = WIDTH - RIGHT + 18
    parts: list[str] = []
    for place, line in enumerate(sorted(lines, key=height, reverse=True)):
        y = TOP + 12 + place * LEGEND_GAP
        parts.append(f'<line class="line {line.style}" x1="{start}" x2="{start + 22}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="name" x="{start + 30}" y="{y + 4}">{escape(line.name)}</text>')
    return parts


def _round_step(step: float) -> float:
    power = 10.0 ** floor(log10(step)) if step > 0 else 1.0
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= step * 0.999)


def short_number(value: float) -> str:
    """Return a number as a person writes it on an axis: 78k, 1.2M, 0.35."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def dot_picture(rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int], size: int = 360) -> str:
    """Return a data URI of a PNG of `size` pixels square: darker where more of the entries (row, column) lie."""
    cells = tuple(min(size, max(1, count)) for count in shape)
    counts = np.zeros(cells)
    np.add.at(
        counts,
        tuple(at * cell // max(1, count) for at, cell, count in zip((rows, columns), cells, shape, strict=True)),
        1.0,
    )
    share = np.sqrt(counts / max(1.0, float(np.quantile(counts[counts > 0], 0.98)) if counts.any() else 1.0))
    grey = (255 - np.minimum(share, 1.0) * 235).astype(np.uint8)
    grey[counts == 0] = 255
    picks = [np.arange(size) * cell // size for cell in cells]
    return f"data:image/png;base64,{b64encode(_png(grey[np.ix_(*picks)])).decode()}"


def _png(grey: NDArray[np.uint8]) -> bytes:
    """Return an 8-bit grey image [height, width] as PNG."""
    height, width = grey.shape
    lines = b"".join(b"\x00" + row.tobytes() for row in grey)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
