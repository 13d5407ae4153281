"""The benchmark of a model: every engine at every batch and number of threads, as ratios to onnxruntime."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from ...foundation.log import LOG
from ...frontend.reading.model_source import read_model, read_runnable_model
from ...verification.feeds import InputChoice
from ...verification.measuring import Budget, Timing, interleave
from .engines.aligned import aligned
from .engines.engines import ENGINES, Loaded, load_engines
from .machine import describe_machine
from .results import BASELINE, NATIVE, BenchRow, is_disturbed

OURS: Final = ("session", NATIVE)
"""Our engines: a session, as users are told to run models, and native code called without onnxruntime."""


@dataclass(frozen=True)
class BenchPlan:
    """Batch sizes, numbers of threads and engines beside the baseline to measure, and seconds for each."""

    batches: Sequence[int] = (1, 32, 128)
    threads: Sequence[int] = (1,)
    engines: Sequence[str] = OURS
    budget: Budget = field(default_factory=Budget)
    inputs: InputChoice = field(default_factory=InputChoice)

    def __post_init__(self) -> None:
        for name, values in (("batches", self.batches), ("threads", self.threads)):
            if not values or min(values) < 1:
                raise ValueError(f"{name}: expected 1 or more each, got {', '.join(map(str, values)) or 'none'}")


@dataclass(frozen=True)
class LoadedModel:
    """A model in the engines that can run it, and a line for each of the others."""

    path: Path
    engines: Mapping[str, Loaded]
    skipped: Sequence[str]


def measure(
    model: str | os.PathLike[str],
    *,
    batches: Sequence[int] = (1, 32, 128),
    threads: Sequence[int] = (1,),
    against: Sequence[str] = (),
    seconds: float = 1.0,
    sizes: Mapping[str, int] | None = None,
) -> list[BenchRow]:
    """Return the measurements of `bench`: a session, native code, and the engines `against`, beside onnxruntime.

    Every engine runs in turn for `seconds` at each batch and number of threads; `sizes` are those of other free axes,
    by name. An engine that does not run the model is left out, which the log says at level INFO.

    Raises:
        ModelError: the model is unreadable.
        ValueError: there is no such engine or axis, or a batch or number of threads is none.
    """
    plan = BenchPlan(batches, threads, (*OURS, *against), Budget(seconds), InputChoice(dims=sizes or {}))
    loaded = load_model(model, plan)
    for line in loaded.skipped:
        LOG.info("%s", line)
    return list(bench_model(loaded, plan))


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
            calls = {name: loaded(feeds, threads) for name, loaded in model.engines.items()}
            timings = interleave(calls, plan.budget, settle_seconds(calls, threads))
            for name, timing in timings.items():
                ratio = speed_ratio(timings[BASELINE], timing)
                yield BenchRow(model.path.name, name, batch, threads, timing.median_us, timing.min_us, ratio)


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


def settle_seconds(names: Mapping[str, object], threads: int) -> dict[str, float]:
    """Return how long to wait after each engine's turn; one thread has nobody to wait for."""
    return {name: ENGINES[name].settle_seconds for name in names} if threads > 1 else {}


def bench_report(rows: Sequence[BenchRow]) -> dict[str, Any]:
    """Return rows and machine as JSON."""
    return {"machine": describe_machine(), "rows": [asdict(row) for row in rows]}
