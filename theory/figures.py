"""The sweeps of the I/O paper, drawn: `python -m redpebble.theory.figures FOLDER [--quick] [--png]`, extra `plot`.

Each point is a network of random layers (or one layer of an encoder, or a grown network): what the 2-optimal order
moves (pull, neuron by neuron), what a searched order moves, and what no order can go below, over W + N + S. `--quick`
has small networks and short searches. The same version gives the same numbers. The sizes are ours: of the paper, arXiv
2301.01048, only the abstract was read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ..sparse.neuron_graph import NeuronGraph, from_layers
from .pebbling.bounds.bounds import instance_bounds, lower_bound
from .pebbling.machine import POLICIES, Memory
from .pebbling.machine_compiled import count_transfers
from .pebbling.orders.compact_growth import grow_layers
from .pebbling.orders.simple_orders import pull_order
from .pebbling.search.search import SearchRequest, search_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "redpebble",
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}
PULL, SEARCHED, BOUND = "pull (2-optimal)", "searched", "no order below"
STYLES: Final = ("o-", "s-", "^-", "d-", "k--")


class Size(NamedTuple):
    """Neurons of a layer, layers of connections, the share of connections, rows of fast memory, proposals."""

    width: int = 100
    depth: int = 3
    density: float = 0.1
    memory: int = 30
    proposals: int = 20_000

    def network(self) -> NeuronGraph:
        """Return a network of random layers, always the same one for a size."""
        rng, shape = np.random.default_rng(0), (self.width, self.width)
        return from_layers([rng.random(shape) < self.density for _ in range(self.depth)])


class Panel(NamedTuple):
    """A plot: a curve of multiples of W + N + S by name, at the values of `xs`."""

    title: str
    x_label: str
    xs: Sequence[float]
    curves: Mapping[str, Sequence[float]]


def sweep(title: str, x_label: str, sizes: Mapping[float, Size]) -> Panel:
    """Return what the 2-optimal and a searched order move for each size, and the bound."""
    curves: dict[str, list[float]] = {PULL: [], SEARCHED: [], BOUND: []}
    for size in sizes.values():
        network = size.network()
        for name, moved in _multiples(network, size.memory, size.proposals).items():
            curves[name].append(moved)
    return Panel(title, x_label, [*sizes], curves)


def _multiples(network: NeuronGraph, memory: int, proposals: int) -> dict[str, float]:
    least = lower_bound(network).total
    found = search_order(network, SearchRequest(memory, proposals=proposals), np.random.default_rng(0))
    return {
        PULL: count_transfers(network, pull_order(network), Memory(memory)).total / least,
        SEARCHED: found.counts.total / least,
        BOUND: instance_bounds(network, [memory])[0].total / least,
    }


def policy_panel(size: Size, memories: Sequence[int]) -> Panel:
    """Return what orders searched for each policy move under it."""
    network = size.network()
    least = lower_bound(network).total
    curves: dict[str, list[float]] = {}
    for policy in POLICIES:
        requests = [SearchRequest(memory, policy, proposals=size.proposals) for memory in memories]
        found = [search_order(network, request, np.random.default_rng(0)) for request in requests]
        curves[policy] = [one.counts.total / least for one in found]
    curves[BOUND] = [bound.total / least for bound in instance_bounds(network, memories)]
    return Panel("orders searched for each policy", "M", memories, curves)


def growth_panel(width: int, memory: int, memories: Sequence[int]) -> Panel:
    """Return what a network grown for one memory moves with others, in the order that it was grown in."""
    grown = grow_layers([width] * 4, 0.1, memory, np.random.default_rng(0))
    least = lower_bound(grown.network).total
    curves = {
        policy: [count_transfers(grown.network, grown.order, Memory(m, policy)).total / least for m in memories]
        for policy in POLICIES
    }
    curves[BOUND] = [bound.total / least for bound in instance_bounds(grown.network, memories)]
    return Panel(f"compact growth for M = {memory}", "M", memories, curves)


def encoder_panel(shape: tuple[int, int], proposals: int, memories: Sequence[int]) -> Panel:
    """Return a layer of an encoder's feed-forward part, 10 % of its weights left in random places."""
    network = from_layers([np.random.default_rng(0).random(shape) < 0.1])
    rows = [_multiples(network, memory, proposals) for memory in memories]
    curves = {name: [row[name] for row in rows] for name in (PULL, SEARCHED, BOUND)}
    return Panel(f"an encoder's layer, {shape[0]} x {shape[1]}, 10 %", "M", memories, curves)


def panels(*, quick: bool) -> dict[str, list[Panel]]:
    """Return the panels of both pictures by the picture's name."""
    base = Size(24, 3, 0.15, 10, 500) if quick else Size()
    densities = (0.1, 0.3) if quick else (0.02, 0.05, 0.1, 0.2, 0.4)
    depths = (1, 3) if quick else (1, 2, 3, 5, 8)
    widths = (16, 24) if quick else (25, 50, 100, 200)
    memories = (5, 10, 20) if quick else (5, 10, 20, 40, 80, 120)
    shape = (48, 192) if quick else (768, 3072)
    return {
        "sweeps": [
            sweep("density", "share of connections", {d: base._replace(density=d) for d in densities}),
            sweep("depth", "layers of connections", {d: base._replace(depth=d) for d in depths}),
            sweep("width", "neurons of a layer", {w: base._replace(width=w) for w in widths}),
            sweep("memory", "M", {m: base._replace(memory=m) for m in memories}),
        ],
        "policies": [
            policy_panel(base, memories[:3] if quick else (10, 20, 40, 80)),
            growth_panel(base.width, memories[1 if quick else 3], memories),
            # without a search: 235,000 connections start from the best of a dozen orders
            encoder_panel(shape, 0, (10, 20) if quick else (25, 50, 100, 200, 400)),
        ],
    }


def draw(found: Sequence[Panel]) -> Figure:
    """Return a figure of panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.3 * len(found), 3.6), layout="constrained")
    for place, panel in enumerate(found):
        axes = figure.add_subplot(1, len(found), place + 1)
        _draw_panel(axes, panel)
        if place == 0:
            axes.set_ylabel("values moved / (W + N + S)")
    return figure


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for (name, curve), style in zip(panel.curves.items(), (*STYLES[: len(panel.curves) - 1], STYLES[-1]), strict=True):
        axes.plot(panel.xs, curve, style, ms=4, label=name)
    axes.set_xscale("log")
    axes.set_xticks(panel.xs, [f"{x:g}" for x in panel.xs])
    axes.minorticks_off()
    axes.set_title(panel.title, loc="left", fontsize=10)
    axes.set_xlabel(panel.x_label)
    axes.legend(fontsize=8)


def main(words: Sequence[str], show: Callable[[str], object] = print) -> None:
    """Write `sweeps` and `policies` into a folder as .svg, with --png as .png, and print the numbers."""
    import matplotlib as mpl

    suffix = "png" if "--png" in words else "svg"
    folder = Path(next((word for word in words if not word.startswith("-")), "build/figures"))
    folder.mkdir(parents=True, exist_ok=True)
    for name, found in panels(quick="--quick" in words).items():
        with mpl.rc_context(STYLE):
            metadata = {"Date": None} if suffix == "svg" else None
            draw(found).savefig(folder / f"{name}.{suffix}", metadata=metadata)
        for panel in found:
            show(f"{panel.title}: {panel.x_label} {', '.join(f'{x:g}' for x in panel.xs)}")
            for curve, moved in panel.curves.items():
                show(f"  {curve}: {', '.join(f'{one:.3f}' for one in moved)}")


if __name__ == "__main__":
    main(sys.argv[1:])
