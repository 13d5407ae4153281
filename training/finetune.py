"""`redpebble.finetune`: weights of a sparse network are trained where they are not zero, the page to read first here.

```
trainable_model   values of initializers are followed into packed weights     trainable_model.py
packed_values     their places there                                         packed_values.py
native_step       outputs and gradients of a batch as native code            native_step.py
steps             what the loop needs of a step                              steps.py
samples           batches of what is there, and what is wanted of them       samples.py
optimizers        from gradients to other values                             optimizers.py
```
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ..driver.compiler import compile as compiled
from ..export.save_model import save_model
from ..frontend.errors import within_limits
from ..frontend.import_model import Source
from ..frontend.reading.faults import reading
from ..frontend.reading.model_source import read_model
from ..passes.training.losses import LossName
from .loss_values import hits, mean_loss
from .native_step import NativeStep, StepOptions
from .optimizers import OPTIMIZERS, OptimizerName, Places, VotedLion
from .options import FinetuneOptions, Schedule
from .quantized_sums import QuantizedSums
from .replicas import Alone, Replicas
from .samples import Samples, Teacher, shuffled_batches
from .steps import Batch, Step

Floats = NDArray[np.float32]
Watch = Callable[[str, int, int], None]
"""Called with what is done, how many parts of it are, and how many there are."""


class Epoch(NamedTuple):
    """All samples once: mean losses of training and of validation, and the share of classes that validation hits."""

    loss: float
    validation: float
    hits: float | None
    seconds: float


@dataclass(frozen=True)
class FinetuneReport:
    """Record of a training."""

    options: FinetuneOptions
    before: Epoch
    epochs: tuple[Epoch, ...]
    best: int
    """The number of epochs behind which validation lost least; 0: nothing was gained, and nothing is changed."""
    values: int
    """Values that were trained."""
    initializers: tuple[str, ...]
    interrupted: bool = False

    @property
    def kept(self) -> Epoch:
        """The epoch whose values are in the model."""
        return self.epochs[self.best - 1] if self.best else self.before

    def __str__(self) -> str:
        """Return a line."""
        kept = f"{self.before.validation:.4g} -> {self.kept.validation:.4g}"
        classes = ""
        if self.before.hits is not None and self.kept.hits is not None:
            classes = f", {100 * self.before.hits:.2f} -> {100 * self.kept.hits:.2f} % of classes"
        seconds = sum(epoch.seconds for epoch in self.epochs)
        ended = ", interrupted" if self.interrupted else ""
        return (
            f"{self.options.loss} {kept}{classes}: {len(self.epochs)} epochs in {seconds:.1f} s, "
            f"best after {self.best}, {self.values:,} values{ended}"
        )


@dataclass(frozen=True)
class Finetuned:
    """A model with trained weights, and how it went."""

    model: onnx_ir.Model = field(repr=False)
    report: FinetuneReport

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model.

        Raises:
            OSError: the file cannot be written.
        """
        save_model(self.model, path)


def finetune(
    source: Source,
    feeds: Mapping[str, NDArray[Any]],
    *,
    labels: NDArray[Any] | None = None,
    teacher: Source | Teacher | None = None,
    loss: LossName = "mse",
    optimizer: OptimizerName = "adam",
    epochs: int = 10,
    batch: int = 256,
    rate: float = 1e-3,
    schedule: Schedule = "cosine",
    warm_up: int = 0,
    patience: int = 0,
    seed: int = 0,
    threads: int = 1,
    validation: Mapping[str, NDArray[Any]] | None = None,
    validation_labels: NDArray[Any] | None = None,
) -> Finetuned:
    """Return a network whose weights are trained on their connections alone: zeros stay zeros.

    `feeds` has samples [samples, features] by the names of inputs, arrays or memory maps. They are to become `labels`,
    classes [samples] or outputs [samples, features], or what a `teacher` makes of them: a model, such as the dense one
    that the network was pruned from, or a function of some inputs. `loss` is mse, cross-entropy of scores (a softmax at
    the end is seen through), or crps, of normal distributions whose means stand before their deviations.

    Each of the `epochs` takes all samples once, in batches of `batch` rows. The rate falls to zero along half a cosine
    or is constant, behind `warm_up` steps in which it rises. What `validation` loses, or else the samples themselves,
    decides which values are kept: the best ones of all epochs; with `patience`, training ends when so many epochs have
    not been better. An interrupt ends it, and the best values are returned.

    Raises:
        ModelError: the model is unreadable, or something in it has no derivative.
        ValueError: an option, or something of the data, does not fit.
    """
    options = FinetuneOptions(loss, optimizer, epochs, batch, rate, schedule, warm_up, patience, seed, threads)
    samples = Samples(feeds, labels, None if teacher is None else teacher_of(teacher, loss))
    held_out = None if validation is None else Samples(validation, validation_labels, samples.teacher)
    return finetuned(source, samples, options, held_out)


def teacher_of(teacher: Source | Teacher, loss: LossName) -> Teacher:
    """Return the targets that a model gives for inputs; for the cross-entropy, shares of classes by its scores.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
    """
    if callable(teacher):
        return teacher
    network = compiled(teacher)

    def wanted(feeds: Mapping[str, Floats]) -> Floats:
        (outputs, *_) = network.run(None, feeds)
        if loss != "cross-entropy":
            return outputs
        powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    return wanted


def finetuned(
    source: Source,
    samples: Samples,
    options: FinetuneOptions,
    validation: Samples | None = None,
    watch: Watch | None = None,
    replicas: Replicas | None = None,
) -> Finetuned:
    """Return the result of `finetune`, by options.

    Raises:
        ModelError: as `finetune`.
        ValueError: as `finetune`.
    """
    with within_limits():
        with reading():
            model = read_model(source)
        all_replicas = replicas or Alone()
        if rows_of(model) == samples.count:
            # nodes of a graph: all at once, in their order
            options = replace(options, batch=samples.count)
        options, rows = fitted(options, samples, all_replicas)
        step = NativeStep(model, StepOptions(options.loss, rows, options.threads))
        held_out = None if validation is None else step.prepared(validation)
        values, report = trained(step, step.prepared(samples), options, held_out, watch, all_replicas)
        return Finetuned(step.trained(values), report)


def rows_of(model: onnx_ir.Model) -> int | None:
    """Return the rows that all inputs have by their types, if these say so."""
    sizes = {value.shape[0] if value.shape else None for value in model.graph.inputs}
    size = sizes.pop() if len(sizes) == 1 else None
    return size if isinstance(size, int) else None


def fitted(options: FinetuneOptions, samples: Samples, replicas: Replicas) -> tuple[FinetuneOptions, int]:
    """Return options whose batch is no larger than the data, and the rows of it that a replica takes.

    Raises:
        ValueError: replicas cannot take as many each.
    """
    options = replace(options, batch=max(1, min(options.batch, samples.count)))
    if options.batch % replicas.size:
        raise ValueError(f"batch: expected a multiple of {replicas.size} replicas, got {options.batch} samples")
    return options, options.batch // replicas.size


def trained(
    step: Step,
    samples: Samples,
    options: FinetuneOptions,
    validation: Samples | None = None,
    watch: Watch | None = None,
    replicas: Replicas | None = None,
) -> tuple[Floats, FinetuneReport]:
    """Return the best values of a step that is trained, and how it went; options are `fitted`.

    Raises:
        ValueError: the data does not fit, or the loss is no number.
    """
    for each in (samples, validation or samples):
        each.check(tuple(step.tensors), step.target)
    return _Training(step, samples, validation or samples, options, watch or _unwatched, replicas or Alone()).run()


def _unwatched(*_: object) -> None:
    """Show nothing."""


class _Training:
    """One training on its way."""

    def __init__(
        self,
        step: Step,
        samples: Samples,
        validation: Samples,
        options: FinetuneOptions,
        watch: Watch,
        replicas: Replicas,
    ) -> None:
        self.step, self.samples, self.validation, self.options, self.watch = step, samples, validation, options, watch
        self.replicas = replicas
        self.own = samples.share(replicas, options.batch)
        self.rows = len(self.own)
        self.feeds = {
            tensor.name: np.empty((self.rows, tensor.shape[-1].constant or 0), np.float32) for tensor in step.tensors
        }
        self.target = np.empty((self.rows, step.target.shape[-1].constant or 0), np.float32)
        self.batch: Batch = step.bind(self.feeds, self.target)
        count = len(step.values)
        quantized = options.exchange == "bits"
        self.add = QuantizedSums(replicas, count, options.bits, options.seed).add if quantized else replicas.add
        self.votes = options.by_sign
        bits = options.bits if options.exchange == "directions" else 1
        self.optimizer = (
            VotedLion(count, replicas, options.sync, self._synchronised(), bits)
            if self.votes
            else OPTIMIZERS[options.optimizer](count)
        )

    def _synchronised(self) -> Places:
        """Return the places of the values whose momentum replicas average.

        Raises:
            ValueError: an initializer is not trained.
        """
        every = self.step.initializers
        for name in self.options.sync_of:
            if name not in every:
                raise ValueError(
                    f"momentum to average: expected one of {', '.join(every) or 'no names of parts'}, got {name!r}"
                )
        places = np.arange(len(self.step.values))
        return np.concatenate([places[every[name]] for name in self.options.sync_of] or [places])

    def run(self) -> tuple[Floats, FinetuneReport]:
        """Train; return the best values, and how it went."""
        options, step = self.options, self.step
        rng, begun = np.random.default_rng(options.seed), time.perf_counter()
        start, share = self._validated()
        before = Epoch(float("nan"), start, share, time.perf_counter() - begun)
        best, values, epochs, interrupted = 0, step.values.copy(), list[Epoch](), False
        try:
            for number in range(options.epochs):
                begun = time.perf_counter()
                loss = self._epoch(number, rng)
                found, share = self._validated()
                epochs.append(Epoch(loss, found, share, time.perf_counter() - begun))
                if found < (epochs[best - 1] if best else before).validation:
                    best, values = number + 1, step.values.copy()
                if options.patience and number + 1 - best >= options.patience:
                    break
        except KeyboardInterrupt:
            interrupted = True
        names = tuple(step.initializers)
        return values, FinetuneReport(options, before, tuple(epochs), best, len(values), names, interrupted)

    def _epoch(self, number: int, rng: np.random.Generator) -> float:
        """Take all samples once; return the mean loss.

        Raises:
            ValueError: the loss is no number.
        """
        options, step, losses = self.options, self.step, list[float]()
        steps = self.samples.count // options.batch
        for index, chosen in enumerate(shuffled_batches(self.samples.count, options.batch, rng)):
            self.samples.take(chosen[self.own], self.feeds, self.target)
            self.batch.run()
            losses.append(self.replicas.total(self.rows * self._loss()) / options.batch)
            if not isfinite(losses[-1]):
                raise ValueError(
                    f"loss: expected a finite number, got {losses[-1]} at step {number * steps + index}: "
                    f"finite samples and a smaller rate than {options.rate:g} may help"
                )
            rate = options.rate_at(number * steps + index, options.epochs * steps)
            if not self.votes:
                self.add(step.gradient)
            self.optimizer.update(step.values, step.gradient, rate, 1 / (self.rows if self.votes else options.batch))
            step.put()
            self.watch("training", number * steps + index + 1, options.epochs * steps)
        return float(np.mean(losses))

    def _validated(self) -> tuple[float, float | None]:
        """Return the mean loss of validation, and the share of classes that are hit where there are classes."""
        loss, share = 0.0, 0.0
        for chosen, count in self.validation.in_order(self.replicas, self.rows):
            self.validation.take(chosen, self.feeds, self.target)
            self.batch.run()
            loss += count * self._loss(count)
            share += count * hits(self.batch.outputs[:count], self.target[:count])
        loss, share = (self.replicas.total(value) / self.validation.count for value in (loss, share))
        return loss, share if self.options.loss == "cross-entropy" else None

    def _loss(self, rows: int | None = None) -> float:
        outputs, are_shares = self.batch.outputs[:rows], self.step.ends_in_softmax
        return mean_loss(self.options.loss, outputs, self.target[:rows], are_shares=are_shares)
