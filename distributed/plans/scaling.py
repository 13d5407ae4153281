"""Predicted times of every plan by the number of machines: a table, and a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from .plans import KINDS, Candidate, PlanRequest, plan

_FORMATS = (".png", ".svg", ".pdf")
_COLORS = {"batch": "#0072b2", "rows": "#d55e00", "layers": "#009e73", "nodes": "#cc79a7"}


@dataclass(frozen=True)
class Scaling:
    """Candidates by number of parts, ascending, and by kind; all for the same batch."""

    batch: int
    candidates: Mapping[int, Mapping[str, Candidate]]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds to compare: nodes only for models over graphs."""
        found = {kind for by_kind in self.candidates.values() for kind in by_kind}
        return tuple(kind for kind in KINDS if kind != "nodes" or kind in found)


def predict_scaling(module: ModuleOp, requests: Sequence[PlanRequest]) -> Scaling:
    """Return the predictions for requests that differ in their numbers of parts.

    Raises:
        UnsupportedModelError: no plan works for this model.
        ValueError: there is no request.
    """
    if not requests:
        raise ValueError("expected one number of parts or more, got none")
    found: dict[int, Mapping[str, Candidate]] = {}
    for request in sorted(requests, key=lambda one: one.part_count):
        found[request.part_count] = {one.kind: one for one in plan(module, request).candidates}
    return Scaling(requests[0].batch, found)


def scaling_lines(scaling: Scaling) -> list[str]:
    """Return a line for each number of parts: milliseconds of each plan."""
    lines = [
        f"predicted ms of {scaling.batch:,} samples",
        f"{'parts':>6}" + "".join(f"{kind:>12}" for kind in scaling.kinds),
    ]
    for count, by_kind in scaling.candidates.items():
        times = (by_kind[kind].time.seconds * 1e3 if kind in by_kind else None for kind in scaling.kinds)
        lines.append(f"{count:>6}" + "".join(f"{'-':>12}" if time is None else f"{time:>12,.3f}" for time in times))
    return lines


def save_scaling_plot(scaling: Scaling, title: str, path: Path) -> None:
    """Draw the times and the memory a machine needs against the number of machines.

    Raises:
        ValueError: the name of the file ends in no known format, or matplotlib is missing.
    """
    if path.suffix not in _FORMATS:
        raise ValueError(f"expected a drawing that ends in {', '.join(_FORMATS)}, got {path}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError(f"plots need matplotlib: pip install 'redpebble[plot]' ({error})") from error

    figure = Figure(figsize=(9, 4), layout="constrained")
    times, room = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    for kind in scaling.kinds:
        found = [(count, by_kind[kind]) for count, by_kind in scaling.candidates.items() if kind in by_kind]
        counts = [count for count, _ in found]
        style = {"label": kind, "color": _COLORS[kind], "markersize": 4}
        times.plot(counts, [one.time.seconds * 1e3 for _, one in found], "o-", **style)
        room.plot(counts, [one.memory / (1 << 20) for _, one in found], "o-", **style)
    for axes, label in ((times, f"predicted ms for {scaling.batch:,} samples"), (room, "MiB a machine")):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks([*scaling.candidates], [str(count) for count in scaling.candidates])
        axes.minorticks_off()
        axes.set_xlabel("machines")
        axes.set_ylabel(label)
        axes.set_title(title, loc="left", fontsize=10)
    times.legend(loc="best", ncols=1, fontsize=9)
    figure.savefig(path)
