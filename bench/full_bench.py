"""The whole benchmark: what `make bench` runs.

`python -m redpebble.bench.full_bench [--hurry 4] [-o build/bench.json]` measures ceilings, single
layers, networks, the zoo, the grid of the promise never to be slower, and costs; then it prints the table of targets.
About a quarter of an hour; `--hurry 4` takes a quarter of the time for each case, and what it says is as much noisier.
While others use the machine, `--thread-time` measures what runs on one thread.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from ..models.zoo import build, save
from ..tools.benching.layer_cases import SPARSITIES, random_layers
from ..tools.benching.machine import describe_machine
from ..tools.benching.model_bench import BenchPlan, bench_model, load_model
from ..tools.benching.progress import shown
from ..tools.benching.results import Result, Row, merged
from ..tools.console.console import console
from ..verification.measuring import Budget
from .ceilings import measure_ceilings
from .results.target_table import target_lines
from .suites.cost_bench import bench_costs
from .suites.layer_bench import LayerPlan, bench_layers, print_missing_peers
from .suites.network_bench import NETWORKS, bench_networks, connection_count, network_plan
from .suites.never_slower import grid_plan
from .suites.zoo_bench import PLAN, SPECS

LAYER_SECONDS: Final = 0.25
NETWORK_SECONDS: Final = 0.6
GRID_SECONDS: Final = 0.06


@dataclass(frozen=True)
class Haste:
    """The factor by which each case is shorter than usual, its clock, and its numbers of threads."""

    hurry: float = 1.0
    clock: Callable[[], float] = time.perf_counter
    threads: tuple[int, ...] = (1, 2)

    def budget(self, seconds: float) -> Budget:
        """Return the budget of a case that usually gets `seconds`."""
        return Budget(seconds / self.hurry, least_rounds=3, clock=self.clock)


def bench_everything(haste: Haste) -> Iterator[Result]:
    """Yield one part of the result after the other."""
    machine = describe_machine() | {"clock": "thread" if haste.clock is time.thread_time else "wall"}
    yield Result(machine, measure_ceilings(haste.budget(1.0)))
    yield Result({}, costs=bench_costs(haste.budget(1.0)))
    networks = network_plan(haste.budget(NETWORK_SECONDS), haste.threads)
    for rows in shown(bench_networks(networks), "networks", len(NETWORKS)):
        yield Result({}, rows=rows)
    for rows in shown(zoo_rows(haste), "zoo", len(SPECS)):
        yield Result({}, rows=rows)
    layers = LayerPlan(random_layers(SPARSITIES), threads=haste.threads, budget=haste.budget(LAYER_SECONDS))
    grid = grid_plan(haste.threads, haste.budget(GRID_SECONDS))
    for plan, what in ((layers, "layers"), (grid, "never slower")):
        for rows in shown(bench_layers(plan), what, len(plan.layers)):
            yield Result({}, rows=rows)


def zoo_rows(haste: Haste) -> Iterator[list[Row]]:
    """Yield the rows of one model of the zoo after the other."""
    plan = BenchPlan(PLAN.batches, haste.threads, PLAN.engines, budget=haste.budget(NETWORK_SECONDS))
    for spec in SPECS:
        model = build(spec)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{spec.replace(' ', '')}.onnx"
            save(model, path)
            connections = connection_count(model)
            yield [Row.of(row, "zoo", connections) for row in bench_model(load_model(path, plan), plan)]


def main(
    output: Annotated[Path, typer.Option("-o", help="Where the result goes, part by part.")] = Path("build/bench.json"),
    hurry: Annotated[float, typer.Option(help="Shorten each measurement by this factor.")] = 1.0,
    *,
    thread_time: Annotated[
        bool, typer.Option(help="Count the time of one thread on its core, not the clock's: others use the machine.")
    ] = False,
) -> None:
    """Measure everything, write the result, and print the table of targets."""
    print_missing_peers()
    haste = Haste(hurry, time.thread_time, (1,)) if thread_time else Haste(hurry)
    parts: list[Result] = []
    for part in bench_everything(haste):
        parts.append(part)
        merged(parts).write(output)
    console.print("\n".join(target_lines(merged(parts))), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
