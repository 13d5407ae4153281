"""The picture of a sweep: values moved against M, a colour for each network."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...foundation.atomic_files import replacing
from .explanation import SEARCHED
from .sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS: Final = (".png", ".svg", ".pdf")
STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "redpebble",
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}
COLORS: Final = ("#3b4cc0", "#d1495b", "#2a9d8f", "#e9a03b", "#6d3b8e", "#555555")


def check_plot(path: Path) -> None:
    """Check that a plot can be drawn, before what it shows is computed.

    Raises:
        ValueError: the name of the file ends in no known format, or matplotlib is missing.
        OSError: there is no such folder.
    """
    if path.suffix not in FORMATS:
        raise ValueError(f"cannot draw {path}, expected a file that ends in {', '.join(FORMATS)}")
    if find_spec("matplotlib") is None:
        raise ValueError("plots need matplotlib: pip install 'redpebble[plot]'")


def draw_sweeps(sweeps: Sequence[Sweep], path: Path) -> None:
    """Draw the best order, the pull order and the bound of each network, over what any order moves with any memory.

    Raises:
        ValueError: the name of the file ends in no known format, or matplotlib is missing.
        OSError: the file cannot be written.
    """
    check_plot(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE), replacing(path) as file:
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        _draw(figure.add_subplot(), sweeps)
        figure.savefig(file, format=path.suffix[1:], metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw(axes: "Axes", sweeps: Sequence[Sweep]) -> None:
    for place, one in enumerate(sweeps):
        memories = [point.memory for point in one.points]
        color = COLORS[place % len(COLORS)]
        lines = {
            "pull": ([point.moved["pull"] for point in one.points], ":"),
            SEARCHED: ([min(point.moved.values()) for point in one.points], "o-"),
            "no order below": ([point.bound for point in one.points], "--"),
        }
        for values, style in lines.values():
            axes.plot(memories, [value / max(1, one.least) for value in values], style, color=color, ms=3, lw=1.3)
        axes.plot([], [], "-", color=color, label=one.model)
    for label, style in (("best order, made for each M", "o-"), ("pull order", ":"), ("no order below", "--")):
        axes.plot([], [], style, color="#777777", ms=3, lw=1.3, label=label)
    axes.set_xscale("log")
    ticks = sorted({point.memory for one in sweeps for point in one.points})
    if len(ticks) <= len(COLORS) * 2:
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
    axes.set_xlabel("M, rows in fast memory")
    axes.set_ylabel("values moved / (W + N + S)")
    axes.legend(fontsize=9)
