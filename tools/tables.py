"""Tables of results on a terminal."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..dialect.reports.layer_report import LayerReport, Report
from ..dialect.reports.network_report import NetworkReport
from ..dialect.reports.split_report import SplitReport
from ..foundation.log import LOG
from ..kernels.machine import Machine
from ..theory.pebbling.machine import POLICIES
from ..verification.oracle import Comparison
from .console.console import console
from .explain.explanation import ExplainRequest, NetworkExplanation
from .explain.layer_tables import (
    LINED,
    TITLE,
    WORDS,
    Columns,
    layer_columns,
    reason_columns,
    report_notes,
    together,
)
from .explain.saved_orders import ScheduledGraph, ScheduleRequest
from .explain.sweep import Sweep, SweepRequest

MORE: Final = (
    "at N: for a tile of N rows of the batch, or N pixels. With --verbose: each layer, and why its kernels were chosen"
)

ROOMY: Final = 150
"""Columns of a terminal from which on each fact of a layer has a column of its own."""


def print_layers(report: Report, *, moved: bool = False) -> None:
    """Show the layers of a network, and what is to be said of all of them: equal ones together, or each if verbose."""
    if report and LOG.isEnabledFor(logging.INFO):
        console.print(layer_tables(report, moved=moved))
    elif report:
        alike = together(report)
        console.print(stacked(layer_columns(alike, moved=moved)))
        if any(layer.structure or layer.reason for layer in report):
            console.print(MORE, highlight=False)
    for note in report_notes(report):
        console.print(note, highlight=False)


def layer_tables(layers: Sequence[LayerReport], *, moved: bool = False) -> Group:
    """Return a row for each linear layer, and one that says why; with `moved` also the kilobytes of its tiles."""
    columns = layer_columns(layers, moved=moved)
    numbers = _filled(columns) if console.width >= ROOMY else stacked(columns)
    return Group(TITLE, numbers, "", _filled(reason_columns(layers)))


def stacked(columns: Columns) -> Group:
    """Return a line for each layer, and below it the lines of its kernels: all that fits into 80 columns."""
    lined = {header: columns[header] for header in LINED if header in columns}
    longest = {
        header: max((len(line) for line in (header, *(line for cell in cells for line in cell))), default=0)
        for header, cells in lined.items()
    }

    def grid(rows: Iterable[Sequence[str]]) -> Table:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for width in (1, *longest.values()):
            table.add_column(width=width, no_wrap=True)
        for row in rows:
            table.add_row("", *row)
        return table

    parts: list[RenderableType] = [grid([[f"[bold]{header}[/]" for header in lined]])]
    for place, (name,) in enumerate(columns["layer"]):
        inputs, outputs, connections, density, kind = (
            columns[header][place][0] for header in ("inputs", "outputs", "connections", "density", "format")
        )
        facts = f"{name}: {inputs} -> {outputs}, {connections} connections, density {density}, {kind}"
        parts += [Text(facts), grid(zip(*(cells[place] for cells in lined.values()), strict=True))]
    return Group(*parts)


def _filled(columns: Columns) -> Table:
    table = _table(*columns)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*("\n".join(lines) for lines in cells))
    return table


def network_table(networks: Sequence[NetworkReport]) -> Table:
    """Return a line for each sparse network."""
    table = _table("sparse network", "operators", "layers", "connections", "density", "why")
    for network in networks:
        sizes = (str(network.operators), str(network.layers), f"{network.connections:,}", f"{network.density:.3f}")
        table.add_row(network.name, *sizes, network.reason)
    return table


def split_table(splits: Sequence[SplitReport]) -> Table:
    """Return a line for each chain of layers that is computed in groups."""
    table = _table("split from", "layers", "weights", "why")
    for split in splits:
        table.add_row(split.name, str(split.layers), f"{split.weights:,}", split.reason)
    return table


def orders_shown(network: NetworkExplanation, request: ExplainRequest) -> RenderableType:
    """Return the transfers of orders: a sentence if every order meets the lower bound, else a table."""
    fewest = network.instance_lower
    if all(moved.total == fewest for order in network.orders.values() for moved in order.values()):
        why = ", ".join(network.arguments)
        text = f"the order does not matter, each moves {fewest:,} and none could move fewer ({why})"
        return Text(f"{_moved_title(request)}: {text}")
    return order_table(network, request)


def _moved_title(request: ExplainRequest) -> str:
    return f"values moved, M = {request.memory:,} rows of {request.batch_tile:,}"


_OTHERS: Final = POLICIES[1:]
"""The policies of which only the ratio is shown."""


def order_table(network: NetworkExplanation, request: ExplainRequest) -> Table:
    """Return a line for each order and bound: values moved, and how many times the fewest certified."""
    table = _table(
        "order", "min reads", "min writes", "min total", "ratio", *(f"{policy}\nratio" for policy in _OTHERS)
    )
    table.title = _moved_title(request)
    table.title_justify = "left"
    fewest = max(1, network.instance_lower)
    for name, moved in sorted(network.orders.items(), key=lambda item: item[1]["min"].total):
        best = moved["min"]
        numbers = (f"{best.reads:,}", f"{best.writes:,}", f"{best.total:,}", f"{best.total / fewest:.3f}")
        table.add_row(name, *numbers, *(f"{moved[policy].total / fewest:.3f}" for policy in _OTHERS))
    table.add_section()
    for name, bound in (("no order below, any memory", network.lower), ("pull order, room for three", network.upper)):
        numbers = (f"{bound.reads:,}", f"{bound.writes:,}", f"{bound.total:,}", f"{bound.total / fewest:.3f}")
        table.add_row(name, *numbers)
    certified = f"no order below, this memory ({', '.join(network.arguments)})"
    table.add_row(certified, "", "", f"{network.instance_lower:,}", "1.000")
    return table


def schedule_table(lines: Sequence[ScheduledGraph], request: ScheduleRequest) -> Table:
    """Return a line for each graph of a model, and one for all of them."""
    table = _table("graph", "connections", "start", "reads", "writes", "total", "no order\nbelow", "ratio")
    table.title = f"values moved, M = {request.memory:,}, {request.policy}"
    table.title_justify = "left"
    for line in lines:
        numbers = (line.reads, line.writes, line.reads + line.writes, line.bound)
        words = (line.graph, f"{line.connections:,}", line.start)
        table.add_row(*words, *(f"{number:,}" for number in numbers), f"{line.ratio:.3f}")
    return table


def sweep_table(sweep: Sweep, request: SweepRequest) -> Table:
    """Return a line for each memory: what orders move that are made for it, and the ratio of the best one."""
    names = [*sweep.points[0].moved] if sweep.points and console.width >= ROOMY else []
    table = _table("M", *(name.replace(" ", "\n") for name in names), "best", "order", "no order\nbelow", "ratio")
    rows = "" if request.batch_tile == 1 else f", M rows of {request.batch_tile:,}"
    table.title = f"{sweep.model}: values moved{rows}, by orders made for each M"
    table.title_justify = "left"
    for point in sweep.points:
        moved = [f"{point.moved[name]:,}" for name in (*names, point.best)]
        table.add_row(f"{point.memory:,}", *moved, point.best, f"{point.bound:,}", f"{point.ratio:.3f}")
    return table


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Return a line for each output compared."""
    table = _table("output", "max error", "mean error", "verdict")
    for one in comparisons:
        verdict = f"{one.mismatches} values differ" if one.mismatches else "agrees"
        table.add_row(one.name, f"{one.max_error:.2e}", f"{one.mean_error:.2e}", verdict)
    return table


def summary_table(before: Mapping[str, int], after: Mapping[str, int]) -> Table:
    """Return a line for each number of a model before and after."""
    table = _table("", "before", "after")
    for name, value in before.items():
        table.add_row(name, f"{value:,}", f"{after[name]:,}")
    return table


def machine_line(machine: Machine) -> str:
    """Return the measurements of a machine as tables."""
    caches = f"{machine.l1_bytes >> 10} KiB and {machine.l2_bytes >> 10} KiB of cache a core"
    speeds = f"{1 / machine.l3_ns:.0f} GB/s from beyond them, {1 / machine.dram_ns:.0f} from memory"
    count = len(machine.examples.words)
    kernels = f"kernels are measured on {count} layers" if count else "no kernels"
    return f"{machine.lanes} floats a vector, {caches}, {speeds}; {kernels}"


def _table(*headers: str) -> Table:
    words = {
        "",
        "sparse network",
        "split from",
        "stays",
        "order",
        "start",
        *WORDS,
        "output",
        "verdict",
        "engine",
    }
    table = Table(box=None, header_style="bold", pad_edge=False)
    for header in headers:
        is_number = header not in words
        # what gives way where there is no room are words: a number in two lines is two numbers
        table.add_column(
            header, justify="right" if is_number else "left", overflow="fold", no_wrap=is_number or header in LINED
        )
    return table
