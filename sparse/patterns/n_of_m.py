"""N of M: every row reads n of each m inputs, which are neighbours, or were so before the inputs were shuffled.

A row reads two given inputs of one group with probability n (n - 1) / (m (m - 1)), and two inputs of different groups
with (n / m)^2, which is more: the group of an input are the inputs that fewest rows read along with it. The difference,
n (m - n) / (m^2 (m - 1)), has to be seen among the chances of all inputs: about 256 rows for 1 of 4, 512 for 2 of 4,
1024 for 1 and 2 of 8, more than 2048 for 4 of 8. Where there are fewer, shuffled groups are not found. What is found is
right: every row is counted."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..csr import CsrPattern, Indices

Counts = NDArray[np.float32]

LARGEST: Final = 16
"""m at most."""

FEWEST_GROUPS: Final = 4
FEWEST_COUNTS: Final = 64
"""Groups of a row, and of all rows, below which equal counts are chance."""

SAMPLE: Final = 8
"""Rows that are looked at first."""

COMMON_ROWS: Final = 2048
"""Rows in which readers in common are counted, at most."""


class NOfM(NamedTuple):
    """Each row reads `kept` of the inputs of every group [groups, m]."""

    kept: int
    groups: Indices

    @property
    def of(self) -> int:
        """The inputs of a group."""
        return self.groups.shape[1]

    @property
    def is_shuffled(self) -> bool:
        """Whether the inputs of a group are anything but neighbours."""
        return not np.array_equal(self.groups.ravel(), np.arange(self.groups.size))


def n_of_m(rows: CsrPattern) -> NOfM | None:
    """Return the smallest groups of which every row that reads anything reads equally many, if there are any."""
    filled = np.flatnonzero(rows.lengths)
    for size in range(2, min(LARGEST, rows.column_count // FEWEST_GROUPS) + 1):
        groups = rows.column_count // size
        if rows.column_count % size or len(filled) * groups < FEWEST_COUNTS:
            continue
        natural = np.arange(rows.column_count).reshape(groups, size)
        kept = _kept(rows, filled[:SAMPLE], natural)
        if 0 < kept < size and _kept(rows, filled, natural) == kept:
            return NOfM(kept, natural)
    return _hidden(rows, filled)


def _kept(rows: CsrPattern, chosen: Indices, groups: Indices) -> int:
    """Return how many inputs of every group each of the rows reads; 0 where that differs."""
    group_of = np.empty(rows.column_count, dtype=np.int64)
    group_of[groups.ravel()] = np.repeat(np.arange(len(groups)), groups.shape[1])
    owner, inputs = rows.entries(chosen)
    counts = np.bincount(owner * len(groups) + group_of[inputs], minlength=len(chosen) * len(groups))
    return int(counts[0]) if counts.min() == counts.max() else 0


def _hidden(rows: CsrPattern, filled: Indices) -> NOfM | None:
    """Return groups of inputs that are no neighbours; there are none unless all rows read equally many."""
    lengths = rows.lengths[filled]
    if not len(filled) or lengths.min() != lengths.max():
        return None
    common: Counts | None = None
    grid: Counts | None = None
    for size in range(2, min(LARGEST, rows.column_count // FEWEST_GROUPS) + 1):
        kept, rest = divmod(int(lengths[0]) * size, rows.column_count)
        if (
            rows.column_count % size
            or rest
            or not 0 < kept < size
            or len(filled) * rows.column_count < FEWEST_COUNTS * size
        ):
            continue
        grid = rows.dense(filled[:COMMON_ROWS]) if grid is None else grid
        # one group first: most patterns have none
        first = _group_of(0, size, lambda one, grid=grid: grid[:, one] @ grid)
        if not np.all(grid[:, first].sum(axis=1) == kept):
            continue
        common = grid.T @ grid if common is None else common
        groups = _groups(common, size)
        if _kept(rows, filled, groups) == kept:
            return NOfM(kept, groups)
    return None


def _groups(common: Counts, size: int) -> Indices:
    """Return groups of inputs, by the first of each; one that has a group is in no other."""
    left = np.arange(len(common))
    groups: list[Indices] = []
    while len(left):
        members = _group_of(0, size, lambda one, left=left: common[left[one], left])
        groups.append(left[members])
        left = np.delete(left, members)
    return np.stack(groups)


def _group_of(one: int, size: int, common: Callable[[int], Counts]) -> Indices:
    """Return an input and those that least rows read along with it, and with those found before, ascending."""
    members = [one]
    total = common(one).copy()
    while len(members) < size:
        total[members] = np.inf
        members.append(int(total.argmin()))
        total += common(members[-1])
    return np.sort(members)
