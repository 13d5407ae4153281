"""What the commands do; `cli.py` reads the command line, `rendering.py` says how results look."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
from rich.progress import track

from redpebble.bench.model_bench import BenchPlan, bench_model, bench_report
from redpebble.checking import CheckPlan, Feeds, agree, compare_runs
from redpebble.compiler import compile as compile_model
from redpebble.compiler import optimize
from redpebble.explain_page import explain_page
from redpebble.explaining import ExplainRequest, explain, explanation_report
from redpebble.export.saving import save_model
from redpebble.frontend.reading import read_model
from redpebble.models.zoo import build, list_recipes, save
from redpebble.network_model import flat_model
from redpebble.rendering import (
    bench_table,
    comparison_table,
    console,
    layer_table,
    order_table,
    recipe_table,
    schedule_table,
    summary_table,
)
from redpebble.runtime.oracle import Comparison, Oracle
from redpebble.scheduling import ScheduleRequest, find_schedule, save_schedule
from redpebble.whole_files import replacing


@dataclass(frozen=True)
class OptimizeRequest:
    """What `optimize` was asked for."""

    source: Path
    output: Path
    skip_passes: tuple[str, ...]
    external_data: bool | None
    report: Path | None


def optimize_model(request: OptimizeRequest, plan: CheckPlan) -> bool:
    """Write the optimized model and show what changed; return False, with nothing written, when a check fails."""
    original = read_model(request.source)
    result = optimize(request.source, skip_passes=request.skip_passes)
    comparisons: list[Comparison] = []
    if plan.runs:
        comparisons = compare_runs(plan, original, Oracle(request.source).run, Oracle(result.model).run)
        console.print(comparison_table(comparisons))
        if not agree(comparisons):
            console.print(f"{request.output} is not written: the optimized model differs", highlight=False)
            return False
    save_model(result.model, request.output, external_data=request.external_data)
    before, after = _summary(original, request.source), _summary(result.model, request.output)
    console.print(summary_table(before, after))
    console.print(layer_table(result.report))
    if request.report is not None:
        content = {"modified": result.modified, "before": before, "after": after}
        layers, outputs = [asdict(layer) for layer in result.report], [asdict(one) for one in comparisons]
        _write_json(request.report, content | {"layers": layers, "outputs": outputs})
    return True


def check_model(model: Path, against: Path | None, plan: CheckPlan, report: Path | None) -> bool:
    """Compare our native code, or `against` in onnxruntime, with `model` in onnxruntime; return whether they agree."""
    read_model(model)  # says more about a broken file than onnxruntime does
    oracle = Oracle(model)
    if against is not None:
        actual = Oracle(against).run
    else:
        network = compile_model(model)

        def actual(feeds: Feeds) -> Sequence[Any]:
            return network.run(oracle.output_names, feeds)

    comparisons = compare_runs(plan, read_model(model), oracle.run, actual)
    console.print(comparison_table(comparisons))
    if report is not None:
        _write_json(report, {"outputs": [asdict(one) for one in comparisons]})
    return agree(comparisons)


def bench_and_print(model: Path, plan: BenchPlan, report: Path | None) -> None:
    """Measure and show a line for each engine, batch and number of threads."""
    total = len(plan.batches) * len(plan.threads) * len({*plan.engines, "onnxruntime"})
    measured = bench_model(model, plan)
    rows = list(track(measured, "measuring", total, console=console, transient=True, disable=not console.is_terminal))
    console.print(bench_table(rows))
    if report is not None:
        _write_json(report, bench_report(rows))


def explain_and_print(model: Path, request: ExplainRequest, report: Path | None) -> None:
    """Show the layers of a model, how its graphs of neurons move values, and what bounds that; write it as a report.

    Raises:
        ValueError: the report is neither JSON nor HTML.
    """
    if report is not None and report.suffix not in (".json", ".html"):
        raise ValueError(f"cannot write report {report}, accepted are files that end in .json or .html")
    with console.status("counting and searching orders") if console.is_terminal else nullcontext():
        explanation = explain(flat_model(model), request)
    console.print(layer_table(explanation.layers))
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
    console.print(recipe_table(list_recipes()))


def write_zoo_model(spec: str, output: Path | None, seed: int) -> None:
    """Build a model and write it.

    Raises:
        ValueError: nothing says where to.
    """
    if output is None:
        raise ValueError("zoo needs -o FILE, where the model goes")
    save(build(spec, seed=seed), output)


def _summary(model: onnx_ir.Model, path: Path) -> dict[str, int]:
    """Return the numbers of nodes, stored weights and bytes of a model that lies at `path`."""
    tensors = [value.const_value for value in model.graph.initializers.values() if value.const_value is not None]
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
