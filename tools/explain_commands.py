"""Layers as `compile` runs them, and what orders of connections move: `explain`, also as a call, and `schedule`."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from rich.table import Table
from xdsl.dialects.builtin import ModuleOp

from .. import __version__
from ..dialect.ops.foreign import ForeignOp
from ..dialect.ops.graphs import AggregateOp, OverEdges
from ..dialect.ops.images import Conv2dOp, image_shape
from ..dialect.provenance import node_name
from ..dialect.reports.layer_report import Report
from ..dialect.reports.module_report import module_report
from ..dialect.tensors import DYNAMIC, shape_of
from ..driver.compiler import optimize
from ..driver.native_build import imported_for_reports
from ..driver.stated_sizes import with_sizes
from ..foundation.atomic_files import write_text
from ..frontend.errors import within_limits
from ..frontend.import_model import Imported, Source
from ..kernels.graphs.aggregate_cost import EDGES_OF_NODE, NODES_OF_CALL
from ..options import Options
from ..passes.analysis.weights import weight_of
from ..passes.kernels.annotate_io_bounds import bounds_of
from ..pipeline import run_stages
from ..runtime.jit import host_target
from ..runtime.store.cache import default_folder
from ..tuning.calibration import cpu_model
from ..tuning.group_timing import measure_groups
from ..tuning.measure_kernels import Tuning, measure_chosen
from .console.console import console
from .console.working import working
from .explain.attention_table import attention_lines, attention_table
from .explain.explanation import ExplainRequest, Explanation, explanation_report
from .explain.explanation import explain as explain_flat
from .explain.lowering_levels import levels_report, lowering_of
from .explain.memory_sizes import spread_sizes
from .explain.neuron_graphs import flat_model, flattened
from .explain.page.page import explain_page
from .explain.saved_orders import (
    ScheduleRequest,
    SearchBudget,
    find_schedule,
    graph_bounds,
    save_schedule,
    schedule_lines,
)
from .explain.search_watch import SearchWatch, end_where_asked, watched_search
from .explain.story import Origin, Story, layer_times, total_line
from .explain.sweep import SweepRequest, check_plot, draw_sweeps, sweep, sweep_report
from .headline import gain_sentence, print_gain
from .inspection import NOTHING_SHOWN, Inspection
from .json_reports import STANDARD_OUTPUT, write_report
from .tables import orders_shown, print_layers, schedule_table, sweep_table

# The story of a model as a file: JSON, or the page.


def story_of(named: tuple[str, Source], explanation: Explanation, options: Options, gain: str = "") -> Story:
    """Return the story of a model with a name; its orders are explained and its layers reported; `gain` begins it.

    Raises:
        ModelError: the model is unreadable.
    """
    name, model = named
    lowering = lowering_of(model, options)
    return Story(
        name=name,
        origin=Origin(__version__, f"redpebble {shlex.join(sys.argv[1:])}", cpu_model(), str(date.today())),
        machine=options.machine,
        lowering=lowering,
        layer_times={
            batch: layer_times(
                explanation.report, [rows.get(layer.name, batch) for layer in explanation.report], lowering.left
            )
            for batch, rows in lowering.rows.items()
        },
        explanation=explanation,
        gain=gain,
    )


def write_story(report: Path, story: Story) -> None:
    """Write a story as the page, where the file ends in .html, or else as JSON.

    Raises:
        OSError: the file cannot be written.
    """
    if report.suffix == ".html":
        write_text(report, explain_page(story))
        return
    attentions = [line.report() for line in story.attentions]
    levels = levels_report(story.lowering)
    report_of = {**explanation_report(story.explanation), "attentions": attentions, "levels": levels}
    write_report(report, "explain", report_of)


# Ops over the edges of a graph: their sizes, and the order of products with the prices of both orders.


class EdgeLine(NamedTuple):
    """An op over edges."""

    name: str
    nodes: int | None
    """Number of targets; None where a call brings the edges."""
    edges: int | None
    features: int
    order: str
    """The product that comes first, and the predicted times of both orders."""


def edge_lines(module: ModuleOp) -> list[EdgeLine]:
    """Return the ops over edges of a simplified module."""
    ops = [op for op in module.walk() if isinstance(op, OverEdges)]
    return [EdgeLine(node_name(op), *_counts(op), shape_of(op.x)[-1], _order(op)) for op in ops]


def _counts(op: OverEdges) -> tuple[int | None, int | None]:
    """Return the numbers of nodes and edges; None for those of the call."""
    return (None, None) if op.of_call else (op.edges.shape[1], len(op.edges.values))


def _order(op: OverEdges) -> str:
    if not isinstance(op, AggregateOp):
        return "scores and weights of edges computed where they are used"
    if op.order is None:
        return "no layer beside it may change places with it"
    of_call = f" ({NODES_OF_CALL:,} nodes of {EDGES_OF_NODE} edges)" if op.of_call else ""
    return op.order.sentence + of_call


def edge_table(lines: Sequence[EdgeLine]) -> Table:
    """Return a row for each line."""
    table = Table(box=None, pad_edge=False, header_style="")
    for header in ("over edges", "nodes", "edges", "features", "order of products"):
        table.add_column(header, justify="right" if header in ("nodes", "edges", "features") else "left")
    for line in lines:
        counts = ("of the call" if count is None else f"{count:,}" for count in (line.nodes, line.edges))
        table.add_row(line.name, *counts, f"{line.features:,}", line.order)
    return table


# Bounds of convolutions in a line: a pixel of one is a row of a linear layer, whose inputs are its window's values.


def pixel_line(module: ModuleOp) -> str:
    """Return the bounds of values that convolutions of a module move for an image, "" without convolutions.

    Bounds are those of each pixel by itself: values that windows share count for each, and so do weights.
    """
    least = most = count = 0
    for op in module.walk():
        weight = weight_of(op.weight) if isinstance(op, Conv2dOp) else None
        if not isinstance(op, Conv2dOp) or weight is None or DYNAMIC in image_shape(op.result)[2:]:
            continue
        _, _, height, width = image_shape(op.result)
        bounds = bounds_of(weight)
        least += height * width * (bounds.reads.lower + bounds.writes.lower)
        most += height * width * (bounds.reads.upper + bounds.writes.upper)
        count += 1
    if not count:
        return ""
    return (
        f"{count} convolution{'s' * (count > 1)}, of which a pixel is a row of a linear layer that reads a window: "
        f"pixel by pixel an image moves {least / 1e6:,.1f} million values in any order of the connections, "
        f"{most / 1e6:,.1f} million output by output; tiles of 64 pixels read weights once, as the kilobytes above say"
    )


MEASURING_SECONDS: Final = 0.2
"""Seconds for all kernels together, a few calls of each at least."""


@dataclass(frozen=True)
class ExplainOutput:
    """Path of the report of `explain`, and what it shows of the module on its way."""

    report: Path | None = None
    inspection: Inspection = NOTHING_SHOWN
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Heights and widths that all images have, by name."""


def explain_and_print(model: Path, request: ExplainRequest, options: Options, output: ExplainOutput) -> None:
    """Show the layers of a model, how its graphs of neurons move values, and what bounds that; write it as a report.

    Layers are those that `compile` makes by `options`.

    Raises:
        ValueError: the report is neither JSON nor HTML, or there is no such pass or stage, or size of an image.
    """
    report, inspection = output.report, output.inspection
    options = replace(inspection.watching(options), tuning=Tuning.recalled(host_target(), default_folder()))
    source = with_sizes(model, output.sizes)
    if inspection.stage:
        inspection.print_stage(source, options)
        return
    if report not in (None, STANDARD_OUTPUT) and report.suffix not in (".json", ".html"):
        raise ValueError(f"expected a report that ends in .json or .html, got {report}")
    with working("choosing and measuring kernels of", model):
        imported = simplified(source, options)
        module = imported.module
        optimized = optimize(source)
        print_gain(optimized)
        layers = native_report(module, options)
        print_layers(layers, moved=True)
        if total := total_line(imported, layers):
            console.print(total, highlight=False)
        attentions = attention_lines(optimized.networks, options.machine)
    if attentions:
        console.print(attention_table(attentions))
    edges = edge_lines(module)
    if edges:
        console.print(edge_table(edges))
    with watched_search("counting and searching orders", request.budget.known_seconds) as watch:
        explanation = explain_flat(flattened(module, options), layers, request, watch)
    console.print(explanation.graph_line, highlight=False)
    pixels = pixel_line(module)
    if pixels:
        console.print(pixels, highlight=False)
    if explanation.network is not None:
        console.print(orders_shown(explanation.network, request))
    if report is not None:
        with working("writing the report of", model):
            write_story(
                report,
                replace(
                    story_of((model.name, source), explanation, options, gain_sentence(optimized)),
                    attentions=attentions,
                    nodes=optimized.left,
                ),
            )
    end_where_asked(watch, "the best results so far are shown")


def explain(
    model: Source,
    *,
    memory: int | None = None,
    batch_tile: int = 1,
    seconds: float = 2.0,
    proposals: int | None = None,
    seed: int = 0,
) -> Explanation:
    """Return the layers of a model as `compile` runs them, measured kernel by kernel, and what orders of them move.

    Fast memory holds `memory` rows of `batch_tile` values, 48 KiB without; an order is searched for `seconds`, or by so
    many `proposals`, which find the same one with the same seed.

    Raises:
        ModelError: the model is unreadable.
        ValueError: the memory, the tile or the time is none.
    """
    rows = ExplainRequest.default_memory(batch_tile) if memory is None else memory
    request = ExplainRequest(rows, batch_tile, SearchBudget(seconds, proposals, seed))
    options = Options()
    module = simplified(model, options).module
    layers = native_report(module, options)
    return explain_flat(flattened(module, options), layers, request, SearchWatch())


@dataclass(frozen=True)
class SweepOutput:
    """Paths of the report of a sweep, and of its picture."""

    report: Path | None
    plot: Path | None


def sweep_and_print(
    models: Sequence[Path], memories: Sequence[int], batch_tile: int, budget: SearchBudget, output: SweepOutput
) -> None:
    """Show what orders of each model move with each memory, or with some where none are given; draw and report it.

    Raises:
        ModelError: a model is unreadable.
        ValueError: a model has no linear layer, a memory is too small, or a file has an ending that means nothing here.
    """
    if output.report not in (None, STANDARD_OUTPUT) and output.report.suffix != ".json":
        raise ValueError(f"expected a report of a sweep that ends in .json, got {output.report}")
    if output.plot is not None:
        check_plot(output.plot)
    flat = {model.stem: flat_model(model) for model in models}
    sizes = memories or spread_sizes([network for one in flat.values() for network in one.networks])
    request = SweepRequest(tuple(sizes), batch_tile, budget)
    seconds = None if budget.known_seconds is None else budget.known_seconds * len(flat) * len(sizes)
    with watched_search("searching an order for each memory", seconds) as watch:
        sweeps = [sweep(name, one, request, watch) for name, one in flat.items()]
    for one in sweeps:
        console.print(sweep_table(one, request))
    if output.plot is not None:
        draw_sweeps(sweeps, output.plot)
    write_report(output.report, "explain", sweep_report(request, sweeps))
    end_where_asked(watch, "the best results so far are shown")


def simplified(model: Source, options: Options) -> Imported:
    """Return a model, its module simplified, with foreign ops where `compile` does not cover it.

    Raises:
        ModelError: the model is unreadable.
    """
    with within_limits():
        imported = imported_for_reports(model)
        run_stages(imported.module, options, until="simplify")
    return imported


def native_report(module: ModuleOp, options: Options) -> Report:
    """Return the lines of a simplified module after all that `compile` does by `options`, measured kernel by kernel.

    Kernels are those of this machine, as far as the user's folder knows it. Where something in the module is not
    covered, layers are those that `compile` would make of each by itself.
    """
    known = options.tuning or Tuning.recalled(host_target(), default_folder())
    prepared = module.clone()
    run_stages(prepared, replace(options, tuning=known), after="simplify", until=last_stage(prepared))
    measure_chosen(prepared, replace(known, seconds=MEASURING_SECONDS))
    measure_groups(prepared, known.target)
    return module_report(prepared)


def last_stage(module: ModuleOp) -> str:
    """Return the stage up to which a module can go to native code: the choice of kernels where ops are foreign."""
    return "choose" if any(isinstance(op, ForeignOp) for op in module.walk()) else ""


def schedule_and_print(model: Path, request: ScheduleRequest, save_to: Path, report: Path | None, began: float) -> None:
    """Search an order of all connections of a model, save it, show what it transfers, and report that.

    What has gone by since `began`, in seconds of `monotonic`, is no longer in the budget; the bounds are found while
    orders are searched.

    Raises:
        ValueError: the model has no linear layer, or the memory is too small.
    """
    flat = flat_model(model)
    whole = request.budget
    request = replace(request, budget=whole.after(monotonic() - began))
    watched = watched_search("searching an order", request.budget.known_seconds)
    with ThreadPoolExecutor(1) as beside, watched as watch:
        bounds = beside.submit(graph_bounds, flat, request.memory, lambda: whole.is_late(monotonic() - began))
        schedule = find_schedule(flat, request, watch)
    save_schedule(schedule, request, save_to)
    console.print(flat.graph_line, highlight=False)
    lines = schedule_lines(schedule, bounds.result())
    console.print(schedule_table(lines, request))
    content = {"memory": request.memory, "policy": request.policy, "seed": request.budget.seed}
    graphs = [asdict(line) | {"ratio": line.ratio} for line in lines]
    write_report(report, "schedule", content | {"graphs": graphs})
    end_where_asked(watch, f"{save_to} has the best order so far")
