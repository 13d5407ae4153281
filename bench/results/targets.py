"""The targets of the kernels as data, and the verdict on each: a value of a result against a limit.

A ratio over shapes is a geometric mean. Where a target names several batches, each of them has to meet it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import Final, NamedTuple

from ...tools.benching.results import BOUND, BOUND_BASELINE, CEILING, US, Result, Row, slowest

Key = tuple[str, str, str, int, int]
"""Suite, model, engine, batch, threads."""


@dataclass(frozen=True)
class Target:
    """A limit on values of one unit; `at_most` says on which side of it they should be."""

    limit: float
    unit: str = "x"
    at_most: bool = False

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {show(self.limit, self.unit)}"

    def misses(self, value: float) -> float:
        """Return by what share `value` is on the wrong side, 0 where it is not."""
        short = value / self.limit - 1 if self.at_most else 1 - value / self.limit
        return max(0.0, short)


@dataclass(frozen=True)
class Check:
    """A target held against what was measured: values by what they belong to."""

    case: str
    target: Target
    values: Mapping[str, float]
    shares: Mapping[str, float] = field(default_factory=dict[str, float])
    """Shares of what the ports of the machine can do, by what they belong to."""

    @property
    def is_met(self) -> bool | None:
        """Return whether all values meet the target, None where nothing was measured."""
        return all(self.target.misses(value) == 0 for value in self.values.values()) if self.values else None

    @property
    def verdict(self) -> str:
        """Return the verdict in words, with the worst value's distance."""
        if not self.values:
            return "not measured"
        label, worst = max(self.values.items(), key=lambda item: self.target.misses(item[1]))
        short = self.target.misses(worst)
        if not short:
            return "met"
        where = f" at {label}" if len(self.values) > 1 else ""
        return f"missed by {100 * short:.1f} %{where}"


def show(value: float, unit: str) -> str:
    """Return a number with its unit: 1.2x, 3.1 us, 84 %."""
    number = f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    if unit == "%":
        return f"{100 * value:.0f} %"
    return f"{number}x" if unit == "x" else f"{number} {unit}"


class Measured:
    """A result, to be asked for rows and for ratios between them."""

    def __init__(self, result: Result) -> None:
        """Index the rows of `result`."""
        self.result = result
        self.rows: dict[Key, Row] = {
            (row.suite, row.model, row.engine, row.batch, row.threads): row for row in result.rows
        }

    def ours(self, suite: str, batch: int, threads: int = 1, sparsity: float | None = None) -> list[Row]:
        """Return our rows of a suite."""
        return [
            row
            for key, row in self.rows.items()
            if (key[0], *key[2:]) == (suite, US, batch, threads) and sparsity in (None, row.sparsity)
        ]

    def against(self, row: Row, engine: str, threads: int | None = None) -> float | None:
        """Return how many times as long `engine` took on the same layer, on other `threads` if given."""
        key = (row.suite, row.model, engine, row.batch, row.threads if threads is None else threads)
        other = self.rows.get(key)
        return None if other is None else other.median_us / row.median_us


Value = Callable[[Measured, Row], float | None]


def ratio_to(engine: str) -> Value:
    """Return the ratio of an engine's time to ours, on the same threads."""
    return lambda measured, row: measured.against(row, engine)


def mkl_kernel(measured: Measured, row: Row) -> float | None:
    """Return the ratio of MKL's kernel to our whole call: rows in and out and the way from Python are ours alone."""
    kernel = measured.rows.get(("kernel", row.model, "mkl", row.batch, row.threads))
    return None if kernel is None else kernel.median_us / row.median_us


def bound(measured: Measured, row: Row) -> float | None:
    """Return the ratio of onnxruntime's time to ours where both have their arrays bound once."""
    ours, theirs = (
        measured.rows.get((row.suite, row.model, name, row.batch, row.threads)) for name in (BOUND, BOUND_BASELINE)
    )
    return theirs.median_us / ours.median_us if ours is not None and theirs is not None else None


def share_of_ceiling(measured: Measured, row: Row) -> float | None:
    """Return our share of what the ports can do, measured in the same rounds."""
    return measured.against(row, CEILING)


def share_of_ports(measured: Measured, row: Row) -> float | None:
    """Return our share of what the ports of all threads of a row can do; zeros do not count as work."""
    ports = measured.result.ceilings.get("ports")
    return row.gflops / row.threads / ports if ports else None


def over_shapes(measured: Measured, value: Value, rows: Sequence[Row]) -> float | None:
    """Return the geometric mean over the rows, None where one has no value."""
    values = [value(measured, row) for row in rows]
    known = [one for one in values if one is not None]
    return geometric_mean(known) if known and len(known) == len(values) else None


@dataclass(frozen=True)
class Layers:
    """Checks of single layers: a line for each sparsity, a value for each batch."""

    case: str
    suite: str
    batches: Sequence[int]
    limits: Mapping[float, float]
    """Sparsity -> limit."""
    value: Value
    unit: str = "x"
    threads: int = 1
    worst: bool = False
    """The least value over shapes, instead of the geometric mean."""

    def checks(self, measured: Measured) -> Iterator[Check]:
        """Yield a check for each sparsity."""
        for sparsity, limit in self.limits.items():
            found: dict[str, float] = {}
            shares: dict[str, float] = {}
            for batch in self.batches:
                rows = measured.ours(self.suite, batch, self.threads, sparsity)
                value = self._least(measured, rows) if self.worst else over_shapes(measured, self.value, rows)
                share = over_shapes(measured, share_of_ports, rows)
                if value is not None:
                    found[f"M = {batch}"] = value
                if share is not None:
                    shares[f"M = {batch}"] = share
            yield Check(f"{self.case}, sparsity {sparsity:g}", Target(limit, self.unit), found, shares)

    def _least(self, measured: Measured, rows: Sequence[Row]) -> float | None:
        values = [value for row in rows if (value := self.value(measured, row)) is not None]
        return min(values, default=None)


def gflops(_: Measured, row: Row) -> float:
    """Return effective GFLOP/s."""
    return row.gflops


ORT: Final = ratio_to("onnxruntime")
MKL: Final = ratio_to("mkl")
END_TO_END: Final = {0.8: 3.0, 0.9: 5.8, 0.95: 10.0, 0.99: 28.0}
ONE_ROW: Final = {0.7: 5.0, 0.8: 8.0, 0.9: 16.0, 0.95: 25.0, 0.99: 60.0}
EIGHT_ROWS: Final = {0.8: 3.0, 0.9: 6.0, 0.95: 11.0}
DENSER: Final = (0.7, 0.8, 0.9)
WIDE: Final = (32, 128, 512)

LAYERS: Final = (
    Layers("kernel, 1 thread", "kernel", (32, 128), dict.fromkeys(DENSER, 100.0), gflops, "GF"),
    Layers("kernel, share of the port ceiling", "kernel", (32, 128), dict.fromkeys(DENSER, 0.8), share_of_ceiling, "%"),
    Layers("kernel against MKL", "kernel", (32, 128), dict.fromkeys(DENSER, 1.7), MKL),
    Layers("kernel against MKL", "kernel", WIDE, {0.95: 1.5, 0.99: 1.3}, MKL),
    Layers("kernel against MKL, worst shape", "kernel", WIDE, {0.95: 1.0, 0.99: 1.0}, MKL, worst=True),
    Layers("end to end against onnxruntime", "layer", WIDE, END_TO_END, ORT),
    Layers("M = 1 against onnxruntime", "layer", (1,), ONE_ROW, ORT),
    Layers("M = 1, bound, against onnxruntime, bound", "layer", (1,), ONE_ROW, bound),
    Layers("M = 1 kernel against MKL", "kernel", (1,), dict.fromkeys((0.7, 0.8, 0.9, 0.95), 3.0), MKL),
    Layers("M = 8 against onnxruntime", "layer", (8,), EIGHT_ROWS, ORT),
    Layers("M = 8 kernel against MKL", "kernel", (8,), dict.fromkeys(EIGHT_ROWS, 1.4), MKL),
)

TWO_THREADS: Final = (
    Layers("2 threads: end to end against onnxruntime", "layer", WIDE, END_TO_END, ORT, threads=2),
    Layers("2 threads: M = 1 against onnxruntime", "layer", (1,), ONE_ROW, ORT, threads=2),
    Layers("2 threads: M = 8 against onnxruntime", "layer", (8,), EIGHT_ROWS, ORT, threads=2),
    Layers("2 threads: end to end against MKL's kernel", "layer", (32, 128), dict.fromkeys(DENSER, 1.7), mkl_kernel,
           threads=2),
    Layers("2 threads: end to end against MKL's kernel", "layer", WIDE, {0.95: 1.5, 0.99: 1.3}, mkl_kernel, threads=2),
)  # fmt: skip

NETWORKS: Final = {"4x1024@0.8": 4.0, "4x1024@0.9": 7.0, "4x1024@0.95": 12.0}
DEEP: Final = ("12x1024, 32 a neuron", "12x1024, 32 a neuron, shared by 16")

COSTS: Final = (
    ("net.run of 16x16, in onnxruntime's", Target(1.0, at_most=True), "call_run_us", "call_onnxruntime_us"),
    ("pre-bound call of 16x16", Target(1.5, "us", at_most=True), "call_bound_us", None),
    ("compile 4x1024 at 0.9, cold", Target(2.0, "s", at_most=True), "compile_cold_s", None),
    ("compile 4x1024 at 0.9, from cache", Target(20.0, "ms", at_most=True), "compile_cached_ms", None),
    ("packing a nonzero", Target(1.0, "us", at_most=True), "packing_us", None),
    ("cost of a nonzero at 4 times as many", Target(1.2, at_most=True), "packing_growth_ratio", None),
    ("resident growth, in the packed size", Target(1.3, at_most=True), "memory_growth_ratio", None),
    ("the same without free pages of malloc", Target(1.3, at_most=True), "memory_kept_ratio", None),
)
"""Case, target, name of the cost, and of the one it is divided by."""

LEAST_SPEEDUP_OF_TWO: Final = Target(1.85)
NEVER_SLOWER: Final = Target(0.95)


def all_checks(result: Result) -> list[Check]:
    """Return every target with what was measured, in the order of the table."""
    measured = Measured(result)
    networks = [check for threads in (1, 2) for check in _networks(measured, threads)]
    one, two = ([check for layers in group for check in layers.checks(measured)] for group in (LAYERS, TWO_THREADS))
    return [*one, *networks, *_scaling(measured), *two, *_never_slower(measured), *_costs(result.costs)]


class _NetworkRows(NamedTuple):
    """The rows of our code for a network with some threads, and the number of each that is held to a limit."""

    network: str
    threads: int
    value: Callable[[Row], float | None]

    def check(self, measured: Measured, limit: Target, against: str = "") -> Check:
        case = f"{self.network}, {self.threads} thread{'s' if self.threads > 1 else ''}{against}"
        keys = ("network", self.network, US)
        rows = [row for key, row in measured.rows.items() if key[:3] == keys and row.threads == self.threads]
        values = {f"M = {row.batch}": number for row in rows if (number := self.value(row)) is not None}
        shares = {f"M = {row.batch}": share for row in rows if (share := share_of_ports(measured, row)) is not None}
        return Check(case, limit, values, shares)


def _networks(measured: Measured, threads: int) -> Iterator[Check]:
    limits = NETWORKS | dict.fromkeys(DEEP, 18.0)
    for name, limit in limits.items():
        yield _NetworkRows(name, threads, _speedup).check(measured, Target(limit), ", against onnxruntime")
        if name in DEEP:
            yield _NetworkRows(name, threads, _edges_a_core).check(measured, Target(40.0, "G edges/s a core"))


def _speedup(row: Row) -> float | None:
    return row.speedup_vs_onnxruntime


def _edges_a_core(row: Row) -> float:
    return row.gflops / 2 / row.threads


def _scaling(measured: Measured) -> Iterator[Check]:
    """Yield two threads against one: the worst sparsity of each shape and batch."""
    for batch in WIDE:
        worst: dict[str, float] = {}
        for row in measured.ours("layer", batch, 1):
            ratio = measured.against(row, US, 2)
            if ratio:
                shape = f"{row.inputs}x{row.outputs}"
                worst[shape] = min(worst.get(shape, 1 / ratio), 1 / ratio)
        yield Check(f"2 threads against 1, M = {batch}, worst sparsity", LEAST_SPEEDUP_OF_TWO, worst)


def _never_slower(measured: Measured) -> Iterator[Check]:
    for threads in (1, 2):
        rows = [row for key, row in measured.rows.items() if key[0] == "grid" and row.threads == threads]
        values = {f"{row.model}, M = {row.batch}": row.speedup_vs_onnxruntime or 0.0 for row in slowest(rows, 3)}
        yield Check(f"never slower, {threads} thread{'s' if threads > 1 else ''}: the worst", NEVER_SLOWER, values)


def _costs(costs: Mapping[str, float]) -> Iterator[Check]:
    for case, target, name, divisor in COSTS:
        known = name in costs and (divisor is None or divisor in costs)
        value = {"": costs[name] / (costs[divisor] if divisor is not None else 1)} if known else {}
        yield Check(case, target, value)
