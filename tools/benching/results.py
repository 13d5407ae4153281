"""The result of a benchmark, and its JSON: machine, ceilings, timings of engines, and what compiling costs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...foundation.atomic_files import replacing
from .layer_cases import RandomLayer

BASELINE = "onnxruntime"
"""The engine that all others are compared with."""

US = "redpebble"
"""Our native code in what suites have measured."""

NATIVE = "native"
"""The same in a comparison with our sessions."""

CEILING = "ceiling"
"""The engine that does nothing but multiply-adds: see `redpebble.bench.ceilings`."""

BOUND, BOUND_BASELINE = "redpebble bound", "onnxruntime bound"
"""Both with arrays that are bound once; a batch of one only."""


DISTURBED = 1.3
"""Ratio of a median to the fastest call from which on something else must have used the machine."""


def is_disturbed(median_us: float, min_us: float) -> bool:
    """Return whether half of the calls took so much longer than the fastest that the median says little."""
    return median_us > DISTURBED * min_us


@dataclass(frozen=True)
class BenchRow:
    """One engine on one model: microseconds a call, and how many times as fast as onnxruntime it is."""

    model: str
    engine: str
    batch: int
    threads: int
    median_us: float
    min_us: float
    speedup_vs_onnxruntime: float
    """The ratio of medians; of the fastest calls where a row of the two is disturbed."""
    p99_us: float = 0.0
    """The time that 99 of 100 calls do not exceed; the slowest of fewer calls."""
    calls: int = 0
    """Calls that were timed."""
    callers: int = 0
    """Threads that called at once for `calls_per_second`; none where that was not measured."""
    calls_per_second: float | None = None

    @property
    def is_disturbed(self) -> bool:
        """Whether half of the calls took so much longer than the fastest that the median says little."""
        return is_disturbed(self.median_us, self.min_us)


@dataclass(frozen=True)
class Row:
    """One engine on one model: microseconds a call, and the ratio of onnxruntime's median to its own.

    Suites: `kernel` (one layer, feature-major in and out), `layer` and `grid` (one layer, row-major), `network`, `zoo`.
    A ratio is missing where onnxruntime takes no part. What follows it describes the layer of a suite of layers.
    """

    suite: str
    model: str
    engine: str
    batch: int
    threads: int
    median_us: float
    min_us: float
    speedup_vs_onnxruntime: float | None = None
    inputs: int = 0
    outputs: int = 0
    sparsity: float = 0.0
    connections: int = 0
    """Connections of the layer, or of all layers of a network."""

    @staticmethod
    def of(row: BenchRow, suite: str, connections: int) -> "Row":
        """Return a row of the benchmark of a model, as part of `suite`."""
        engine = US if row.engine == NATIVE else row.engine
        times = (row.median_us, row.min_us, row.speedup_vs_onnxruntime)
        return Row(suite, row.model, engine, row.batch, row.threads, *times, connections=connections)

    @property
    def gflops(self) -> float:
        """Return effective GFLOP/s: two operations a connection and sample, zeros not counted."""
        return 2e-3 * self.connections * self.batch / self.median_us

    @property
    def layer(self) -> RandomLayer:
        return RandomLayer(self.inputs, self.outputs, self.sparsity)


@dataclass(frozen=True)
class Result:
    """All that was measured."""

    machine: Mapping[str, Any]
    ceilings: Mapping[str, float] = field(default_factory=dict[str, float])
    """GFLOP/s of `ports`, GB/s of `L1`, `L2`, `L3` and `DRAM`, on one thread."""
    rows: Sequence[Row] = ()
    costs: Mapping[str, float] = field(default_factory=dict[str, float])
    """Numbers by name; the end of the name is the unit."""

    def write(self, path: Path) -> None:
        """Write the result as JSON, complete or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write((json.dumps(asdict(self), indent=1) + "\n").encode())


def with_minima(result: Result) -> Result:
    """Return the result as if the fastest round of each engine had been its median: for a machine that others use."""
    baselines = {
        (row.suite, row.model, row.batch, row.threads): row.min_us for row in result.rows if row.engine == BASELINE
    }
    rows: list[Row] = []
    for row in result.rows:
        baseline = baselines.get((row.suite, row.model, row.batch, row.threads))
        ratio = None if baseline is None else baseline / row.min_us
        rows.append(replace(row, median_us=row.min_us, speedup_vs_onnxruntime=ratio))
    return replace(result, rows=rows)


def read_result(path: Path) -> Result:
    """Return a result that was written before.

    Raises:
        ValueError: the file holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = [Row(**row) for row in content["rows"]]
        return Result(content["machine"], content["ceilings"], rows, content["costs"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no result of the benchmark: {error}") from error


def merged(results: Sequence[Result]) -> Result:
    """Return the parts of a result together."""
    first = results[0]
    ceilings = {name: value for result in results for name, value in result.ceilings.items()}
    costs = {name: value for result in results for name, value in result.costs.items()}
    return Result(first.machine, ceilings, [row for result in results for row in result.rows], costs)


def slowest(rows: Sequence[Row], count: int) -> list[Row]:
    """Return our rows with the least ratios to onnxruntime, the worst first."""
    ours = [row for row in rows if row.engine == US and row.speedup_vs_onnxruntime is not None]
    return sorted(ours, key=lambda row: row.speedup_vs_onnxruntime or 0.0)[:count]
