"""How results look on a terminal."""

import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from redpebble.bench.model_bench import BenchRow
from redpebble.lowering.layer_report import LayerReport
from redpebble.models.recipe import Recipe
from redpebble.runtime.oracle import Comparison

WIDE = 120
"""Columns of a table that goes to a file or a pipe, where nothing needs to be folded."""

console = Console(width=None if sys.stdout.isatty() else WIDE)


def layer_table(layers: Sequence[LayerReport]) -> Table:
    """Return a line for each linear layer."""
    table = _table("layer", "inputs", "outputs", "connections", "density", "format", "kernel", "why")
    for layer in layers:
        sizes = (str(layer.inputs), str(layer.outputs), f"{layer.connections:,}", f"{layer.density:.3f}")
        table.add_row(layer.name, *sizes, layer.format, layer.kernel, layer.reason)
    return table


def bounds_table(layers: Sequence[LayerReport]) -> Table:
    """Return for each layer how many values any order of its connections moves, for a batch of one."""
    table = _table("layer", "reads at least", "at most", "writes at least", "at most")
    for layer in layers:
        bounds = (layer.fewest_reads, layer.most_reads, layer.fewest_writes, layer.most_writes)
        table.add_row(layer.name, *("" if bound is None else f"{bound:,}" for bound in bounds))
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
    words = {"", "layer", "format", "kernel", "why", "output", "verdict", "engine", "model", "parameters", "what it is"}
    table = Table(box=None, header_style="bold", pad_edge=False)
    for header in headers:
        table.add_column(header, justify="left" if header in words else "right", overflow="fold")
    return table
