"""The benchmark of a model: every engine at every batch and number of threads, as ratios to onnxruntime."""

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from redpebble.bench.engines import ENGINES, Workload
from redpebble.bench.measuring import Budget, interleave
from redpebble.frontend.reading import read_model
from redpebble.models.feeds import inputs_for
from redpebble.runtime.machine_code import host_target

BASELINE = "onnxruntime"


@dataclass(frozen=True)
class BenchRow:
    """One engine on one model: microseconds a call, and the ratio of onnxruntime's median to its own."""

    model: str
    engine: str
    batch: int
    threads: int
    median_us: float
    min_us: float
    speedup_vs_onnxruntime: float


@dataclass(frozen=True)
class BenchPlan:
    """What is measured: batch sizes, numbers of threads, engines beside the baseline, and how long for each."""

    batches: Sequence[int] = (1, 32, 128)
    threads: Sequence[int] = (1,)
    engines: Sequence[str] = ("redpebble",)
    budget: Budget = field(default_factory=Budget)


def bench_model(path: str | os.PathLike[str], plan: BenchPlan) -> Iterator[BenchRow]:
    """Yield a row for each engine, batch and number of threads; onnxruntime is always measured in the same rounds.

    Raises:
        ValueError: an engine that is not known.
    """
    for name in plan.engines:
        if name not in ENGINES:
            raise ValueError(f"unknown engine {name!r}, accepted are {', '.join(ENGINES)}")
    model = read_model(path)
    names = list(dict.fromkeys([*plan.engines, BASELINE]))
    for batch in plan.batches:
        feeds = inputs_for(model, batch, np.random.default_rng(0))
        for threads in plan.threads:
            workload = Workload(path, feeds, threads)
            timings = interleave({name: ENGINES[name](workload) for name in names}, plan.budget)
            for name, timing in timings.items():
                ratio = timings[BASELINE].median_us / timing.median_us
                yield BenchRow(Path(path).name, name, batch, threads, timing.median_us, timing.min_us, ratio)


def bench_report(rows: Sequence[BenchRow]) -> dict[str, Any]:
    """Return rows and machine as JSON."""
    target = host_target()
    machine = {
        "architecture": platform.machine(),
        "system": platform.system(),
        "cpu": target.cpu,
        "vector_floats": target.lanes,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    return {"machine": machine, "rows": [asdict(row) for row in rows]}
