"""Corrections of predicted times by the clock: measured over predicted, for a layer that is dense and at densities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from .runs.timing import MeasuredTimes

ANCHORS: Final = ((0.1,), (0.25,), (0.5, 0.4, 0.35, 0.3))
"""Densities at which layers are measured, of each choice the first that is predicted to gain anything; between two of
them corrections are interpolated."""

UNEVEN_ANCHORS: Final = ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,))
"""The same where outputs share inputs: which kernel is the fastest changes more often."""


@dataclass(frozen=True)
class Correction:
    """Measured over predicted time of a layer that stays dense, and of one at ascending densities."""

    dense: float = 1.0
    densities: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()

    def of_density(self, density: float) -> float:
        """Return the factor at a density: geometric between those known, and like them beyond."""
        if not self.densities:
            return self.dense
        known, factors = (np.log(np.array(values, np.float64)) for values in (self.densities, self.factors))
        return float(np.exp(np.interp(float(np.log(density)), known, factors)))


UNCORRECTED: Final = Correction()


@dataclass(frozen=True)
class Anchor:
    """A density of a layer, its predicted microseconds, and what was measured."""

    density: float
    predicted_us: float
    measured: MeasuredTimes


def correction_of(dense_us: float, anchors: Sequence[Anchor]) -> Correction:
    """Return the correction of a layer's predicted times by one or more measurements.

    The shortest time of the dense layer counts, and sparse ones by their ratio to it in the same rounds: a machine that
    others disturb is slower for both.
    """
    original = min(one.measured.original_us for one in anchors)
    ordered = sorted(anchors, key=lambda one: one.density)
    factors = tuple(original / (one.measured.speedup * one.predicted_us) for one in ordered)
    return Correction(original / dense_us, tuple(one.density for one in ordered), factors)
