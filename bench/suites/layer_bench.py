"""The benchmark of single layers: our kernels beside MKL's, and whole calls beside onnxruntime's.

`python -m redpebble.bench.suites.layer_bench [--quick] [-o layers.json]` measures all shapes, sparsities, batches and
numbers of threads. *kernel* is feature-major in and out, warm and aligned, timed in native loops; on one thread only,
where the split over threads is part of a network's call. *layer* is row-major in and out, as users call.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol

import numpy as np
import typer
from numpy.typing import NDArray

import redpebble

from ...tools.benching.engines.aligned import aligned, aligned_zeros
from ...tools.benching.engines.chain import csr_of
from ...tools.benching.engines.engines import ENGINES
from ...tools.benching.engines.mkl import MklMatrix
from ...tools.benching.engines.peers import PEERS
from ...tools.benching.errors import PeerError
from ...tools.benching.layer_cases import BATCHES, SHAPES, SPARSITIES, RandomLayer, random_layers
from ...tools.benching.machine import describe_machine
from ...tools.benching.model_bench import settle_seconds
from ...tools.benching.progress import shown
from ...tools.benching.results import BASELINE, BOUND, BOUND_BASELINE, CEILING, Result, Row
from ...tools.benching.tables import layer_lines
from ...tools.console.console import console
from ...verification.measuring import BURST_SECONDS, Budget, Call, Timing, interleave
from ...verification.oracle import Oracle
from ..bound_session import bound_session
from ..ceilings import NativeLoops
from ..kernel_call import OurKernel

Floats = NDArray[np.float32]
EngineThreads = tuple[str, int]
"""Engine and threads."""


SLOW_PEER_SHAPE = (1024, 1024)
"""The batches at which scipy and torch are measured, too: they take ten times as long as the others."""


@dataclass(frozen=True)
class Doubt:
    """Below which ratio to onnxruntime a case is measured again, and how long: one disturbed look proves nothing."""

    ratio: float
    budget: Budget


@dataclass(frozen=True)
class LayerPlan:
    """Layers, batches and engines to measure, and seconds for each layer, batch and suite."""

    layers: Sequence[RandomLayer] = field(default_factory=lambda: random_layers(SPARSITIES))
    batches: Sequence[int] = BATCHES
    threads: Sequence[int] = (1, 2)
    budget: Budget = field(default_factory=lambda: Budget(0.25, least_rounds=3))
    suites: Sequence[str] = ("kernel", "layer")
    doubt: Doubt | None = None


def bench_layers(plan: LayerPlan) -> Iterator[list[Row]]:
    """Yield the rows of one layer after the other."""
    for layer in plan.layers:
        with tempfile.TemporaryDirectory() as folder:
            path = layer.save(Path(folder))
            rows = list(_kernel_rows(layer, path, plan)) if "kernel" in plan.suites else []
            whole = [suite for suite in plan.suites if suite != "kernel"]
            yield rows + [row for suite in whole for row in _layer_rows(layer, path, plan, suite)]


def _kernel_rows(layer: RandomLayer, path: Path, plan: LayerPlan) -> Iterator[Row]:
    """Yield our kernel, its ceiling, and the peers, all in the same rounds."""
    kernel, ports = OurKernel(path), NativeLoops().ports()
    for batch in plan.batches:
        x = np.random.default_rng(2).standard_normal((layer.inputs, batch), dtype=np.float32)
        ours = kernel.prepare(x)
        repeats = _repeats(ours.repeated(1))
        calls: dict[EngineThreads, Call] = {("redpebble", 1): ours.repeated(repeats), (CEILING, 1): ports.call}
        counts: dict[EngineThreads, float] = {("redpebble", 1): repeats}
        for threads in plan.threads:
            _add_mkl(calls, counts, _Product(kernel, x, threads))
            if (layer.inputs, layer.outputs) == SLOW_PEER_SHAPE:
                _add_slow_peers(calls, _Product(kernel, x, threads))
        # the ceiling's time is that of as many operations as the layer has
        counts[CEILING, 1] = ports.work / (2.0 * len(kernel.weight.values) * batch)
        timings = interleave(calls, plan.budget, _settle(calls))
        parts = {
            engine_threads: timing.divided(counts.get(engine_threads, 1)) for engine_threads, timing in timings.items()
        }
        yield from _rows("kernel", layer, batch, parts)


@dataclass(frozen=True)
class _Product:
    """A layer's weight times feature-major x, on some threads."""

    kernel: OurKernel
    x: Floats
    threads: int


def _add_mkl(calls: dict[EngineThreads, Call], counts: dict[EngineThreads, float], product: _Product) -> None:
    try:
        matrix = MklMatrix(csr_of(product.kernel.weight), product.x.shape[1], product.threads)
    except PeerError:
        return
    x = aligned(product.x)
    y = aligned_zeros(matrix.shape[0], x.shape[1])
    matrix.multiply(x, y)
    repeats = _repeats(lambda: matrix.multiply(x, y))
    calls["mkl", product.threads] = lambda: matrix.multiply(x, y, repeats)
    counts["mkl", product.threads] = repeats


def _add_slow_peers(calls: dict[EngineThreads, Call], product: _Product) -> None:
    for name in ("scipy", "torch"):
        try:
            PEERS[name].check()
        except PeerError:
            continue
        calls[name, product.threads] = PEERS[name].product(csr_of(product.kernel.weight), product.x, product.threads)


def _layer_rows(layer: RandomLayer, path: Path, plan: LayerPlan, suite: str) -> Iterator[Row]:
    """Yield our calls and onnxruntime's, on all numbers of threads in the same rounds."""
    networks = {threads: redpebble.compile(path, threads=threads, cache=path.parent) for threads in plan.threads}
    sessions = {threads: Oracle(path, threads).session for threads in plan.threads}
    for batch in plan.batches:
        x = np.random.default_rng(2).standard_normal((batch, layer.inputs), dtype=np.float32)
        feeds = {"x": aligned(x)}
        calls: dict[EngineThreads, Call] = {}
        for threads in plan.threads:
            calls["redpebble", threads] = _call(networks[threads], feeds)
            calls[BASELINE, threads] = _call(sessions[threads], feeds)
            if batch == 1:  # where the way from Python to native code counts
                calls[BOUND, threads] = networks[threads].bind(feeds).run
                calls[BOUND_BASELINE, threads] = bound_session(sessions[threads], feeds["x"], layer.outputs)
        timings = interleave(calls, plan.budget, _settle(calls))
        if plan.doubt is not None and _least_ratio(timings) < plan.doubt.ratio:
            timings = interleave(calls, plan.doubt.budget, _settle(calls))
        yield from _rows(suite, layer, batch, timings)


def _least_ratio(timings: Mapping[EngineThreads, Timing]) -> float:
    """Return the least ratio of onnxruntime's median to ours, on the same threads."""
    ours = {threads: timing for (engine, threads), timing in timings.items() if engine == "redpebble"}
    return min(timings[BASELINE, threads].median_us / timing.median_us for threads, timing in ours.items())


class _Runnable(Protocol):
    """A compiled network of ours, or a session of onnxruntime."""

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Floats], /) -> object: ...


def _call(runnable: _Runnable, feeds: dict[str, Floats]) -> Call:
    return lambda: runnable.run(None, feeds)


def _rows(suite: str, layer: RandomLayer, batch: int, timings: dict[EngineThreads, Timing]) -> Iterator[Row]:
    connections = int(np.count_nonzero(layer.weight()))
    for (engine, threads), timing in timings.items():
        baseline = timings.get((BASELINE, threads))
        yield Row(
            suite=suite,
            model=layer.name,
            engine=engine,
            batch=batch,
            threads=threads,
            median_us=timing.median_us,
            min_us=timing.min_us,
            speedup_vs_onnxruntime=baseline.median_us / timing.median_us if baseline is not None else None,
            inputs=layer.inputs,
            outputs=layer.outputs,
            sparsity=layer.sparsity,
            connections=connections,
        )


def _settle(calls: dict[EngineThreads, Call]) -> dict[EngineThreads, float]:
    """Return how long to wait after each turn on several threads."""
    waits = settle_seconds(ENGINES, 2)
    # a bound call is its engine's
    return {(name, threads): waits.get(name.split()[0], 0.0) if threads > 1 else 0.0 for name, threads in calls}


def _repeats(call: Call) -> int:
    """Return how many calls make a burst."""
    timing = interleave({"": call}, Budget(0.0, least_rounds=1))[""]
    return max(1, min(1000, round(BURST_SECONDS * 1e6 / timing.min_us)))


def print_missing_peers() -> None:
    """Print a line for each library that is not installed."""
    for name, peer in PEERS.items():
        try:
            peer.check()
        except PeerError as error:
            console.print(f"{name} is left out: {error}", highlight=False)


def quick_layers() -> list[RandomLayer]:
    """Return few layers for a look."""
    return random_layers((0.8, 0.95), SHAPES[:1])


def main(
    output: Annotated[Path | None, typer.Option("-o", help="Where the result goes.")] = None,
    seconds: Annotated[float, typer.Option(help="Measuring time for each layer, batch and suite.")] = 0.25,
    *,
    quick: Annotated[bool, typer.Option(help="Only 768x768 at 0.8 and 0.95.")] = False,
) -> None:
    """Measure single layers."""
    print_missing_peers()
    plan = LayerPlan(quick_layers() if quick else random_layers(SPARSITIES), budget=Budget(seconds, least_rounds=3))
    rows = [row for rows in shown(bench_layers(plan), "layers", len(plan.layers)) for row in rows]
    console.print(layer_lines(rows))
    if output is not None:
        Result(describe_machine(), rows=rows).write(output)


if __name__ == "__main__":
    typer.run(main)
