"""Quality and speed of a trained model against its zeros: the picture on the first screen of the README.

`python -m redpebble.bench.results.headline_plot` reads models/sentences/cards.json and measured.json, and writes
docs/pictures/headline.svg.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import matplotlib as mpl
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...foundation.atomic_files import write_text
from .picture_themes import svg_of
from .plots import COLORS, GREY, STYLE
from .quality_plot import ROOT, SENTENCES, SIX

PICTURE: Final = ROOT / "docs" / "pictures" / "headline.svg"
SIZE: Final = "1x128"
"""Texts and tokens of a call."""


class Point(NamedTuple):
    """An encoder: its zeros in per cent, how often it finds the right text, and its speed over the dense one's."""

    zeros: float
    recall: float
    speed: float


def points_of(cards: Mapping[str, Any], measured: Mapping[str, Any]) -> list[Point]:
    """The dense encoder in onnxruntime, and those of as many layers with zeros, from few zeros to many."""
    dense = measured["dense"]
    base = dense[SIZE]["min_ms"]
    sparse = [
        Point(100 * cards[name]["zeros"], cards[name]["quality"]["man_r1"], base / measured[name][SIZE]["min_ms"])
        for name in SIX
    ]
    return [Point(0.0, dense["quality"]["man_r1"], 1.0), *sparse]


def figure_of(points: list[Point]) -> Figure:
    """Two panels, an encoder a place: right answers, from none to all, and times as fast."""
    figure = Figure(figsize=(6.0, 2.7), layout="constrained")
    quality, speed = (figure.add_subplot(1, 2, column) for column in (1, 2))
    zeros = [f"{point.zeros:.0f} %" if point.zeros else "dense" for point in points]
    _draw(quality, zeros, [point.recall for point in points], COLORS[3], "{:.0f} %")
    _draw(speed, zeros, [point.speed for point in points], COLORS[0], "{:.1f}x")
    quality.set_title("right text found first", loc="left", fontsize=13)
    quality.set_ylim(bottom=0, top=100)
    quality.set_yticks([0, 50, 100], ["0", "50 %", "100 %"])
    speed.set_title("times as fast", loc="left", fontsize=13)
    speed.set_ylim(bottom=0, top=4.4)
    speed.axhline(1, color=GREY, lw=0.8, ls=":")
    return figure


def _draw(axes: Axes, zeros: list[str], heights: list[float], color: str, words: str) -> None:
    places = list(range(len(zeros)))
    axes.plot(places, heights, "o-", ms=6, lw=2, color=color)
    for place, height in zip(places, heights, strict=True):
        text = {"textcoords": "offset points", "ha": "right", "color": color, "fontsize": 12}
        axes.annotate(words.format(height), (place, height), xytext=(4, 9), **text)
    axes.set_xticks(places, zeros)
    axes.set_xlabel("zeros")
    axes.set_xlim(left=-0.6, right=len(zeros) - 0.6)


def main() -> None:
    """Draw the picture."""
    cards, measured = (json.loads((SENTENCES / f"{name}.json").read_text()) for name in ("cards", "measured"))
    with mpl.rc_context(STYLE):
        write_text(PICTURE, svg_of(figure_of(points_of(cards, measured))))


if __name__ == "__main__":
    typer.run(main)
