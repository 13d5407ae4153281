"""Losses of replicas of Lion that send less: `mpiexec -n 4 python -m redpebble.bench.replicas_bench [--task weather]`.

Each exchange trains the same networks from the same values on the same batches, with three seeds and one rate: of
`RATES` the one by which Lion with sums of float32 loses least. A loss is that of all samples after the last step, and
is divided by what float32 has of the same seed. A row of float32 with batches in another order says how much of a
difference is chance. A rank's sent bytes are a share of those of float32. The seconds of an epoch
are the mean over all epochs but the first, without validation: a slow network shows what fewer bytes are worth.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, NamedTuple

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
from ..pruning.examples.weather.generated_fields import generated
from ..pruning.examples.weather.networks import mlp
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
    model = read_model(mlp(rng, (25, 512, 512)))
    for value in model.graph.initializers.values():
        array = _array(value)
        if array.ndim == 2 and min(array.shape) > 1:
            kept = rng.random(array.shape) < 0.2
            value.const_value = ir.tensor(np.where(kept, array * np.float32(5**0.5), 0), name=value.name)
    data = generated(24_576, rng)
    return Task(model, Samples(data.for_networks, data.truth), FinetuneOptions("crps", "lion", 20, 256))


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


class Trained(NamedTuple):
    """The loss after the last step, the bytes that a rank sent, and the seconds of an epoch."""

    loss: float
    sent: int
    seconds: float


class Runs:
    """A task with one seed on all ranks."""

    def __init__(self, name: str, seed: int, epochs: int = 0) -> None:
        """Make the code."""
        task = TASKS[name](np.random.default_rng(seed))
        self._task = replace(task, options=replace(task.options, epochs=epochs or task.options.epochs))
        self._seed = seed
        _, rows = fitted(self._task.options, self._task.samples, MpiReplicas.of_world())
        self._step = NativeStep(self._task.model, StepOptions(self._task.options.loss, rows))
        self._start = self._step.values.copy()

    def run(self, rate: float, words: Mapping[str, Any]) -> Trained:
        """Train from the first values again."""
        step, replicas = self._step, MpiReplicas.of_world()
        step.values[:] = self._start
        step.put()
        seed = self._seed + words.get("seed", 0)
        options = replace(self._task.options, **{**words, "rate": rate, "seed": seed})
        _, report = trained(step, self._task.samples, options, replicas=replicas)
        epochs = report.epochs
        # before training, validation alone was measured
        seconds = np.mean([one.seconds for one in epochs[1:] or epochs]) - report.before.seconds
        return Trained(epochs[-1].validation, replicas.bytes_sent, float(seconds))


def main(
    task: Annotated[str, typer.Option(help="Digits, weather or teacher.")] = "digits",
    only: Annotated[str, typer.Option(help="Exchanges, by commas; by itself all.")] = "",
    rates: Annotated[str, typer.Option(help="Rates that are tried with float32.")] = ",".join(map(str, RATES)),
    seeds: Annotated[str, typer.Option(help="Seeds, by commas.")] = ",".join(map(str, SEEDS)),
    epochs: Annotated[int, typer.Option(help="Times that all samples are trained on; 0: as the task has it.")] = 0,
) -> None:
    """Print a line for each exchange."""
    runs = [Runs(task, seed, epochs) for seed in map(int, seeds.split(","))]
    by_rate = {rate: [run.run(rate, EXCHANGES["f32"]) for run in runs] for rate in map(float, rates.split(","))}
    means = {rate: float(np.mean([one.loss for one in found])) for rate, found in by_rate.items()}
    best = min(means, key=means.__getitem__)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for header in (f"{task}, --lr {best:g}", "loss", "over f32, each seed", "mean", "bytes", "epoch"):
        table.add_column(header, justify="right", no_wrap=True)
    for name, words in EXCHANGES.items():
        if only and name not in only.split(","):
            continue
        found = by_rate[best] if name == "f32" else [run.run(best, words) for run in runs]
        ratios = [100 * (one.loss / other.loss - 1) for one, other in zip(found, by_rate[best], strict=True)]
        losses = float(np.mean([one.loss for one in found]))
        each = " ".join(f"{ratio:+.2f}" for ratio in ratios)
        share = by_rate[best][0].sent / max(1, found[0].sent)
        seconds = f"{np.mean([one.seconds for one in found]):.2f} s"
        table.add_row(name, f"{losses:.5f}", each, f"{np.mean(ratios):+.2f} %", f"1/{share:.1f}", seconds)
    if not MpiReplicas.of_world().rank:
        console.print(f"f32: {', '.join(f'{rate:g} {loss:.5f}' for rate, loss in means.items())}", highlight=False)
        console.print(table)


if __name__ == "__main__":
    typer.run(main)
