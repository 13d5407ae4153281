"""What the commands do; `cli.py` reads the command line, `rendering.py` says how results look."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx_ir
from rich.progress import track

from redpebble.bench.results.console import console
from redpebble.bench.results.tables import bench_table
from redpebble.bench.suites.model_bench import BenchPlan, bench_model, bench_report, load_model
from redpebble.compiler import Optimized, optimize
from redpebble.compiler import compile as compile_model
from redpebble.export.saving import save_model
from redpebble.foundation.atomic_files import replacing
from redpebble.frontend.importing import Source
from redpebble.frontend.out_of_range_models import read_or_untouched
from redpebble.frontend.reading.model_source import read_model
from redpebble.models import zoo
from redpebble.options import Options
from redpebble.ort.session import holds_networks, session, write_library
from redpebble.pipeline import build
from redpebble.tools.explain.explanation import ExplainRequest, explain, explanation_report
from redpebble.tools.explain.layer_tables import report_notes
from redpebble.tools.explain.native_report import native_report
from redpebble.tools.explain.neuron_graphs import flat_model, flattened
from redpebble.tools.explain.page import explain_page
from redpebble.tools.explain.saved_orders import ScheduleRequest, find_schedule, save_schedule
from redpebble.tools.rendering import (
    comparison_table,
    layer_tables,
    network_table,
    order_table,
    recipe_table,
    schedule_table,
    split_table,
    summary_table,
)
from redpebble.verification.compare import CheckPlan, Feeds, agree, compare_runs
from redpebble.verification.oracle import Comparison, Oracle


@dataclass(frozen=True)
class OutputFiles:
    """What `optimize` writes: the model, maybe with its weights beside it, a report, and a library of native code."""

    model: Path
    external_data: bool | None
    report: Path | None
    library: bool


@dataclass(frozen=True)
class OptimizeRequest:
    """What `optimize` was asked for; without a target, `ort` where sparse networks are found."""

    source: Path
    target: Literal["portable", "ort"] | None
    skip_passes: tuple[str, ...]
    files: OutputFiles


def optimize_model(request: OptimizeRequest, plan: CheckPlan) -> bool:
    """Write the optimized model and show what changed; return False, with nothing written, when a check fails.

    Raises:
        ValueError: a library was asked for, and there is no sparse network to run in it.
    """
    result = optimize(request.source, target=request.target or "ort", skip_passes=request.skip_passes)
    original, files = read_or_untouched(request.source), request.files
    if files.library and not result.networks:
        raise ValueError(f"no library for {files.model}: {result.obstacle or 'target portable has no sparse networks'}")
    comparisons: list[Comparison] = []
    if plan.runs:
        comparisons = compare_runs(plan, original, Oracle(request.source).run, Oracle(result.model).run)
        if result.networks:
            comparisons += _compare_native(plan, (request.source, original), result.model)
        console.print(comparison_table(comparisons))
        if not agree(comparisons):
            console.print(f"{files.model} is not written: the optimized model differs", highlight=False)
            return False
    if files.library:
        write_library(result.model, files.model.with_suffix(".so"))
    save_model(result.model, files.model, external_data=files.external_data)
    _show_optimized(request, result, (original, comparisons))
    return True


def _show_optimized(
    request: OptimizeRequest, result: Optimized, checked: tuple[onnx_ir.Model, Sequence[Comparison]]
) -> None:
    """Show what changed, and write it as a report."""
    original, comparisons = checked
    before, after = _summary(original, request.source), _summary(result.model, request.files.model)
    console.print(summary_table(before, after))
    console.print(layer_tables(result.report))
    if result.splits:
        console.print(split_table(result.splits))
    if result.networks:
        console.print(network_table(result.networks))
    elif result.obstacle:
        console.print(f"standard operators alone: {result.obstacle}", highlight=False)
    if request.files.report is not None:
        content = {"modified": result.modified, "before": before, "after": after, "obstacle": result.obstacle}
        layers, outputs = [asdict(layer) for layer in result.report], [asdict(one) for one in comparisons]
        networks, splits = [asdict(network) for network in result.networks], [asdict(split) for split in result.splits]
        content |= {"layers": layers, "networks": networks, "splits": splits, "outputs": outputs}
        _write_json(request.files.report, content)


def check_model(model: Path, against: Path | None, plan: CheckPlan, report: Path | None) -> bool:
    """Compare our native code, or `against` in onnxruntime, with `model` in onnxruntime; return whether they agree.

    Where `against` holds sparse networks, it runs as it is, and once more with our library registered.
    """
    read_model(model)  # says more about a broken file than onnxruntime does
    oracle = Oracle(model)
    if against is not None:
        actual = Oracle(against).run
    else:
        network = compile_model(model)

        def actual(feeds: Feeds) -> Sequence[Any]:
            return network.run(oracle.output_names, feeds)

    comparisons = compare_runs(plan, read_model(model), oracle.run, actual)
    if against is not None and holds_networks(against):
        comparisons += _compare_native(plan, (model, read_model(model)), against)
    console.print(comparison_table(comparisons))
    if report is not None:
        _write_json(report, {"outputs": [asdict(one) for one in comparisons]})
    return agree(comparisons)


def _compare_native(plan: CheckPlan, original: tuple[Path, onnx_ir.Model], networks: Source) -> list[Comparison]:
    """Compare a model with sparse networks, our library registered, with the original in onnxruntime."""
    path, model = original
    native = Oracle.of(lambda: session(networks))
    comparisons = compare_runs(plan, model, Oracle(path).run, native.run)
    return [replace(one, name=f"{one.name}, native") for one in comparisons]


def bench_and_print(model: Path, plan: BenchPlan, report: Path | None) -> None:
    """Measure and show a line for each engine, batch and number of threads."""
    loaded = load_model(model, plan)
    for line in loaded.skipped:
        console.print(line, highlight=False)
    total = len(plan.batches) * len(plan.threads) * len(loaded.engines)
    measured = bench_model(loaded, plan)
    rows = list(track(measured, "measuring", total, console=console, transient=True, disable=not console.is_terminal))
    console.print(bench_table(rows))
    if report is not None:
        _write_json(report, bench_report(rows))


def explain_and_print(model: Path, request: ExplainRequest, options: Options, report: Path | None) -> None:
    """Show the layers of a model, how its graphs of neurons move values, and what bounds that; write it as a report.

    Layers are those that `compile` makes by `options`.

    Raises:
        ValueError: the report is neither JSON nor HTML.
    """
    if report is not None and report.suffix not in (".json", ".html"):
        raise ValueError(f"cannot write report {report}, accepted are files that end in .json or .html")
    module = build(model, options, until="simplify", foreign="keep")
    layers = native_report(module, options)
    console.print(layer_tables(layers, moved=True))
    for note in report_notes(layers):
        console.print(note, highlight=False)
    with console.status("counting and searching orders") if console.is_terminal else nullcontext():
        explanation = explain(flattened(module, options), layers, request)
    console.print(explanation.graph_line, highlight=False)
    if explanation.network is not None:
        console.print(order_table(explanation.network, request))
    if report is not None and report.suffix == ".html":
        _write_text(report, explain_page(model.name, explanation))
    elif report is not None:
        _write_json(report, explanation_report(explanation))


def schedule_and_print(model: Path, request: ScheduleRequest, save_to: Path) -> None:
    """Search an order of all connections of a model, show what it transfers, and save it.

    Raises:
        ValueError: the model has no linear layer, or the memory is too small.
    """
    flat = flat_model(model)
    with console.status("searching an order") if console.is_terminal else nullcontext():
        schedule = find_schedule(flat, request)
    save_schedule(schedule, request, save_to)
    console.print(flat.graph_line, highlight=False)
    console.print(schedule_table(schedule))


def list_zoo() -> None:
    """Show the models of the zoo and their parameters."""
    console.print(recipe_table(zoo.list_recipes()))


def write_zoo_model(spec: str, output: Path | None, seed: int) -> None:
    """Build a model and write it.

    Raises:
        ValueError: nothing says where to.
    """
    if output is None:
        raise ValueError("zoo needs -o FILE, where the model goes")
    zoo.save(zoo.build(spec, seed=seed), output)


def _summary(model: onnx_ir.Model, path: Path) -> dict[str, int]:
    """Return the numbers of nodes, stored weights and bytes of a model that lies at `path`."""
    constants = [value.const_value for value in model.graph.initializers.values() if value.const_value is not None]
    tensors = [tensor for tensor in constants if tensor.dtype.is_floating_point()]
    data = path.with_name(f"{path.name}.data")
    files = [path, *([data] if data.exists() else [])]
    return {
        "nodes": len(model.graph),
        "weights": sum(tensor.size for tensor in tensors),
        "weights that are not zero": sum(int(np.count_nonzero(tensor.numpy())) for tensor in tensors),
        "bytes on disk": sum(file.stat().st_size for file in files),
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    _write_text(path, json.dumps(content, indent=2) + "\n")


def _write_text(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())
