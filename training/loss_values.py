"""Losses as numbers: the mean over rows of what `pebble-differentiate` has the gradient of."""

from math import erf, pi, sqrt
from typing import Final

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
                return _crps(y, wanted)


def hits(outputs: Floats, target: Floats) -> float:
    """Return the share of rows whose largest output is the wanted class."""
    return float((outputs.argmax(axis=1) == target.argmax(axis=1)).mean()) if len(outputs) else 0.0


def _log_shares(y: NDArray[np.float64], *, are_shares: bool) -> NDArray[np.float64]:
    if are_shares:
        return y if y.max() <= 0 else np.log(np.maximum(y, 1e-30))
    shifted = y - y.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def _crps(y: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    """Gneiting and Raftery 2007, equation 21."""
    mean, deviation = np.split(y, 2, axis=1)
    z = (wanted - mean) / deviation
    between = np.asarray(ERF(z / sqrt(2)), np.float64)
    density = np.exp(-np.square(z) / 2) * sqrt(2 / pi)
    return float((deviation * (z * between + density - 1 / sqrt(pi))).mean())
