"""Quality of the zoo's sentence encoders against milliseconds and bytes, and the tables of docs/sentence-encoders.md.

`python -m redpebble.bench.results.quality_plot [--size 1x128]` reads models/sentences/cards.json and the measurements
of two CPUs, measured.json and measured_amx.json, writes docs/pictures/sentence-encoders.svg and
sentence-encoders-amx.svg, and puts the tables into the page.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import matplotlib as mpl
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...foundation.atomic_files import write_text
from .page_tables import PageTable
from .picture_themes import svg_of
from .plots import COLORS, GREY, STYLE

ROOT: Final = Path(__file__).parents[2]
SENTENCES: Final = ROOT / "models" / "sentences"
PAGE: Final = ROOT / "docs" / "sentence-encoders.md"
PICTURES: Final = ROOT / "docs" / "pictures"

ENCODERS: Final = PageTable("sentence encoders", ("encoder", "runs by"), PAGE, of_machine=False)
WITH_TILES: Final = PageTable("sentence encoders with AMX", ("encoder", "runs by"), PAGE, of_machine=False)

RUNS: Final = {"": ENCODERS, "amx": WITH_TILES}
"""The end of the names of a CPU's measurements and picture -> its table."""

LABELS: Final = {
    "dense": "6 layers",
    "minilm_3": "3 layers",
    "minilm_2": "2 layers",
    "minilm_50": "50 %",
    "minilm_70": "70 %",
    "minilm_80": "80 %",
    "minilm_90": "90 %",
    "minilm_5x60": "5 x 60 %",
    "minilm_4x70": "4 x 70 %",
    "minilm_3x70": "3 x 70 %",
}
"""Ends of names that say by what an encoder runs are left out."""


TICKS: Final = (3, 4, 5, 7, 10, 15, 20, 30, 40, 60, 80)
"""Milliseconds that have numbers in pictures, as far as they are in them."""

LEAST_WHOLE: Final = 20
"""Milliseconds from which on tables have no tenths."""


class Series(NamedTuple):
    """Encoders that are drawn alike; `ending` says by what they run."""

    label: str
    names: Sequence[str]
    ending: str
    color: str
    style: str


DENSE: Final = ("dense", "minilm_3", "minilm_2")
SIX: Final = ("minilm_50", "minilm_70", "minilm_80", "minilm_90")
FEWER: Final = ("minilm_5x60", "minilm_4x70", "minilm_3x70")

SERIES: Final = (
    Series("dense, onnxruntime float32", DENSE, "", GREY, "s--"),
    Series("dense, onnxruntime int8", DENSE, "_int8", COLORS[2], "D--"),
    Series("6 layers with zeros, ours float32", SIX, "", COLORS[0], "o-"),
    Series("fewer layers with zeros, ours float32", FEWER, "", COLORS[3], "o-"),
    Series("with zeros, ours int8", (*SIX, *FEWER), "_pebble8", COLORS[1], "^"),
)


class Point(NamedTuple):
    """Figures of an encoder that runs in one way."""

    name: str
    ms: float
    megabytes: float
    cos: float
    nn: float
    recall: float


def points_of(series: Series, cards: Mapping[str, Any], measured: Mapping[str, Any], size: str) -> list[Point]:
    """The encoders of a series that were measured, from slow to fast."""
    points: list[Point] = []
    for name in series.names:
        key = name + series.ending
        figures = measured.get(key, {})
        quality = cards[name]["quality"] if name in cards and not series.ending else figures.get("quality", {})
        if quality and size in figures:
            megabytes = cards.get(name, {}).get("stored_bytes", 0) if not series.ending else 0
            parts = (quality["cos"], quality["nn"], quality.get("man_r1", float("nan")))
            points.append(Point(name, figures[size]["min_ms"], megabytes / 1e6, *parts))
    return points


def figure_of(cards: Mapping[str, Any], measured: Mapping[str, Any], size: str) -> Figure:
    """Neighbours and cosine against milliseconds, neighbours against bytes of the zoo."""
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    neighbours, cosine, stored = (figure.add_subplot(1, 3, column) for column in (1, 2, 3))
    for series in SERIES:
        points = points_of(series, cards, measured, size)
        for axes, part in ((neighbours, "nn"), (cosine, "cos")):
            _draw(axes, series, points, "ms", part)
        _draw(stored, series, [p for p in points if 0 < p.megabytes < 30], "megabytes", "nn")
    times = [point.ms for series in SERIES for point in points_of(series, cards, measured, size)]
    batch, length = size.split("x")
    for axes in (neighbours, cosine):
        axes.set_xlabel(f"ms, {batch} x {length} tokens, one thread")
        # times of eight bits and of floats are a factor apart; names stand at the left of the fastest
        axes.set_xscale("log")
        axes.set_xlim(left=0.7 * min(times), right=1.3 * max(times))
        ticks = [tick for tick in TICKS if 0.7 * min(times) < tick < 1.3 * max(times)]
        axes.set_xticks(ticks, map(str, ticks))
        axes.minorticks_off()
    stored.set_xlabel("MB stored in the zoo")
    stored.set_xlim(left=0)
    neighbours.set_title("same nearest neighbour as dense, %", loc="left", fontsize=10)
    cosine.set_title("cosine to the dense embedding", loc="left", fontsize=10)
    stored.set_title("same nearest neighbour, %", loc="left", fontsize=10)
    handles, labels = neighbours.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _draw(axes: Axes, series: Series, points: Sequence[Point], across: str, up: str) -> None:
    if not points:
        return
    places, heights = ([getattr(point, part) for point in points] for part in (across, up))
    axes.plot(places, heights, series.style, ms=5, lw=1.2, color=series.color, label=series.label)
    for point, x, y in zip(points, places, heights, strict=True):
        if series.ending:  # beside the point of the same encoder in floats
            continue
        # rivals are told below their points, ours above, those of fewer layers at their left
        place = (5, -9) if series.names == DENSE else (-2, 6) if series.names == SIX else (-6, -4)
        side = "left" if series.names == DENSE else "right"
        words = {"textcoords": "offset points", "fontsize": 8, "color": series.color, "ha": side}
        axes.annotate(LABELS[point.name], (x, y), xytext=place, **words)


def table_of(cards: Mapping[str, Any], measured: Mapping[str, Any], sizes: Sequence[str]) -> str:
    """All encoders, from slow to fast."""
    dense = measured["dense"][sizes[0]]["min_ms"]
    rows: list[tuple[float, str]] = []
    for series in SERIES:
        for point in points_of(series, cards, measured, sizes[0]):
            key = point.name + series.ending
            name = point.name if point.name in cards else "all-MiniLM-L6-v2"
            times = " | ".join(_milliseconds(measured[key][size]["min_ms"]) for size in sizes)
            way = series.label.rpartition(", ")[2]
            ratio = f"{dense / point.ms:.2f}x"
            megabytes = f"{point.megabytes:.1f}" if point.name in cards and not series.ending else ""
            quality = f"{point.cos:.3f} | {point.nn:.1f} | {point.recall:.1f}".replace("nan", "")
            row = f"| {name}: {LABELS[point.name]} | {way} | {times} | {ratio} | {quality} | {megabytes} |\n"
            rows.append((-point.ms, row))
    heads = " | ".join(f"{size} ms" for size in sizes)
    head = f"| encoder | runs by | {heads} | times as fast | cosine | NN % | recall % | MB stored |\n"
    return head + "|---" * (7 + len(sizes)) + "|\n" + "".join(row for _, row in sorted(rows))


def _milliseconds(ms: float) -> str:
    return f"{ms:.0f}" if ms >= LEAST_WHOLE else f"{ms:.1f}"


def main(size: Annotated[str, typer.Option(help="Texts and tokens of the picture.")] = "1x128") -> None:
    """Draw the pictures, and write the tables."""
    cards = json.loads((SENTENCES / "cards.json").read_text())
    for cpu, table in RUNS.items():
        ending = f"_{cpu}" if cpu else ""
        measured = json.loads((SENTENCES / f"measured{ending}.json").read_text())
        with mpl.rc_context(STYLE):
            picture = PICTURES / f"sentence-encoders{ending.replace('_', '-')}.svg"
            write_text(picture, svg_of(figure_of(cards, measured, size)))
        table.write(table_of(cards, measured, ("1x128", "8x128") if cpu else ("1x128",)).splitlines())


if __name__ == "__main__":
    typer.run(main)
