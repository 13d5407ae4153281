"""Training of what a pruned network has left: its zeros stay, its outputs come closer to the dense model's.

Steps are those of `redpebble.finetune`. The dense model answers for any input, so that it also teaches what lies
between two samples of the data. Labels that are given take its place, and are mixed as inputs are (mixup, Zhang et al.
2018); then inputs get some noise, as they mean the same with it.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import cos, pi
from typing import Any, Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ..passes.training.losses import LossName
from ..training.native_step import NativeStep, StepOptions
from ..training.optimizers import Adam
from ..training.samples import Floats, Teacher
from .runs.calibration_data import BATCH

RATE: Final = 1e-3
FARTHEST: Final = 0.5
"""Part of the way from one sample to another that an input lies at, at most."""

NOISE: Final = 0.5
"""Deviation of what is added to inputs with labels, over that of all inputs: a teacher would answer for the noise."""


@dataclass(frozen=True)
class Lessons:
    """Inputs by name [samples, features], and what is to be answered; what the teacher answers where it is None."""

    inputs: Mapping[str, Floats]
    teacher: Teacher
    labels: Floats | None = None
    """Wanted outputs [samples, outputs]: shares of classes where these are the loss."""
    loss: LossName = "mse"

    def of_samples(self, chosen: NDArray[np.bool_]) -> "Lessons":
        """Return the lessons of some samples."""
        inputs = {name: value[chosen] for name, value in self.inputs.items()}
        return replace(self, inputs=inputs, labels=None if self.labels is None else self.labels[chosen])


def lessons_of(batches: Sequence[Mapping[str, NDArray[Any]]], labels: NDArray[Any] | None, teacher: Teacher) -> Lessons:
    """Return lessons; whole numbers are classes, others are wanted outputs.

    Raises:
        ValueError: samples are no rows of features, labels are not as many as samples, are no finite numbers, or are
            none that the outputs can have.
    """
    for name, value in batches[0].items():
        if value.ndim != 2 or value.dtype != np.float32:
            raise ValueError(
                f"input {name!r}: expected float32 (samples, features), got {value.dtype} of shape {value.shape}"
            )
    inputs = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    count, outputs = len(next(iter(inputs.values()))), teacher(batches[0]).shape[-1]
    if labels is None:
        return Lessons(inputs, teacher)
    if np.issubdtype(labels.dtype, np.integer) and labels.shape == (count,) and outputs > 1:
        if not 0 <= labels.min() <= labels.max() < outputs:
            raise ValueError(f"labels: expected classes 0 to {outputs - 1}, got {labels.min()} to {labels.max()}")
        return Lessons(inputs, teacher, np.eye(outputs, dtype=np.float32)[labels], "cross-entropy")
    wanted = labels.reshape(-1, 1) if labels.ndim == 1 else labels
    if wanted.shape != (count, outputs) or wanted.dtype.kind not in "fiub" or not np.isfinite(wanted).all():
        raise ValueError(
            f"labels: expected classes ({count},) or finite outputs ({count}, {outputs}), "
            f"got {labels.dtype} of shape {labels.shape}"
        )
    return Lessons(inputs, teacher, wanted.astype(np.float32))


def trained(model: onnx_ir.Model, lessons: Lessons, seconds: float, seed: int, threads: int = 1) -> onnx_ir.Model:
    """Return a model whose connections were trained for some seconds; code for it is made before.

    Raises:
        ModelError: something in the model has no derivative.
    """
    rng = np.random.default_rng(seed)
    step = NativeStep(model, StepOptions(lessons.loss, BATCH, threads))
    feeds = {name: np.empty((BATCH, array.shape[1]), np.float32) for name, array in lessons.inputs.items()}
    noise = {name: NOISE * float(array.std()) for name, array in lessons.inputs.items()}
    target = np.empty((BATCH, step.network.program.inputs[-1].shape[-1].constant or 0), np.float32)
    batch, optimizer = step.bind(feeds, target), Adam(len(step.values))
    start = time.perf_counter()
    while (share := (time.perf_counter() - start) / seconds) < 1:
        between = _Between.of(len(next(iter(lessons.inputs.values()))), rng)
        for name, array in lessons.inputs.items():
            feeds[name][...] = between(array)
            if lessons.labels is not None:
                feeds[name] += noise[name] * rng.standard_normal(feeds[name].shape, dtype=np.float32)
        target[...] = lessons.teacher(feeds) if lessons.labels is None else between(lessons.labels)
        batch.run()
        # down to nothing along half a cosine
        optimizer.update(step.values, step.gradient, RATE * cos(share * pi / 2) ** 2, 1 / BATCH)
        step.put()
    return step.trained(step.values)


class _Between(NamedTuple):
    """Random samples, each moved a part of the way to another one."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    part: Floats

    @staticmethod
    def of(count: int, rng: np.random.Generator) -> "_Between":
        first, second = rng.integers(0, count, BATCH), rng.integers(0, count, BATCH)
        return _Between(first, second, rng.uniform(0, FARTHEST, (BATCH, 1)).astype(np.float32))

    def __call__(self, values: Floats) -> Floats:
        first = values[self.first]
        return np.add(first, self.part * (values[self.second] - first), dtype=np.float32)
