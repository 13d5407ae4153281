"""The benchmark of whole networks, row-major in and out, against onnxruntime.

`python -m redpebble.bench.suites.network_bench [--seconds 0.6] [-o networks.json]`: four layers of 1024 neurons at
three sparsities, and twelve of 32 connections a neuron, without any structure and with that of RadiX-Nets.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import onnx_ir as ir
import typer
from numpy.typing import NDArray

from ...models.graph_builder import GraphBuilder, Output
from ...models.pruned_weights import masked_weight, random_bias
from ...models.zoo import build, save
from ...tools.benching.machine import describe_machine
from ...tools.benching.model_bench import BenchPlan, bench_model, load_model
from ...tools.benching.progress import shown
from ...tools.benching.results import NATIVE, Result, Row
from ...tools.benching.tables import network_lines
from ...tools.console.console import console
from ...verification.measuring import Budget

WIDTH: Final = 1024
DEPTH: Final = 12
CONNECTIONS: Final = 32
"""Connections into a neuron of the deep networks."""

RADIX_PANEL: Final = 16
"""Neurons of a RadiX-Net that share their inputs."""

BATCHES: Final = (64, 512, 2048)


def fused(density: float) -> Callable[[], ir.Model]:
    """Return the recipe of four layers of 1024 neurons."""
    return lambda: build(f"ffnn(depth=4, width=1024, density={density:g})")


def deep(*, panels: bool) -> Callable[[], ir.Model]:
    """Return the recipe of twelve layers; in `panels`, 16 neurons have their 32 inputs in common."""

    def make() -> ir.Model:
        rng, builder = np.random.default_rng(0), GraphBuilder()
        value = builder.input("x", ("batch", WIDTH))
        for layer in range(DEPTH):
            mask = _mask(rng, RADIX_PANEL if panels else 1)
            value = builder.linear(value, masked_weight(mask, rng), random_bias(WIDTH, rng), f"layers.{layer}")
            value = builder.op("Relu", [value], f"/layers.{layer}/Relu")
        return builder.model("deep", {"y": Output(value, ("batch", WIDTH))})

    return make


def _mask(rng: np.random.Generator, panel: int) -> NDArray[np.bool_]:
    """Return which of [outputs, inputs] are connected: 32 inputs each, drawn for `panel` outputs together."""
    mask = np.zeros((WIDTH, WIDTH), dtype=np.bool_)
    for group in rng.permutation(WIDTH).reshape(-1, panel):
        mask[np.ix_(group, rng.choice(WIDTH, CONNECTIONS, replace=False))] = True
    return mask


NETWORKS: Final[Mapping[str, Callable[[], ir.Model]]] = {
    "4x1024@0.8": fused(0.2),
    "4x1024@0.9": fused(0.1),
    "4x1024@0.95": fused(0.05),
    "12x1024, 32 a neuron": deep(panels=False),
    "12x1024, 32 a neuron, shared by 16": deep(panels=True),
}


def bench_networks(plan: BenchPlan) -> Iterator[list[Row]]:
    """Yield the rows of one network after the other."""
    for name, make in NETWORKS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "network.onnx"
            model = make()
            save(model, path)
            loaded = load_model(path, plan)
            connections = connection_count(model)
            yield [Row.of(replace(row, model=name), "network", connections) for row in bench_model(loaded, plan)]


def connection_count(model: ir.Model) -> int:
    """Return the weights of all matrices of a model that are not zero."""
    arrays = (value.const_value for value in model.graph.initializers.values())
    matrices = (array.numpy() for array in arrays if array is not None and len(array.shape) == 2)
    return sum(int(np.count_nonzero(matrix)) for matrix in matrices)


def network_plan(budget: Budget, threads: Sequence[int] = (1, 2)) -> BenchPlan:
    """Return the plan of all networks."""
    return BenchPlan(BATCHES, threads, (NATIVE,), budget)


def main(
    output: Annotated[Path | None, typer.Option("-o", help="Where the result goes.")] = None,
    seconds: Annotated[float, typer.Option(help="Measuring time for each batch and number of threads.")] = 0.6,
) -> None:
    """Measure the networks and print a table."""
    rows: list[Row] = []
    for measured in shown(bench_networks(network_plan(Budget(seconds, least_rounds=3))), "networks", len(NETWORKS)):
        console.rule(measured[0].model)
        console.print(network_lines(measured))
        rows += measured
    if output is not None:
        Result(describe_machine(), rows=rows).write(output)


if __name__ == "__main__":
    typer.run(main)
