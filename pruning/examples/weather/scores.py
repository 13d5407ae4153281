"""Scores of forecasts: the continuous ranked probability score, also weighted by how extreme a forecast is."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....training.loss_values import normal_crps

Floats = NDArray[np.floating[Any]]

QUANTILES: Final = np.linspace(0, 1, 21)


def crps(answers: Floats, truth: Floats) -> float:
    """Return the mean continuous ranked probability score of means and deviations [points, 2]."""
    return float(normal_crps(answers[:, 0], answers[:, 1], truth).mean())


def eecrps(answers: Floats, truth: Floats, extremes: Floats) -> float:
    """Return the mean of scores, each times the absolute extreme forecast index of its point."""
    return float((np.abs(extremes) * normal_crps(answers[:, 0], answers[:, 1], truth)).mean())


def extreme_forecast_index(members: Floats, climate: Floats) -> NDArray[np.float32]:
    """Return how far members [points, members] are from what is usual there and then, climate [points, any].

    It is 2 / pi times the integral of (p - F(q(p))) / sqrt(p (1 - p)), where q has the quantiles of the climate and F
    is the distribution of the members: 0 for a usual forecast, 1 and -1 where all members leave the climate. As in
    ENS-10's code the integral is a sum over 19 quantiles, and F a step function of the members' 20 lower quantiles.
    """
    inner = QUANTILES[1:-1]
    usual = np.quantile(climate, inner, axis=1).T
    steps = np.quantile(members, QUANTILES[:-1], axis=1).T
    below = (steps[:, np.newaxis] < usual[:, :, np.newaxis]).sum(axis=2)
    share = QUANTILES[np.minimum(below, len(QUANTILES) - 1)]
    weights = (QUANTILES[1] - QUANTILES[0]) / np.sqrt(inner * (1 - inner))
    return (2 / np.pi * ((inner - share) * weights).sum(axis=1)).astype(np.float32)
