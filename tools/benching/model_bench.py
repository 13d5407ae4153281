"""The benchmark of a model: every engine at every batch and number of threads, as ratios to onnxruntime."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any, Final

from ...foundation.threads import usable_threads
from ...frontend.reading.model_source import read_model, read_runnable_model
from ...verification.feeds import InputChoice
from ...verification.measuring import Budget, Call, TimesItself, Timing, interleave, throughputs
from ..console.console import console
from ..console.working import working
from ..json_reports import write_report
from .benchmark import Benchmark
from .engines.aligned import aligned
from .engines.engines import CALLED_AT_ONCE, ENGINES, Feeds, Loaded, installed_peers, left_out_line, load_engines
from .engines.peers import PEERS
from .errors import NotCoveredError, PeerError
from .machine import describe_machine
from .progress import shown
from .results import BASELINE, NATIVE, BenchRow, is_disturbed
from .tracing import write_trace

OURS: Final = ("session", NATIVE)
"""Our engines: a session, as users are told to run models, and native code called without onnxruntime."""


@dataclass(frozen=True)
class BenchPlan:
    """Batch sizes, numbers of threads and engines beside the baseline to measure, and seconds for each.

    `callers` are the threads that call at once to measure throughput, which is left out where there are none.
    """

    batches: Sequence[int] = (1, 32, 128)
    threads: Sequence[int] = (1,)
    engines: Sequence[str] = OURS
    budget: Budget = field(default_factory=Budget)
    inputs: InputChoice = field(default_factory=InputChoice)
    callers: int = 0

    def __post_init__(self) -> None:
        for name, values in (("batches", self.batches), ("threads", self.threads)):
            if not values or min(values) < 1:
                raise ValueError(f"{name}: expected 1 or more each, got {', '.join(map(str, values)) or 'none'}")
        if self.callers < 0:
            raise ValueError(f"callers: expected 0 or more, got {self.callers}")


VERSIONED: Final = ("openvino", "scipy", "mkl", "torch")
"""Engines that are packages of the same names."""


@dataclass(frozen=True)
class LoadedModel:
    """A model in the engines that can run it, and a line for each of the others."""

    path: Path
    engines: Mapping[str, Loaded]
    skipped: list[str]


def bench(
    model: str | os.PathLike[str],
    *,
    batches: Sequence[int] = (1, 32, 128),
    threads: Sequence[int] = (1,),
    against: Sequence[str] | None = None,
    seconds: float = 1.0,
    callers: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Benchmark:
    """Return what the command `bench` shows: a session, native code, and the engines `against`, beside onnxruntime.

    Engines take turns for `seconds` at each batch and number of threads, and as long once more while `callers` threads
    call at once: as many as there are cores, none for 0. Without `against` OpenVINO is measured where it is installed.
    `sizes` are those of other free axes, by name.

    Raises:
        ModelError: the model is unreadable.
        ValueError: there is no such engine or axis, or a batch or number of threads is none.
    """
    engines = (*OURS, *(installed_peers() if against is None else against))
    callers = usable_threads() if callers is None else callers
    plan = BenchPlan(batches, threads, engines, Budget(seconds), InputChoice(dims=sizes or {}), callers)
    loaded = load_model(model, plan)
    rows = list(bench_model(loaded, plan))
    return benchmark(loaded, plan, rows)


def benchmark(model: LoadedModel, plan: BenchPlan, rows: Sequence[BenchRow]) -> Benchmark:
    """Return the rows of a model with what a reader has to know of them."""
    versions = {"redpebble": _version("redpebble"), "onnxruntime": _version("onnxruntime")}
    versions |= {name: _version(name) for name in dict.fromkeys(row.engine for row in rows) if name in VERSIONED}
    left_out = [*model.skipped, *filter(None, [assumed_line(model.path, plan.inputs)])]
    return Benchmark(model.path.name, describe_machine(), versions | {"Python": python_version()}, rows, left_out)


def load_model(path: str | os.PathLike[str], plan: BenchPlan) -> LoadedModel:
    """Return the model at `path` in the engines of `plan` and in onnxruntime.

    Raises:
        ValueError: an engine that is not known.
    """
    read_runnable_model(path)  # says more about a broken file than the engines do
    engines, skipped = load_engines(tuple(dict.fromkeys([*plan.engines, BASELINE])), path)
    return LoadedModel(Path(path), engines, skipped)


def bench_model(model: LoadedModel, plan: BenchPlan) -> Iterator[BenchRow]:
    """Yield a row for each engine, batch and number of threads; onnxruntime is always measured in the same rounds."""
    for batch, made in plan.inputs.of_batches(read_model(model.path), plan.batches):
        feeds = {name: aligned(array) for name, array in made.items()}
        for threads in plan.threads:
            calls = _calls(model, feeds, threads)
            timings = interleave(calls, plan.budget, settle_seconds(calls, threads))
            rates = _throughputs(model, plan, calls, feeds, threads)
            for name, timing in timings.items():
                ratio = speed_ratio(timings[BASELINE], timing)
                words = (model.path.name, name, batch, threads, timing.median_us, timing.min_us, ratio)
                yield BenchRow(*words, timing.p99_us, timing.calls, plan.callers, rates.get(name))


def _throughputs(
    model: LoadedModel, plan: BenchPlan, calls: Mapping[str, Call], feeds: Feeds, threads: int
) -> dict[str, float]:
    """Return the calls a second of each engine that several threads may call at once."""
    if not plan.callers:
        return {}
    shared = {name: call for name, call in calls.items() if not (name in PEERS or isinstance(call, TimesItself))}
    for name in CALLED_AT_ONCE.keys() & shared.keys():
        shared[name] = CALLED_AT_ONCE[name].load(model.path)(feeds, threads)
    return throughputs(shared, plan.callers, plan.budget.seconds)


def _calls(model: LoadedModel, feeds: Feeds, threads: int) -> dict[str, Call]:
    """Return the call of each engine on the same inputs; what an engine says against them is a line of the model's."""
    calls: dict[str, Call] = {}
    for name, loaded in model.engines.items():
        try:
            calls[name] = loaded(feeds, threads)
        except (NotCoveredError, PeerError) as error:
            line = left_out_line(name, error)
            if line not in model.skipped:
                model.skipped.append(line)
    return calls


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"


def speed_ratio(baseline: Timing, timing: Timing) -> float:
    """Return how many times as fast as a baseline calls are: by medians, or by the fastest where one was disturbed."""
    if any(is_disturbed(one.median_us, one.min_us) for one in (baseline, timing)):
        return baseline.min_us / timing.min_us
    return baseline.median_us / timing.median_us


def assumed_line(path: Path, choice: InputChoice) -> str:
    """Return the sizes of free axes that nobody gave, and how to give them; empty where there are none."""
    assumed = choice.assumed(read_model(path))
    if not assumed:
        return ""
    sizes = " and ".join(f"{name} is {size}" for name, size in assumed.items())
    return f"{sizes} in these inputs; --dim {next(iter(assumed))}=128 gives another size"


def bench_and_print(model: Path, plan: BenchPlan, report: Path | None, trace: Path | None = None) -> None:
    """Measure and show a table of markdown: a line for each engine, batch and number of threads.

    With `trace` the first batch is traced, too, on the first number of threads.
    """
    with working("compiling for", model):
        loaded = load_model(model, plan)
    total = len(plan.batches) * len(plan.threads) * len(loaded.engines)
    measured = bench_model(loaded, plan)
    rows = list(shown(measured, "measuring", total))
    found = benchmark(loaded, plan, rows)
    for line in found.left_out:
        console.print(line, highlight=False)
    console.print(str(found), highlight=False, markup=False, soft_wrap=True)
    if trace is not None:
        with working("tracing", model):
            _, feeds = next(plan.inputs.of_batches(read_model(model), plan.batches))
            write_trace(model, feeds, plan.threads[0], trace)
        console.print(f"{trace} has the passes and the nodes by time: ui.perfetto.dev shows it", highlight=False)
    write_report(report, "bench", bench_report(rows, found))


def settle_seconds(names: Mapping[str, object], threads: int) -> dict[str, float]:
    """Return how long to wait after each engine's turn; one thread has nobody to wait for."""
    return {name: ENGINES[name].settle_seconds for name in names} if threads > 1 else {}


def bench_report(rows: Sequence[BenchRow], found: Benchmark | None = None) -> dict[str, Any]:
    """Return rows and machine as JSON."""
    versions = {} if found is None else {"versions": dict(found.versions)}
    return {"machine": describe_machine(), **versions, "rows": [asdict(row) for row in rows]}
