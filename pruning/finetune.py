"""Training of what a pruned chain of layers has left: its zeros stay, its outputs come closer to the dense model's.

The dense model answers for any input, so that it also teaches what lies between two samples of the data. Labels that
are given take its place, and are mixed as inputs are (mixup, Zhang et al. 2018); then inputs get some noise, as they
mean the same with it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from redpebble.models.adam import Adam
from redpebble.pruning.chains import ChainWeights
from redpebble.pruning.runs.calibration_data import BATCH

Array = NDArray[np.float32]

RATE: Final = 1e-3
FARTHEST: Final = 0.5
"""Part of the way from one sample to another that an input lies at, at most."""

NOISE: Final = 0.5
"""Deviation of what is added to inputs with labels, over that of all inputs: a teacher would answer for the noise."""


@dataclass(frozen=True)
class Lessons:
    """Inputs [samples, inputs] of each batch, and what is to be answered; what a teacher answers where it is None."""

    data: Sequence[Array]
    labels: Array | None = None
    """Wanted outputs [samples, outputs]: shares of classes where `are_classes`."""
    are_classes: bool = False


def lessons_of(data: Sequence[Array], labels: NDArray[Any] | None, outputs: int, is_linear: bool) -> Lessons:
    """Return lessons for a chain with so many outputs; whole numbers are classes, others are wanted outputs.

    Raises:
        ValueError: labels are not as many as samples, are no finite numbers, or are none that the outputs can have.
    """
    if labels is None:
        return Lessons(data)
    count = sum(map(len, data))
    if np.issubdtype(labels.dtype, np.integer) and labels.shape == (count,) and outputs > 1:
        if not 0 <= labels.min() <= labels.max() < outputs:
            raise ValueError(f"labels are {labels.min()} to {labels.max()}, accepted are classes 0 to {outputs - 1}")
        return Lessons(data, np.eye(outputs, dtype=np.float32)[labels], is_linear)
    wanted = labels.reshape(-1, 1) if labels.ndim == 1 else labels
    if wanted.shape != (count, outputs) or wanted.dtype.kind not in "fiub" or not np.isfinite(wanted).all():
        raise ValueError(
            f"labels are {labels.dtype} of shape {labels.shape}, accepted are classes ({count},) or "
            f"finite outputs ({count}, {outputs})"
        )
    return Lessons(data, wanted.astype(np.float32))


def train(pruned: ChainWeights, dense: ChainWeights, lessons: Lessons, seconds: float, seed: int) -> int:
    """Train `pruned`, in place, for some seconds, the dense model being the teacher; return the number of steps."""
    rng, x = np.random.default_rng(seed), np.concatenate(list(lessons.data))
    # moments are kept for what is left alone: products with a mask took longer than all of the network
    kept = [np.flatnonzero(weight) for weight in pruned.weights]
    weights = [weight.reshape(-1)[places] for weight, places in zip(pruned.weights, kept, strict=True)]
    answers = dense.forward(x[: 16 * BATCH])[-1] if lessons.labels is None else lessons.labels
    scale = np.float32(1 if lessons.are_classes else 1 / max(float(np.var(answers)), 1e-12))
    noise = NOISE * float(x.std())
    optimizer = Adam([*weights, *pruned.biases])
    start, steps = time.perf_counter(), 0
    # products are small: threads would wait for each other more than they compute
    with threadpool_limits(1):
        while (share := (time.perf_counter() - start) / seconds) < 1:
            between = _Between.of(len(x), rng)
            samples = between(x) if lessons.labels is None else _noisy(between(x), noise, rng)
            wanted = dense.forward(samples)[-1] if lessons.labels is None else between(lessons.labels)
            values = pruned.forward(samples)
            found = _softmax(values[-1]) if lessons.are_classes else values[-1]
            by_weight, by_bias = pruned.gradients(values, scale * (found - wanted) / np.float32(wanted.size))
            own = [gradient.reshape(-1)[places] for gradient, places in zip(by_weight, kept, strict=True)]
            # down to nothing along half a cosine
            optimizer.update([*own, *by_bias], RATE * float(np.cos(share * np.pi / 2)) ** 2)
            for weight, places, new in zip(pruned.weights, kept, weights, strict=True):
                weight.reshape(-1)[places] = new
            steps += 1
    return steps


def _noisy(x: Array, deviation: float, rng: np.random.Generator) -> Array:
    return np.add(x, deviation * rng.standard_normal(x.shape, dtype=np.float32), dtype=np.float32)


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


class _Between(NamedTuple):
    """Random samples, each moved a part of the way to another one."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    part: Array

    @staticmethod
    def of(count: int, rng: np.random.Generator) -> "_Between":
        first, second = rng.integers(0, count, BATCH), rng.integers(0, count, BATCH)
        return _Between(first, second, rng.uniform(0, FARTHEST, (BATCH, 1)).astype(np.float32))

    def __call__(self, values: Array) -> Array:
        first = values[self.first]
        return np.add(first, self.part * (values[self.second] - first), dtype=np.float32)
