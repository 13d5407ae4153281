"""Plots of a result: speedup against sparsity, kernels beside MKL's, and the roofline.

`python -m redpebble.bench.results.plots build/bench.json [--folder bench/plots] [--suffix svg]` writes speedup, kernels
and roofline. The same result gives the same bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Annotated, Final

import matplotlib as mpl
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...foundation.atomic_files import write_text
from ...sparse.csr import CONNECTION_BYTES
from ...tools.benching.layer_cases import BATCHES
from ...tools.benching.results import CEILING, Result, Row, read_result, with_minima
from ...tools.console.console import console
from .picture_themes import svg_of

COLORS: Final = ("#3b4cc0", "#2a9d8f", "#e9a03b", "#d1495b", "#6d3b8e")
GREY: Final = "#777777"


STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "redpebble",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}


def speedup_plot(result: Result) -> Figure:
    """Return how many times as fast as onnxruntime a call of one layer is, against its sparsity."""
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    threads = sorted({row.threads for row in result.rows if row.suite == "grid"}) or [1]
    first: Axes | None = None
    for column, count in enumerate(threads):
        axes = figure.add_subplot(1, len(threads), column + 1, sharey=first)
        first = first or axes
        rows = [row for row in result.rows if (row.suite, row.engine, row.threads) == ("grid", "redpebble", count)]
        for batch, color in zip(BATCHES, COLORS, strict=True):
            points = _means([row for row in rows if row.batch == batch], _speedup)
            # the distance to 1 is what sparsity divides: on its logarithm a factor of two is a step
            axes.plot(
                [1 / (1 - x) for x in points], [*points.values()], "o-", ms=4, color=color, label=f"batch {batch}"
            )
        _mark_dense(axes)
        axes.set_title(f"{count} thread{'s' if count > 1 else ''}", loc="left", fontsize=10)
        axes.set_xlabel("sparsity")
    if first is not None:
        first.set_ylabel("times as fast as dense onnxruntime")
        first.legend(loc="upper left")
    return figure


def _mark_dense(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    marks = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
    axes.set_xticks([1 / (1 - mark) for mark in marks], [f"{mark:g}" for mark in marks])
    axes.minorticks_off()
    heights = (0.5, 1, 2, 5, 10, 20, 50, 100)
    axes.set_yticks(heights, [f"{height:g}x" for height in heights])
    axes.axhline(1.0, color=GREY, lw=1, ls="--")


def kernel_plot(result: Result) -> Figure:
    """Plot the speed of our kernels and MKL's on one thread against the sparsity, with the ceiling of the ports."""
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    first: Axes | None = None
    for column, batch in enumerate(BATCHES):
        axes = figure.add_subplot(1, len(BATCHES), column + 1, sharey=first)
        first = first or axes
        rows = [row for row in result.rows if (row.suite, row.batch, row.threads) == ("kernel", batch, 1)]
        lines = (
            ("redpebble", "redpebble", COLORS[0], "o-"),
            ("mkl", "MKL", COLORS[3], "s-"),
            (CEILING, "ports", GREY, ":"),
        )
        for engine, label, color, style in lines:
            points = _means([row for row in rows if row.engine == engine], _gflops)
            axes.plot(range(len(points)), [*points.values()], style, ms=4, color=color, label=label)
            axes.set_xticks(range(len(points)), [f"{x:g}" for x in points])
        axes.set_title(f"batch {batch}", loc="left", fontsize=10)
        axes.set_xlabel("sparsity")
    if first is not None:
        first.set_ylim(bottom=0)
        first.set_ylabel("effective GFLOP/s, one thread")
        first.legend(loc="center left")
    return figure


def roofline_plot(result: Result) -> Figure:
    """Return GFLOP/s of the kernels against operations a byte that has to be read or written at least once."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    rows = [row for row in result.rows if row.suite == "kernel" and row.threads == 1]
    for engine, name, marker in (("mkl", "MKL", "x"), ("redpebble", "redpebble", "o")):
        for batch, color in zip(BATCHES, COLORS, strict=True):
            found = [row for row in rows if (row.engine, row.batch) == (engine, batch)]
            places, heights = [intensity(row) for row in found], [row.gflops for row in found]
            label = f"{name}, batch {batch}"
            axes.scatter(places, heights, s=20, marker=marker, color=color, label=label, lw=1, alpha=0.8)
    _mark_roofs(axes, result.ceilings, [intensity(row) for row in rows] or [1.0])
    axes.set_xlabel("floating-point operations a byte (6 bytes a connection, x and y once)")
    axes.set_ylabel("effective GFLOP/s, one thread")
    axes.legend(loc="lower right", ncols=2, fontsize=8)
    return figure


def _mark_roofs(axes: Axes, ceilings: Mapping[str, float], places: Sequence[float]) -> None:
    """Draw what memory at each distance and the ports allow, and make both axes logarithmic."""
    left, right = min(places) / 2, 2 * max(places)
    peak = ceilings.get("fma", ceilings.get("ports", 1.0))
    words = {"textcoords": "offset points", "color": GREY, "fontsize": 8}
    for name, style in (("L1", "-"), ("L2", "--"), ("L3", "-."), ("DRAM", ":")):
        speed = ceilings.get(name)
        if speed is not None:
            axes.plot([left, peak / speed, right], [left * speed, peak, peak], style, color=GREY, lw=1)
            axes.annotate(f"{name} {speed:.0f} GB/s ", (left, left * speed), xytext=(-2, -3), ha="right", **words)
    axes.annotate(f"multiply-adds {peak:.0f} GF", (right, peak), xytext=(-2, 4), ha="right", **words)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left=left / 3)
    widths, heights = (0.1, 0.3, 1, 3, 10, 30, 100), (1, 2, 5, 10, 20, 50, 100, 200)
    axes.set_xticks(widths, [f"{width:g}" for width in widths])
    axes.set_yticks(heights, [f"{height:g}" for height in heights])
    axes.minorticks_off()


def intensity(row: Row) -> float:
    """Return operations a byte: weights with their places once, x and y once."""
    read = CONNECTION_BYTES * row.connections + 4 * row.batch * (row.inputs + row.outputs)
    return 2 * row.connections * row.batch / read


def _means(rows: Sequence[Row], value: Callable[[Row], float]) -> dict[float, float]:
    """Return the geometric mean over shapes by sparsity, ascending."""
    sparsities = sorted({row.sparsity for row in rows})
    return {one: geometric_mean(value(row) for row in rows if row.sparsity == one) for one in sparsities}


def _speedup(row: Row) -> float:
    return row.speedup_vs_onnxruntime or 1.0


def _gflops(row: Row) -> float:
    return row.gflops


PLOTS: Final[Mapping[str, Callable[[Result], Figure]]] = {
    "speedup": speedup_plot,
    "kernels": kernel_plot,
    "roofline": roofline_plot,
}


def main(
    result: Annotated[Path, typer.Argument(help="What `make bench` wrote.")],
    folder: Annotated[Path, typer.Option(help="Where the plots go.")] = Path("bench/plots"),
    suffix: Annotated[str, typer.Option(help="svg or png.")] = "svg",
    *,
    minima: Annotated[bool, typer.Option(help="Show the fastest rounds, not the medians.")] = False,
) -> None:
    """Draw the plots."""
    measured = with_minima(read_result(result)) if minima else read_result(result)
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, plot in PLOTS.items():
            path = folder / f"{name}.{suffix}"
            figure = plot(measured)
            if suffix == "svg":
                write_text(path, svg_of(figure))
            else:
                figure.savefig(path)
            console.print(str(path), highlight=False)


if __name__ == "__main__":
    typer.run(main)
