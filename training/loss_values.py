"""Losses as numbers: the mean over rows of what `pebble-differentiate` has the gradient of."""

from math import erf, pi, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..passes.training.losses import LossName

Floats = NDArray[np.float32]

ERF: Final = np.vectorize(erf, otypes=[np.float64])


def mean_loss(name: LossName, outputs: Floats, target: Floats, *, are_shares: bool = False) -> float:
    """Return the mean over rows; with `are_shares` outputs are what a softmax or its logarithm made of scores."""
    if not len(outputs):
        return 0.0
    with np.errstate(all="ignore"):
        y, wanted = outputs.astype(np.float64), target.astype(np.float64)
        match name:
            case "mse":
                return float(np.square(y - wanted).mean())
            case "cross-entropy":
                return float(-(wanted * _log_shares(y, are_shares=are_shares)).sum(axis=1).mean())
            case "crps":
                mean, deviation = np.split(y, 2, axis=1)
                return float(normal_crps(mean, deviation, wanted).mean())


def hits(outputs: Floats, target: Floats) -> float:
    """Return the share of rows whose largest output is the wanted class."""
    return float((outputs.argmax(axis=1) == target.argmax(axis=1)).mean()) if len(outputs) else 0.0


def _log_shares(y: NDArray[np.float64], *, are_shares: bool) -> NDArray[np.float64]:
    if are_shares:
        return y if y.max() <= 0 else np.log(np.maximum(y, 1e-30))
    shifted = y - y.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def normal_crps(mean: NDArray[Any], deviation: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.float64]:
    """Return the CRPS of normal distributions: Gneiting and Raftery 2007, equation 21."""
    wide = deviation.astype(np.float64)
    z = (truth.astype(np.float64) - mean) / wide
    density = np.exp(-np.square(z) / 2) * sqrt(2 / pi)
    return wide * (z * np.asarray(ERF(z / sqrt(2)), np.float64) + density - 1 / sqrt(pi))
