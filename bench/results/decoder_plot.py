"""Speed and perplexity of SmolLM2 against the bits of a weight: dense in floats and in four bits, and with half zeros.

`python -m redpebble.bench.results.decoder_plot` reads models/language/cards.json and writes
docs/pictures/language-models.svg.
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
from .quality_plot import ROOT

LANGUAGE: Final = ROOT / "models" / "language"
PICTURE: Final = ROOT / "docs" / "pictures" / "language-models.svg"

TEXTS: Final = {"docstrings": "s", "licences": "o", "fortunes": "^"}
"""Held-out texts -> their mark."""


class Point(NamedTuple):
    """A decoder: a name for readers, the bits of a weight, its speed if it was measured, and its perplexities."""

    label: str
    bits: float
    tokens_a_second: float | None
    perplexity: Mapping[str, float]
    color: str


def points_of(cards: Mapping[str, Any]) -> list[Point]:
    """The decoders, from many bits to few."""
    speed, ours = cards["speed"], cards["models"]["smollm2_50"]
    four, half = (speed[name]["bits"] for name in ("dense_int4_rounded", "smollm2_50"))
    trained = cards["not_stored"]["dense int4, all weights trained"]
    return [
        Point("dense, float32", 32.0, speed["dense_float32"]["tokens_a_second"], cards["dense_float32"], GREY),
        Point("dense, 4 bits", four, speed["dense_int4_rounded"]["tokens_a_second"], cards["dense_int4_rounded"], GREY),
        Point("dense, 4 bits, trained as long", four, None, trained, COLORS[2]),
        Point("50 %, 4 bits, not trained", half, None, ours["untrained"], COLORS[3]),
        Point("smollm2_50", half, speed["smollm2_50"]["tokens_a_second"], ours["quality"], COLORS[0]),
    ]


def figure_of(cards: Mapping[str, Any]) -> Figure:
    """Tokens a second, and perplexity of each text, against bits of a weight."""
    figure = Figure(figsize=(9, 4.4), layout="constrained")
    speed, quality = (figure.add_subplot(1, 2, column) for column in (1, 2))
    for point in points_of(cards):
        if point.tokens_a_second is not None:
            speed.plot([point.bits], [point.tokens_a_second], "s", ms=7, color=point.color)
            words = {"textcoords": "offset points", "fontsize": 9, "color": point.color, "ha": "left"}
            speed.annotate(point.label, (point.bits, point.tokens_a_second), xytext=(-2, 8), **words)
        for text, mark in TEXTS.items():
            label = point.label if text == "docstrings" and point.bits < 32 else ""
            quality.plot([point.bits], [point.perplexity[text]], mark, ms=6, color=point.color, label=label)
    for text in TEXTS:
        words = {"textcoords": "offset points", "fontsize": 9, "color": GREY, "ha": "left"}
        quality.annotate(text, (32.0, cards["dense_float32"][text]), xytext=(8, -3), **words)
    for axes, title in ((speed, "tokens a second"), (quality, "perplexity of three texts")):
        _across(axes, title)
    speed.set_ylim(bottom=0, top=85)
    quality.set_yscale("log")
    quality.set_yticks([10, 20, 40, 80], ["10", "20", "40", "80"])
    quality.minorticks_off()
    handles, labels = quality.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _across(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xscale("log")
    axes.set_xlim(left=40, right=2.6)
    axes.set_xticks([32, 16, 8, 4], ["32", "16", "8", "4"])
    axes.minorticks_off()
    axes.set_xlabel("bits of a weight")


def main() -> None:
    """Draw the picture."""
    with mpl.rc_context(STYLE):
        write_text(PICTURE, svg_of(figure_of(json.loads((LANGUAGE / "cards.json").read_text(encoding="utf-8")))))


if __name__ == "__main__":
    typer.run(main)
