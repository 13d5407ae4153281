"""Forecasts at points and on the whole grid: means and deviations of variables over an ensemble, and what came true."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

LATITUDES: Final = 361
LONGITUDES: Final = 720
MEMBERS: Final = 10
VARIABLES: Final = 11
"""Variables at the surface, of which temperature at 2 m is to be corrected; a pressure level has seven."""


@dataclass(frozen=True)
class Forecasts:
    """Forecasts at points."""

    features: Array
    """[points, 2 n + 3]: mean and deviation of each of n variables, normalized, and three numbers of the place."""
    members: Array
    """[points, 10]: the variable that is to be corrected, normalized, of each member."""
    ensemble: Array
    """[points, 2]: its mean and deviation in its unit."""
    truth: Array
    """[points]: what came true, in its unit."""
    extremes: Array | None = None
    """[points]: extreme forecast indices, if they are known."""
    unit: tuple[float, float] = (0.0, 1.0)
    """The value of a normalized member of 0, and the range to that of 1."""

    def part(self, chosen: NDArray[np.int64] | slice) -> "Forecasts":
        """Return some of the points."""
        extremes = None if self.extremes is None else self.extremes[chosen]
        return Forecasts(
            self.features[chosen],
            self.members[chosen],
            self.ensemble[chosen],
            self.truth[chosen],
            extremes,
            self.unit,
        )

    @property
    def for_networks(self) -> Mapping[str, Array]:
        """Inputs of a network."""
        return {"x": self.features, "ensemble": self.ensemble}

    @property
    def for_emos(self) -> Mapping[str, Array]:
        """Inputs of EMOS: members and their deviation [points, 11], and the same unit at all points."""
        x = np.concatenate((self.members, self.members.std(axis=1, keepdims=True)), axis=1)
        return {"x": x, "ensemble": np.tile(np.array(self.unit, np.float32), (len(x), 1))}


@dataclass(frozen=True)
class Day:
    """The forecast of a day on the grid, which a U-Net reads."""

    features: Array
    """[2 n, 361, 720]: mean and deviation of each variable, normalized."""
    ensemble: Array
    """[2, 361, 720]: mean and deviation of the variable that is to be corrected, in its unit."""
    truth: Array
    """[361, 720]"""
    extremes: Array | None = None


def joined(parts: list[Forecasts]) -> Forecasts:
    """Return the points of all parts; extreme forecast indices if all parts have them."""
    extremes = [one.extremes for one in parts if one.extremes is not None]
    return Forecasts(
        np.concatenate([one.features for one in parts]),
        np.concatenate([one.members for one in parts]),
        np.concatenate([one.ensemble for one in parts]),
        np.concatenate([one.truth for one in parts]),
        np.concatenate(extremes) if len(extremes) == len(parts) else None,
        parts[0].unit,
    )
