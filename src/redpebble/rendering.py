"""How results look on a terminal."""

import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from redpebble.bench.model_bench import BenchRow
from redpebble.explaining import ExplainRequest, NetworkExplanation
from redpebble.export.network_report import NetworkReport
from redpebble.export.split_report import SplitReport
from redpebble.lowering.layer_report import LayerReport
from redpebble.models.recipe import Recipe
from redpebble.runtime.oracle import Comparison
from redpebble.scheduling import FoundSchedule
from redpebble.theory.bounds import lower_bound

WIDE = 160
"""Columns of a table that goes to a file or a pipe, where nothing needs to be folded."""

console = Console(width=None if sys.stdout.isatty() else WIDE)


def layer_table(layers: Sequence[LayerReport], *, moved: bool = False) -> Table:
    """Return a line for each linear layer; times in microseconds are of tiles of the widths that a kernel is for.

    With `moved` also the kilobytes that such tiles read and write.
    """
    times = ("predicted us", *(("measured us",) if any(layer.measured_us for layer in layers) else ()))
    times = (*(("predicted KB",) if moved else ()), *times)
    found = ("structure",) if any(layer.structure for layer in layers) else ()
    headers = ("layer", "inputs", "outputs", "connections", "density", "format", "kernel", *times, *found, "why")
    table = _table(*headers)
    for layer in layers:
        sizes = (str(layer.inputs), str(layer.outputs), f"{layer.connections:,}", f"{layer.density:.3f}")
        kilobytes = {width: count / 1e3 for width, count in layer.predicted_bytes.items()}
        known = {"predicted KB": kilobytes, "predicted us": layer.predicted_us, "measured us": layer.measured_us}
        spans = ("\n".join(kernel_times(layer.kernel, known[name])) for name in times)
        reasons = (layer.structure, layer.reason) if found else (layer.reason,)
        table.add_row(layer.name, *sizes, layer.format, layer.kernel.replace(", ", "\n"), *spans, *reasons)
    return table


def kernel_times(kernel: str, times: Mapping[str, float]) -> list[str]:
    """Return for each family of a kernel such as `walk from 1, panels from 8` its times from the first width on."""
    starts = [int(word) for word in kernel.replace(",", "").split() if word.isdigit()] or [1]
    texts: list[str] = []
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        own = [time for width, time in times.items() if int(width) >= start and (end is None or int(width) < end)]
        texts.append(" to ".join(dict.fromkeys(f"{time:.3g}" for time in (*own[:1], *own[-1:]))))
    return texts


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


def order_table(network: NetworkExplanation, request: ExplainRequest) -> Table:
    """Return a line for each order and bound: values moved, and how many times the fewest certified."""
    table = _table("order", "min reads", "min writes", "min total", "ratio", "lru total", "ratio")
    table.title = f"values moved, M = {request.memory:,} rows of {request.batch_tile:,}"
    table.title_justify = "left"
    fewest = max(1, network.instance_lower)
    for name, moved in sorted(network.orders.items(), key=lambda item: item[1]["min"].total):
        best, lru = moved["min"], moved["lru"].total
        numbers = (f"{best.reads:,}", f"{best.writes:,}", f"{best.total:,}", f"{best.total / fewest:.3f}")
        table.add_row(name, *numbers, f"{lru:,}", f"{lru / fewest:.3f}")
    table.add_section()
    for name, bound in (("no order below, any memory", network.lower), ("pull order, room for three", network.upper)):
        numbers = (f"{bound.reads:,}", f"{bound.writes:,}", f"{bound.total:,}", f"{bound.total / fewest:.3f}")
        table.add_row(name, *numbers, "", "")
    certified = f"no order below, this memory ({', '.join(network.arguments)})"
    table.add_row(certified, "", "", f"{network.instance_lower:,}", "1.000", "", "")
    return table


def schedule_table(schedule: FoundSchedule) -> Table:
    """Return a line for each graph of a model, and one for all of them."""
    table = _table("graph", "connections", "start", "reads", "writes", "total", "times W + N + S")
    lowest = [lower_bound(network) for network in schedule.networks]
    for number, (found, lower) in enumerate(zip(schedule.found, lowest, strict=True)):
        counts = found.counts
        numbers = (f"{counts.reads:,}", f"{counts.writes:,}", f"{counts.total:,}", f"{counts.total / lower.total:.4f}")
        table.add_row(str(number), f"{len(found.order):,}", found.start, *numbers)
    if len(lowest) > 1:
        moved, fewest = schedule.counts, sum(lower.total for lower in lowest)
        numbers = (f"{moved.reads:,}", f"{moved.writes:,}", f"{moved.total:,}", f"{moved.total / fewest:.4f}")
        table.add_row("all", f"{moved.weight_reads:,}", "", *numbers)
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


def bench_table(rows: Iterable[BenchRow]) -> Table:
    """Return a line for each engine, batch and number of threads."""
    table = _table("batch", "threads", "engine", "median us", "min us", "against onnxruntime")
    for row in rows:
        times = (f"{row.median_us:.1f}", f"{row.min_us:.1f}", f"{row.speedup_vs_onnxruntime:.2f}x")
        table.add_row(str(row.batch), str(row.threads), row.engine, *times)
    return table


def recipe_table(recipes: Sequence[Recipe]) -> Table:
    """Return a line for each model of the zoo."""
    table = _table("model", "parameters", "what it is")
    for recipe in recipes:
        parameters = ", ".join(f"{name}={value!r}" for name, value in recipe.parameters.items())
        table.add_row(recipe.name, parameters, recipe.summary)
    return table


def _table(*headers: str) -> Table:
    """Return an empty table whose columns of numbers are right-aligned."""
    words = {
        "",
        "layer",
        "sparse network",
        "split from",
        "order",
        "start",
        "format",
        "kernel",
        "predicted KB",
        "predicted us",
        "measured us",
        "structure",
        "why",
        "output",
        "verdict",
        "engine",
        "model",
        "parameters",
        "what it is",
    }
    table = Table(box=None, header_style="bold", pad_edge=False)
    for header in headers:
        side = "left" if header in words else "right"
        # a line of times belongs to the line of the kernel beside it
        together = header in {"kernel", "predicted us", "measured us"}
        table.add_column(header, justify=side, overflow="fold", no_wrap=together)
    return table
