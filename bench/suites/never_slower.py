"""The benchmark of a promise: no layer is slower than in onnxruntime, whatever its sparsity and the batch.

`python -m redpebble.bench.suites.never_slower [--threads 1,2] [--seconds 0.06] [-o grid.json]` measures the grid,
row-major in and out, and prints the worst ratios and where they are.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from ...tools.benching.layer_cases import random_layers
from ...tools.benching.machine import describe_machine
from ...tools.benching.progress import shown
from ...tools.benching.results import Result, slowest
from ...tools.console.console import console
from ...verification.measuring import Budget
from .layer_bench import Doubt, LayerPlan, bench_layers

GRID_SPARSITIES: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
GRID_BATCHES: Final = (1, 2, 3, 4, 7, 8, 12, 16, 17, 20, 32, 33, 64, 100, 128, 512)

DOUBTFUL: Final = 1.0
LONG_SECONDS: Final = 1.0
LONG_ROUNDS: Final = 7


def grid_plan(threads: Sequence[int], budget: Budget) -> LayerPlan:
    """Return the grid: every shape, sparsity and batch, `budget` for each, more for those that look slow."""
    long_look = replace(budget, seconds=LONG_SECONDS, least_rounds=LONG_ROUNDS)
    layers = random_layers(GRID_SPARSITIES)
    return LayerPlan(layers, GRID_BATCHES, threads, budget, suites=("grid",), doubt=Doubt(DOUBTFUL, long_look))


def main(
    output: Annotated[Path | None, typer.Option("-o", help="Where the result goes.")] = None,
    threads: Annotated[str, typer.Option(metavar="N,N", help="Numbers of threads.")] = "1",
    seconds: Annotated[float, typer.Option(help="Measuring time for each layer and batch.")] = 0.06,
) -> None:
    """Measure the grid and print the ten worst cases."""
    plan = grid_plan([int(word) for word in threads.split(",")], Budget(seconds, least_rounds=3))
    rows = [row for rows in shown(bench_layers(plan), "grid", len(plan.layers)) for row in rows]
    table = Table("layer", "batch", "threads", "against onnxruntime", box=None, header_style="bold")
    for row in slowest(rows, 10):
        table.add_row(row.model, str(row.batch), str(row.threads), f"{row.speedup_vs_onnxruntime:.2f}x")
    console.print(table)
    if output is not None:
        Result(describe_machine(), rows=rows).write(output)


if __name__ == "__main__":
    typer.run(main)
