"""Training of what a pruned chain of layers has left: its zeros stay, its outputs come closer to the dense model's.

The dense model answers for any input, so that it also teaches what lies between two samples of the data.
"""

import time
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from redpebble.models.adam import Adam
from redpebble.pruning.calibration_data import BATCH
from redpebble.pruning.chains import ChainWeights

Array = NDArray[np.float32]

RATE: Final = 1e-3
FARTHEST: Final = 0.5
"""Part of the way from one sample to another that an input lies at, at most."""


def train(pruned: ChainWeights, dense: ChainWeights, data: Sequence[Array], seconds: float, seed: int) -> int:
    """Train `pruned`, in place, for some seconds on data [rows, inputs] of each batch; return the number of steps."""
    rng, x = np.random.default_rng(seed), np.concatenate(list(data))
    masks = [(weight != 0).astype(np.float32) for weight in pruned.weights]
    scale = np.float32(1 / max(float(np.var(dense.forward(x[: 16 * BATCH])[-1])), 1e-12))
    optimizer = Adam([*pruned.weights, *pruned.biases])
    start, steps = time.perf_counter(), 0
    # products are small: threads would wait for each other more than they compute
    with threadpool_limits(1):
        while (share := (time.perf_counter() - start) / seconds) < 1:
            samples = _between(x, rng)
            wanted, values = dense.forward(samples)[-1], pruned.forward(samples)
            weights, biases = pruned.gradients(values, scale * (values[-1] - wanted) / np.float32(wanted.size))
            masked = [gradient * mask for gradient, mask in zip(weights, masks, strict=True)]
            # down to nothing along half a cosine
            optimizer.update([*masked, *biases], RATE * float(np.cos(share * np.pi / 2)) ** 2)
            steps += 1
    return steps


def _between(x: Array, rng: np.random.Generator) -> Array:
    """Return random samples, each moved a part of the way to another one."""
    first, second = x[rng.integers(0, len(x), BATCH)], x[rng.integers(0, len(x), BATCH)]
    part = rng.uniform(0, FARTHEST, (BATCH, 1)).astype(np.float32)
    return np.add(first, part * (second - first), dtype=np.float32)
