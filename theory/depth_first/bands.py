"""Depth first for layers of windows: band after band, each through all stages of a group.

    band      0    1    2          a 3 x 3 window of a 3 x 3 window: before a unit of the last stage is computed,
    first     ####.###.###         those of the stage before are that its windows read; of what only the group
    second    ##..####.###         reads, a ring of a few units is enough

A stage computes units, rows or tiles of an image, in ascending order, and none twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class Reach(NamedTuple):
    """The first and the last unit that are read for each unit that is computed, [units] each, both ascending."""

    first: Indices
    last: Indices

    @staticmethod
    def between(first: Indices, last: Indices, units: int) -> "Reach":
        """Return a reach that is ascending and within the `units` that there are, and holds one from first to last."""
        first, last = (np.clip(one, 0, max(0, units - 1)) for one in (first, last))
        return Reach(np.minimum.accumulate(first[::-1])[::-1], np.maximum.accumulate(last))

    @staticmethod
    def same(units: int) -> "Reach":
        """Return the reach of elementwise work."""
        return Reach(np.arange(units), np.arange(units))

    def needed(self, ends: Indices) -> Indices:
        """Return the end of the units that are read for all before each of some ends."""
        return np.where(ends > 0, self.last[np.maximum(ends, 1) - 1] + 1, 0)

    def kept(self, begins: Indices, otherwise: Indices) -> Indices:
        """Return the first unit that is still read from each of some units on, or otherwise where none is left."""
        inside = begins < len(self.first)
        return np.where(inside, self.first[np.where(inside, begins, 0)], otherwise)


class Reading(NamedTuple):
    """A stage, by its number, that reads what an earlier one computes."""

    stage: int
    reach: Reach


@dataclass(frozen=True)
class Bands:
    """Stages that run in `count` bands: the units of each, and what reads these."""

    units: Sequence[int]
    readings: Sequence[Sequence[Reading]]
    count: int

    @cached_property
    def ends(self) -> Indices:
        """The end of the units that each stage has computed behind each band, [stages, bands]."""
        found = np.zeros((len(self.units), self.count), np.int64)
        for stage in reversed(range(len(self.units))):
            # what no stage reads goes on evenly
            evenly = -(-self.units[stage] * np.arange(1, self.count + 1) // self.count)
            needed = [reach.needed(found[reader]) for reader, reach in self.readings[stage]]
            found[stage] = np.max(needed, axis=0) if needed else evenly
            found[stage, -1] = self.units[stage]
        return found

    @cached_property
    def borders(self) -> Indices:
        """The first unit of each band, and the end of all, of each stage: [stages, bands + 1]."""
        return np.pad(self.ends, ((0, 0), (1, 0)))

    def ring(self, stages: Sequence[int]) -> int:
        """Return how many units of a buffer that some stages write are needed at a time, one at least."""
        ends = np.max(self.ends[list(stages)], axis=0)
        kept = [
            reach.kept(self.borders[reader, :-1], ends) for stage in stages for reader, reach in self.readings[stage]
        ]
        first = np.min(kept, axis=0) if kept else self.borders[stages[0], :-1]
        return max(1, int((ends - first).max()))
