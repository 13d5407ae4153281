"""Charts as SVG text, in two shapes: for wide screens and for phones. Names stand at the lines and dots."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

LETTER, LINE_HEIGHT = 6.9, 15.0
"""Width and height of a letter of a name, in pixels of the chart."""

FAR, PER_PIXEL = 24.0, 12.0
"""Pixels to the next line from which on a name is not mistaken, and the worth of each in pixels not covered."""


@dataclass(frozen=True)
class Frame:
    """The size of a chart, and the room around its plot, in pixels."""

    style: str
    width: float
    height: float
    left: float = 62
    right: float = 16
    top: float = 14
    bottom: float = 50


FRAMES: Final = (Frame("wide", 960, 420), Frame("narrow", 400, 380, left=52, right=10))
"""The chart for wide screens, and the one for phones; the style sheet shows one of them."""


@dataclass(frozen=True)
class Line:
    """A named line through points; `style` is a class of the page's style sheet."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    style: str


class Dot(NamedTuple):
    """A dot: its tooltip, its place, and the name beside it, which may be empty."""

    told: str
    x: float
    y: float
    name: str = ""


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


class _Scales(NamedTuple):
    x: _Scale
    y: _Scale


def line_chart(lines: Sequence[Line], axes: Axes) -> str:
    """Return the SVGs of lines, each with its name; lines that are the same are one with several names."""
    return _charts(_joined(lines), (), axes)


def scatter_chart(dots: Sequence[Dot], lines: Sequence[Line], axes: Axes) -> str:
    """Return the SVGs of dots over lines."""
    return _charts(lines, dots, axes)


def _charts(lines: Sequence[Line], dots: Sequence[Dot], axes: Axes) -> str:
    return "".join(_chart(lines, dots, axes, frame) for frame in FRAMES)


def _chart(lines: Sequence[Line], dots: Sequence[Dot], axes: Axes, frame: Frame) -> str:
    scales = _scales(lines, dots, axes, frame)
    parts = [_grid(scales, axes, frame)]
    if axes.marked_x is not None:
        at = scales.x(axes.marked_x)
        bottom = frame.height - frame.bottom
        parts.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{frame.top}" y2="{bottom}"/>')
    drawn = [[(scales.x(x), scales.y(y)) for x, y in zip(line.xs, line.ys, strict=True)] for line in lines]
    for line, points in zip(lines, drawn, strict=True):
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(
            f'<polyline class="line {line.style}" points="{text}"><title>{escape(line.name)}</title></polyline>'
        )
    centres = [(scales.x(dot.x), scales.y(dot.y)) for dot in dots]
    for dot, (x, y) in zip(dots, centres, strict=True):
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="6"><title>{escape(dot.told)}</title></circle>')
    named = [*zip((line.name for line in lines), drawn, strict=True)]
    named += [(dot.name, [centre]) for dot, centre in zip(dots, centres, strict=True) if dot.name]
    parts += _names(named, [*drawn, *([centre] for centre in centres)], frame)
    label = escape(f"{axes.y} against {axes.x}")
    box = f'viewBox="0 0 {frame.width:g} {frame.height:g}"'
    return f'<svg class="{frame.style}" {box} role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _joined(lines: Sequence[Line]) -> list[Line]:
    """Return lines, those through the same points as one."""
    kept: dict[tuple[tuple[float, ...], tuple[float, ...]], Line] = {}
    for line in lines:
        place = tuple(line.xs), tuple(line.ys)
        known = kept.get(place)
        # the last one is the one that matters most
        kept[place] = line if known is None else replace(line, name=f"{known.name}, {line.name}")
    return list(kept.values())


def _scales(lines: Sequence[Line], dots: Sequence[Dot], axes: Axes, frame: Frame) -> _Scales:
    xs = [*(x for line in lines for x in line.xs), *(dot.x for dot in dots)]
    ys = [*(y for line in lines for y in line.ys), *(dot.y for dot in dots)]
    room = 1.0 if axes.log_y else 0.04 * (max(ys) - min(ys) or 1.0)
    lowest, highest = (min(ys) / 1.3, max(ys) * 1.3) if axes.log_y else (min(ys) - room, max(ys) + room)
    return _Scales(
        _Scale(min(xs), max(xs), frame.left, frame.width - frame.right, axes.log_x),
        _Scale(lowest, highest, frame.height - frame.bottom, frame.top, axes.log_y),
    )


def _grid(scales: _Scales, axes: Axes, frame: Frame) -> str:
    parts: list[str] = []
    right, bottom = frame.width - frame.right, frame.height - frame.bottom
    for value in scales.y.ticks():
        at = scales.y(value)
        parts.append(f'<line class="grid" x1="{frame.left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        place = f'x="{frame.left - 8}" y="{at + 4:.1f}" text-anchor="end"'
        parts.append(f'<text class="tick" {place}>{short_number(value)}</text>')
    for value in scales.x.ticks():
        at = scales.x(value)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 5}"/>')
        anchor = "end" if at > right - 12 else "middle"
        place = f'x="{at:.1f}" y="{bottom + 20}" text-anchor="{anchor}"'
        parts.append(f'<text class="tick" {place}>{short_number(value)}</text>')
    middle, centre = (frame.left + right) / 2, (frame.top + bottom) / 2
    parts.append(f'<text class="axis" x="{middle}" y="{frame.height - 8}" text-anchor="middle">{escape(axes.x)}</text>')
    rotated = f'x="12" y="{centre}" text-anchor="middle" transform="rotate(-90 12 {centre})"'
    parts.append(f'<text class="axis" {rotated}>{escape(axes.y)}</text>')
    return "".join(parts)


Points = Sequence[tuple[float, float]]

Boxes = NDArray[np.float64]
"""Rectangles [count, 4]: left, top, right, bottom."""


def _names(named: Sequence[tuple[str, Points]], drawn: Sequence[Points], frame: Frame) -> list[str]:
    """Return labels beside their lines, placed where they overlap lines, dots and other labels least."""
    along = [_boxes_along(points) for points in drawn]
    obstacles = np.concatenate(along)
    parts: list[str] = []
    for name, points in named:
        shown, own = _fitting(name, frame), _boxes_along(points)
        few = own[:: max(1, len(own) // 60)]
        places = _places(few, LETTER * len(shown), frame)
        # what is named may be touched, rather than another line; where lines run together a name says nothing
        cost = _overlaps(places, obstacles).sum(axis=1) - 0.5 * _overlaps(places, own).sum(axis=1)
        cost -= PER_PIXEL * np.repeat(_distances(few, [other for other in along if not np.array_equal(other, own)]), 4)
        best = places[int(cost.argmin())]
        obstacles = np.concatenate([obstacles, np.repeat(best[None], 4, axis=0)])
        parts.append(f'<text class="name" x="{best[0]:.1f}" y="{best[3] - 4:.1f}">{escape(shown)}</text>')
    return parts


def _fitting(name: str, frame: Frame) -> str:
    """Return a name that is no wider than the plot."""
    most = int((frame.width - frame.left - frame.right) / LETTER) - 2
    return name if len(name) <= most else f"{name[: most - 3]}..."


def _boxes_along(points: Points) -> Boxes:
    """Return small boxes on the way through points."""
    centres = list(points)
    for (x, y), (next_x, next_y) in pairwise(points):
        count = ceil(max(abs(next_x - x), abs(next_y - y)) / 6)
        centres += [(x + (next_x - x) * at / count, y + (next_y - y) * at / count) for at in range(1, count)]
    return np.array([(x - 3, y - 3, x + 3, y + 3) for x, y in centres], dtype=np.float64)


def _distances(boxes: Boxes, lines: Sequence[Boxes]) -> NDArray[np.float64]:
    """Return how far boxes are from the nearest of other lines, in pixels, as far as it matters."""
    if not lines:
        return np.zeros(len(boxes))
    others = np.concatenate(lines)
    apart = np.hypot(*(boxes[:, None, axis] - others[None, :, axis] for axis in (0, 1)))
    return np.minimum(apart.min(axis=1), FAR)


def _places(few: Boxes, width: float, frame: Frame) -> Boxes:
    """Return boxes for a name close to others, inside of the plot: above, below and beside each."""
    lefts = np.stack([few[:, 0] + 6, few[:, 0] + 6, few[:, 0] - width, few[:, 0] + 16], axis=1).ravel()
    bottoms = np.stack([few[:, 1] + room for room in (-3.0, LINE_HEIGHT + 10, -3.0, LINE_HEIGHT / 2 + 6)], axis=1)
    left = np.clip(lefts, frame.left + 3, max(frame.left + 3, frame.width - frame.right - width))
    bottom = np.clip(bottoms.ravel(), frame.top + LINE_HEIGHT, frame.height - frame.bottom)
    return np.stack([left, bottom - LINE_HEIGHT, left + width, bottom], axis=1)


def _overlaps(boxes: Boxes, others: Boxes) -> NDArray[np.float64]:
    """Return the common area of each pair of boxes, [boxes, others]."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.clip(high - low, 0.0, None).prod(axis=2)


def _round_step(step: float) -> float:
    power = 10.0 ** floor(log10(step)) if step > 0 else 1.0
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= step * 0.999)


def short_number(value: float) -> str:
    """Return a number as a person writes it on an axis: 78k, 1.2M, 0.35."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"
