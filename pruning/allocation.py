"""Densities of all layers that lose least within a time, each from the options that it has.

Losses of layers are taken to add up, and so are their times: a multiple-choice knapsack, solved exactly by dynamic
programming over times in equal steps (SPDY, Frantar and Alistarh 2022, allocates in the same way by measured times).
"""

from collections.abc import Sequence
from math import ceil
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

STEPS: Final = 4000
"""Steps of the time: an allocation wastes less than one a layer."""


class Option(NamedTuple):
    """One density that a layer may have, 1 where it stays dense."""

    density: float
    us: float
    loss: float


def allocated(layers: Sequence[Sequence[Option]], budget_us: float) -> list[Option] | None:
    """Return an option for each layer, of least loss in all, that take no longer than the budget; None if none do."""
    fastest = [min(options, key=lambda option: (option.us, option.loss)) for options in layers]
    if sum(option.us for option in fastest) > budget_us:
        return None
    unit = budget_us / STEPS
    lost, choices = np.zeros(STEPS + 1), list[NDArray[np.int64]]()
    for options in layers:
        costs = [_steps(option.us, unit) for option in options]
        totals = np.full((len(options), STEPS + 1), np.inf)
        for row, (option, cost) in enumerate(zip(options, costs, strict=True)):
            if cost <= STEPS:
                totals[row, cost:] = lost[: STEPS + 1 - cost] + option.loss
        choices.append(totals.argmin(axis=0))
        lost = totals.min(axis=0)
    if not np.isfinite(lost[STEPS]):
        return fastest  # only rounding stands between these and the budget
    left, found = STEPS, list[Option]()
    for options, choice in zip(reversed(layers), reversed(choices), strict=True):
        option = options[int(choice[left])]
        found.append(option)
        left -= _steps(option.us, unit)
    return found[::-1]


def _steps(us: float, unit: float) -> int:
    return ceil(us / unit)
