"""Losses of replicas of Lion that send less: `mpiexec -n 4 python -m redpebble.bench.replicas_bench [--task weather]`.

Each exchange trains the same networks from the same values on the same batches, with three seeds and one rate: of
`RATES` the one by which Lion with sums of float32 loses least. A loss is that of all samples after the last step, and
is divided by what float32 has of the same seed. A row of float32 with batches in another order says how much of a
difference is chance. Bytes are those that a rank sends, as a share of those of float32.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import numpy as np
import onnx_ir as ir
import typer
from numpy.typing import NDArray
from rich.table import Table

from ..distributed.run.replicas import MpiReplicas
from ..driver.compiler import compile as compiled
from ..frontend.reading.model_source import read_model
from ..models import zoo
from ..models.digits_training import split_digits
from ..pruning.examples.weather import FEATURES, generated, network
from ..tools.console.console import console
from ..training.finetune import fitted, trained
from ..training.native_step import NativeStep, StepOptions
from ..training.options import FinetuneOptions
from ..training.samples import Samples

SEEDS: Final = (0, 1, 2)
RATES: Final = (1e-4, 3e-4, 1e-3, 3e-3)

EXCHANGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "f32": {},
    "f32 in another order": {"seed": 100},
    "signs": {"exchange": "signs"},
    "signs and momentum every 28 steps": {"exchange": "signs", "sync": 28},
    "signs and momentum every 16 steps": {"exchange": "signs", "sync": 16},
    "directions in 2 bits": {"exchange": "directions", "bits": 2},
    "directions in 3 bits": {"exchange": "directions", "bits": 3},
    "directions in 4 bits": {"exchange": "directions", "bits": 4},
    "directions in 2 bits and momentum every 48 steps": {"exchange": "directions", "bits": 2, "sync": 48},
    "gradients in 1 bit": {"exchange": "bits", "bits": 1},
    "gradients in 2 bits": {"exchange": "bits", "bits": 2},
    "gradients in 4 bits": {"exchange": "bits", "bits": 4},
}
"""Options of each exchange; a seed is added to that of the run."""


@dataclass(frozen=True)
class Task:
    """A network with its samples, and the options of all exchanges."""

    model: ir.Model
    samples: Samples
    options: FinetuneOptions


def digits(rng: np.random.Generator) -> Task:
    """Return zoo's digits, 95 % zeros, whose weights are disturbed by 0.8 of their deviation."""
    model = _disturbed(read_model(zoo.build("digits")), rng)
    data, _ = split_digits(0)
    (name,) = (value.name or "" for value in model.graph.inputs)
    samples = Samples({name: data.images[:1200]}, data.labels[:1200])
    return Task(model, samples, FinetuneOptions("cross-entropy", "lion", 30, 240))


def weather(rng: np.random.Generator) -> Task:
    """Return the network for weather, random, of which 80 % are zeros."""
    model = read_model(network((FEATURES, 512, 512), rng))
    for value in model.graph.initializers.values():
        array = _array(value)
        if array.ndim == 2 and min(array.shape) > 1:
            kept = rng.random(array.shape) < 0.2
            value.const_value = ir.tensor(np.where(kept, array * np.float32(5**0.5), 0), name=value.name)
    data = generated(24_576, rng)
    return Task(model, Samples({"x": data.features}, data.truth), FinetuneOptions("crps", "lion", 20, 256))


def teacher(rng: np.random.Generator) -> Task:
    """Return three layers of 128, 80 % zeros, that are to become others of the same form."""
    spec, (first, second) = "ffnn(depth=3,width=128,density=0.2)", rng.integers(1 << 30, size=2).tolist()
    x = rng.standard_normal((4096, 128), dtype=np.float32)
    (wanted,) = compiled(zoo.build(spec, seed=second)).run(None, {"x": x})
    return Task(read_model(zoo.build(spec, seed=first)), Samples({"x": x}, wanted), FinetuneOptions("mse", "lion", 30))


TASKS: Final[Mapping[str, Callable[[np.random.Generator], Task]]] = {
    "digits": digits,
    "weather": weather,
    "teacher": teacher,
}


def _array(value: ir.Value) -> NDArray[np.float32]:
    assert value.const_value is not None
    return value.const_value.numpy()


def _disturbed(model: ir.Model, rng: np.random.Generator) -> ir.Model:
    for value in model.graph.initializers.values():
        array = _array(value)
        if array.dtype == np.float32 and array.ndim == 2:
            noise = rng.standard_normal(array.shape, dtype=np.float32) * array[array != 0].std()
            value.const_value = ir.tensor(np.where(array != 0, array + np.float32(0.8) * noise, 0), name=value.name)
    return model


class Runs:
    """A task with one seed on all ranks."""

    def __init__(self, name: str, seed: int) -> None:
        """Make the code."""
        self._task = TASKS[name](np.random.default_rng(seed))
        self._seed = seed
        _, rows = fitted(self._task.options, self._task.samples, MpiReplicas.of_world())
        self._step = NativeStep(self._task.model, StepOptions(self._task.options.loss, rows))
        self._start = self._step.values.copy()

    def run(self, rate: float, words: Mapping[str, Any]) -> tuple[float, int]:
        """Return the loss after the last step, and the bytes that were sent."""
        step, replicas = self._step, MpiReplicas.of_world()
        step.values[:] = self._start
        step.put()
        seed = self._seed + words.get("seed", 0)
        options = replace(self._task.options, **{**words, "rate": rate, "seed": seed})
        _, report = trained(step, self._task.samples, options, replicas=replicas)
        return report.epochs[-1].validation, replicas.bytes_sent


def main(
    task: Annotated[str, typer.Option(help="Digits, weather or teacher.")] = "digits",
    only: Annotated[str, typer.Option(help="Exchanges, by commas; by itself all.")] = "",
    rates: Annotated[str, typer.Option(help="Rates that are tried with float32.")] = ",".join(map(str, RATES)),
) -> None:
    """Print a line for each exchange."""
    runs = [Runs(task, seed) for seed in SEEDS]
    by_rate = {rate: [run.run(rate, EXCHANGES["f32"]) for run in runs] for rate in map(float, rates.split(","))}
    means = {rate: float(np.mean([loss for loss, _ in found])) for rate, found in by_rate.items()}
    best = min(means, key=means.__getitem__)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for header in (f"{task}, --lr {best:g}", "loss", "over f32, each seed", "mean", "bytes"):
        table.add_column(header, justify="right", no_wrap=True)
    for name, words in EXCHANGES.items():
        if only and name not in only.split(","):
            continue
        found = by_rate[best] if name == "f32" else [run.run(best, words) for run in runs]
        ratios = [100 * (loss / one - 1) for (loss, _), (one, _) in zip(found, by_rate[best], strict=True)]
        losses = float(np.mean([loss for loss, _ in found]))
        each = " ".join(f"{ratio:+.2f}" for ratio in ratios)
        share = by_rate[best][0][1] / max(1, found[0][1])
        table.add_row(name, f"{losses:.5f}", each, f"{np.mean(ratios):+.2f} %", f"1/{share:.1f}")
    if not MpiReplicas.of_world().rank:
        console.print(f"f32: {', '.join(f'{rate:g} {loss:.5f}' for rate, loss in means.items())}", highlight=False)
        console.print(table)


if __name__ == "__main__":
    typer.run(main)
