"""The benchmark of everything around the kernels: calls, compiling, packing, memory and files.

`python -m redpebble.bench.suites.cost_bench [-o costs.json]` prints a line for each number.
"""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer

import redpebble

from ...models.zoo import save
from ...tools.benching.engines.aligned import aligned
from ...tools.benching.layer_cases import RandomLayer
from ...tools.benching.machine import describe_machine
from ...tools.benching.results import Result
from ...tools.console.console import console
from ...verification.measuring import Budget, Call, interleave
from ...verification.oracle import Oracle
from ..bound_session import bound_session
from ..fresh_process import footprint_in_a_fresh_process
from .network_bench import connection_count, fused

TINY: Final = RandomLayer(16, 16, 0.0)
"""The layer whose calls are all overhead."""

PACKED_SIDES: Final = (1024, 2048)
PACKED_SPARSITY: Final = 0.9
ROUNDS: Final = 3
CACHED_ROUNDS: Final = 9


def bench_costs(budget: Budget) -> dict[str, float]:
    """Return all numbers by name."""
    with tempfile.TemporaryDirectory() as folder:
        return call_costs(Path(folder), budget) | packing_costs(Path(folder)) | compile_costs(Path(folder))


def call_costs(folder: Path, budget: Budget) -> dict[str, float]:
    """Return microseconds of calls of a layer of 16 neurons with a batch of one, ours and onnxruntime's."""
    path = TINY.save(folder)
    network, session = redpebble.compile(path, cache=folder), Oracle(path).session
    x = aligned(np.ones((1, TINY.inputs), dtype=np.float32))
    feeds = {"x": x}
    calls: dict[str, Call] = {
        "call_run_us": lambda: network.run(None, feeds),
        "call_onnxruntime_us": lambda: session.run(None, feeds),
        "call_bound_us": network.bind(feeds).run,
        "call_onnxruntime_bound_us": bound_session(session, x, TINY.outputs),
    }
    return {name: timing.median_us for name, timing in interleave(calls, budget).items()}


def packing_costs(folder: Path) -> dict[str, float]:
    """Return the compile time of a nonzero, and the exponent of its growth with their number (1 is linear)."""
    seconds: list[float] = []
    counts: list[int] = []
    for side in PACKED_SIDES:
        layer = RandomLayer(side, side, PACKED_SPARSITY)
        path = layer.save(folder)
        seconds.append(min(_compile_seconds(path) for _ in range(ROUNDS)))
        counts.append(int(np.count_nonzero(layer.weight())))
    per_nonzero = (seconds[1] - seconds[0]) / (counts[1] - counts[0])
    return {"packing_us": 1e6 * per_nonzero, "packing_growth_ratio": seconds[1] / counts[1] / (seconds[0] / counts[0])}


def _compile_seconds(path: Path) -> float:
    start = time.perf_counter()
    redpebble.compile(path, cache=False)
    return time.perf_counter() - start


def compile_costs(folder: Path) -> dict[str, float]:
    """Return the compile time, memory and disk space of four layers of 1024 neurons at 0.9."""
    path, cache = folder / "network.onnx", folder / "cache"
    model = fused(0.1)()
    save(model, path)
    cold = footprint_in_a_fresh_process(path, cache)
    cached = footprint_in_a_fresh_process(path, cache)
    again = min(_cached_seconds(path, cache) for _ in range(CACHED_ROUNDS))
    memory = footprint_in_a_fresh_process(path, folder / "other", after_another=True)
    (artefact,) = cache.glob("*.pebble")
    connections = connection_count(model)
    return {
        "compile_cold_s": cold.compile_seconds,
        "compile_cached_fresh_ms": 1e3 * cached.compile_seconds,
        "compile_cached_ms": 1e3 * again,
        "memory_growth_bytes": memory.growth_bytes,
        "memory_kept_bytes": memory.kept_bytes,
        "memory_kept_ratio": memory.kept_bytes / memory.packed_bytes,
        "memory_packed_bytes": memory.packed_bytes,
        "memory_growth_ratio": memory.growth_bytes / memory.packed_bytes,
        "memory_packed_bytes_per_connection": memory.packed_bytes / connections,
        "memory_dense_bytes": 4.0 * 4 * 1024 * 1024,
        "file_model_bytes": path.stat().st_size,
        "file_native_bytes": artefact.stat().st_size,
    }


def _cached_seconds(path: Path, cache: Path) -> float:
    start = time.perf_counter()
    redpebble.compile(path, cache=cache)
    return time.perf_counter() - start


def print_costs(costs: Mapping[str, float]) -> None:
    """Print a line for each number."""
    for name, value in costs.items():
        console.print(f"{name:40s} {value:,.3f}" if value < 1e5 else f"{name:40s} {value:,.0f}", highlight=False)


def main(output: Annotated[Path | None, typer.Option("-o", help="Where the result goes.")] = None) -> None:
    """Measure and print."""
    costs = bench_costs(Budget(1.0))
    print_costs(costs)
    if output is not None:
        Result(describe_machine(), costs=costs).write(output)


if __name__ == "__main__":
    typer.run(main)
