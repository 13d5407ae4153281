"""Random weights as pruning leaves them, and magnitude pruning itself; weights are [outputs, inputs], as in torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def random_weight(output_count: int, input_count: int, density: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """A normal weight [outputs, inputs] in which each connection exists with probability `density`, independently."""
    mask = rng.random((output_count, input_count)) < density
    return masked_weight(mask, rng)


def masked_weight(mask: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.float32]:
    """Normal values [outputs, inputs] where the mask holds, scaled so that values keep their size through Relu.

    The variance is 2 / (mean number of connections into a neuron): Relu halves the second moment of a centred value.
    """
    per_neuron = max(1.0, float(mask.sum()) / len(mask))
    values = rng.standard_normal(mask.shape, dtype=np.float32) * np.float32(np.sqrt(2.0 / per_neuron))
    return np.where(mask, values, np.float32(0))


def random_bias(output_count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Small normal biases [outputs]."""
    return rng.standard_normal(output_count, dtype=np.float32) * np.float32(0.1)


def magnitude_mask(weight: NDArray[np.float32], sparsity: float) -> NDArray[np.bool_]:
    """The mask, of the weight's shape, of the round((1 - sparsity) * size) largest magnitudes; of equals, the first."""
    kept = round((1.0 - sparsity) * weight.size)
    if kept == 0:
        return np.zeros(weight.shape, dtype=np.bool_)
    magnitudes = np.abs(weight).reshape(-1)
    smallest = np.partition(magnitudes, -kept)[-kept]
    mask = magnitudes > smallest
    mask[np.flatnonzero(magnitudes == smallest)[: kept - np.count_nonzero(mask)]] = True
    return mask.reshape(weight.shape)
