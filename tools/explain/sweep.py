"""Values that networks move against M: orders that are made or searched for each M, and what no order goes below."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from threadpoolctl import threadpool_limits

from ...foundation.atomic_files import replacing
from ...theory.figures import STYLE
from ...theory.pebbling.bounds.bounds import instance_bounds, lower_bound
from ...theory.pebbling.machine import Memory
from ...theory.pebbling.machine_compiled import count_transfers
from .explanation import MOST_SEARCHED, QUICK_ORDERS, SEARCHED, Transfers
from .neuron_graphs import FlatModel
from .saved_orders import ScheduleRequest, SearchBudget, add_counts, find_schedule
from .search_watch import SearchWatch

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class SweepRequest:
    """Sizes of fast memory in rows, ascending, the columns of a row, and how long to search for each of them."""

    memories: tuple[int, ...]
    batch_tile: int
    budget: SearchBudget

    def __post_init__(self) -> None:
        for memory in self.memories:
            Memory(memory)
        if self.batch_tile < 1:
            raise ValueError(f"expected a batch tile of 1 column or more, got {self.batch_tile}")


@dataclass(frozen=True)
class SweepPoint:
    """Values moved with one memory: by the order of each name, made for it, and at least by any order."""

    memory: int
    moved: Mapping[str, int]
    bound: int

    @property
    def best(self) -> str:
        """The name of the order that moves least."""
        return min(self.moved, key=lambda name: self.moved[name])

    @property
    def ratio(self) -> float:
        """Values that the best order moves over those that any order moves."""
        return self.moved[self.best] / max(1, self.bound)


@dataclass(frozen=True)
class Sweep:
    """The points of a model, and the values that any order moves with any memory: W + N + S."""

    model: str
    least: int
    points: tuple[SweepPoint, ...]


def sweep(name: str, model: FlatModel, request: SweepRequest, watch: SearchWatch) -> Sweep:
    """Return the transfers of orders of a model for each memory; if `watch` ends the search, for the memories begun.

    Raises:
        ValueError: the model has no linear layer with constant weights.
    """
    if not model.networks:
        raise ValueError(f"nothing to sweep: {name} {model.obstacle}")
    with threadpool_limits(1):
        least = Transfers.of(add_counts([lower_bound(one) for one in model.networks]), request.batch_tile)
        bounds = [instance_bounds(one, list(request.memories)) for one in model.networks]
        points: list[SweepPoint] = []
        for place, memory in enumerate(request.memories):
            if watch.ended_by:
                break
            bound = sum(of[place].batched_total(request.batch_tile) for of in bounds)
            points.append(SweepPoint(memory, _moved(model, memory, request, watch), bound))
    return Sweep(name, least.total, tuple(points))


def _moved(model: FlatModel, memory: int, request: SweepRequest, watch: SearchWatch) -> dict[str, int]:
    wanted = Memory(memory)
    counts = {
        name: add_counts([count_transfers(one, make(one, memory), wanted) for one in model.networks])
        for name, make in QUICK_ORDERS.items()
    }
    if sum(one.connection_count for one in model.networks) <= MOST_SEARCHED:
        counts[SEARCHED] = find_schedule(model, ScheduleRequest(memory, "min", request.budget), watch).counts
    return {name: Transfers.of(count, request.batch_tile).total for name, count in counts.items()}


def sweep_report(request: SweepRequest, sweeps: Sequence[Sweep]) -> dict[str, Any]:
    """Return sweeps as the JSON that `explain --report` writes."""
    return {
        "batch_tile": request.batch_tile,
        "seconds": request.budget.known_seconds,
        "proposals": request.budget.proposals,
        "seed": request.budget.seed,
        "models": [
            {
                "model": one.model,
                "least": one.least,
                "points": [asdict(point) | {"best": point.best, "ratio": point.ratio} for point in one.points],
            }
            for one in sweeps
        ],
    }


# The picture of a sweep: values moved against M, a colour for each network.


FORMATS: Final = (".png", ".svg", ".pdf")
COLORS: Final = ("#3b4cc0", "#d1495b", "#2a9d8f", "#e9a03b", "#6d3b8e", "#555555")


def check_plot(path: Path) -> None:
    """Check that a plot can be drawn, before what it shows is computed.

    Raises:
        ValueError: the name of the file ends in no known format, or matplotlib is missing.
        OSError: there is no such folder.
    """
    if path.suffix not in FORMATS:
        raise ValueError(f"expected a drawing that ends in {', '.join(FORMATS)}, got {path}")
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
