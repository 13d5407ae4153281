"""Hidden blocks, and rows that read from the same part of the inputs without reading the same ones, as in V:N:M.

Rows of a group have more inputs in common than those of a random mask, whose rows of n and m inputs have n p / P of
them, p the readers of the m and P of all. Groups are found by comparing a few leaders with all other rows on a sample
of inputs, where a sample of rows shows an overlap.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..csr import CsrPattern, Indices
from .row_overlap import DEVIATIONS, OverlapSample

FEWEST_ROWS: Final = 32
MOST_ROWS: Final = 1 << 14
"""Rows above which no groups are searched: one row of each group is compared with all others."""

LEADERS: Final = 64
"""Rows that are compared with all others at once."""

BITS: Final = 48.0
"""Bits of information about each input, by which random ones differ."""

INPUTS: Final = 2048
"""Inputs on which rows are compared, at most."""

HEIGHTS: Final = (64, 32, 16, 8, 4, 2)
MOST: Final = 0.9
"""Share of the rows, or of the inputs, that are in classes of multiples of a height: a few may be otherwise."""

LEAST: Final = 0.7
"""Share of the first leaders below which that cannot be true of all rows: once in a million times it is."""


class Groups(NamedTuple):
    """Groups of rows, and the share of the connections that there could be between them and their common inputs."""

    labels: Indices
    """[rows]: the group of each row, the first of its rows."""
    height: int
    """Rows of the usual group."""
    fill: float


def usual_height(first: Indices, chosen: Indices) -> int:
    """Return the largest height of which nearly all of the `chosen` rows are in classes of multiples; 1 if none.

    first [rows] is the first row of each one's class.
    """
    sizes = np.bincount(first[chosen], minlength=len(first))[first[chosen]]
    return next((height for height in HEIGHTS if np.mean(sizes % height == 0) >= MOST), 1) if len(chosen) else 1


def alike_inputs(rows: CsrPattern) -> Indices:
    """Return for each input the first one that the same rows read, [inputs].

    Sums of one random number a row tell inputs apart: equal lists give equal bits, as they are added in one order.
    """
    for chosen in (_few(rows), np.arange(rows.row_count)):
        owner, inputs = rows.entries(chosen)
        numbers = np.random.default_rng(0).random(len(chosen))
        sums = np.bincount(inputs, weights=numbers[owner], minlength=rows.column_count)
        _, first, inverse = np.unique(sums, return_index=True, return_inverse=True)
        if len(first) == rows.column_count:
            break  # different in a few rows already
    return first[inverse]


def _few(rows: CsrPattern) -> Indices:
    """Return rows that tell random inputs apart: how many depends on the information of one about an input."""
    density = min(max(len(rows.indices) / max(1, rows.row_count * rows.column_count), 1e-6), 1 - 1e-6)
    bits = -density * np.log2(density) - (1 - density) * np.log2(1 - density)
    return np.arange(0, rows.row_count, max(1, int(rows.row_count * bits / BITS)))


def row_groups(rows: CsrPattern, sample: OverlapSample, rng: np.random.Generator) -> Groups | None:
    """Return groups of rows with more inputs in common than chance has, if nearly all rows are in one."""
    filled = np.flatnonzero(rows.lengths)
    if not FEWEST_ROWS <= len(filled) <= MOST_ROWS or sample.is_random(filled):
        return None
    compared, labels = _Compared.of(rows, filled, rng), np.arange(rows.row_count)
    left = np.ones(len(filled), dtype=bool)
    while left.any():
        # neighbours are often of one group, which a row at a time finds
        leaders, is_first = rng.permutation(np.flatnonzero(left))[:LEADERS], left.all()
        found = compared.overlapping(leaders)
        found[np.arange(len(leaders)), leaders] = False
        overlaps = np.asarray(found.any(axis=1))
        for leader, near, has_others in zip(leaders, found, overlaps, strict=True):
            if left[leader] and not has_others:
                left[leader] = False
            elif left[leader]:
                members = np.append(np.flatnonzero(near & left), leader)
                left[members] = False
                labels[filled[members]] = filled[members.min()]
        if is_first and np.mean(np.bincount(labels)[labels[filled[leaders]]] % HEIGHTS[-1] == 0) < LEAST:
            return None
    height = usual_height(labels, filled)
    return Groups(labels, height, _fill(rows, labels)) if height > 1 else None


class _Compared(NamedTuple):
    """Rows as ones and zeros on some inputs, and what random rows would have in common."""

    grid: NDArray[np.float32]
    readers: NDArray[np.float32]
    """[inputs]: the share of rows that read each."""

    @staticmethod
    def of(rows: CsrPattern, filled: Indices, rng: np.random.Generator) -> "_Compared":
        chosen = np.sort(rng.choice(rows.column_count, min(INPUTS, rows.column_count), replace=False))
        index_of = np.full(rows.column_count, -1)
        index_of[chosen] = np.arange(len(chosen))
        owner, inputs = rows.entries(filled)
        seen = index_of[inputs] >= 0
        grid = np.zeros((len(filled), len(chosen)), dtype=np.float32)
        grid[owner[seen], index_of[inputs[seen]]] = 1
        return _Compared(grid, grid.mean(axis=0))

    def overlapping(self, leaders: Indices) -> NDArray[np.bool_]:
        """Return which rows have more in common with each of the `leaders` than chance has, [leaders, rows]."""
        common = self.grid[leaders] @ self.grid.T
        lengths = self.grid.sum(axis=1) / max(float(self.readers.sum()), 1e-9)
        chance = (self.grid[leaders] @ self.readers)[:, None] * lengths
        deviation = np.sqrt(chance * (1 - float(self.readers.mean())))
        return common > chance + DEVIATIONS * deviation + 0.5


def _fill(rows: CsrPattern, labels: Indices) -> float:
    """Return the share of connections among all pairs of a group's rows and the inputs that any of them reads."""
    order = np.argsort(labels, kind="stable")
    read, pairs = np.zeros(rows.column_count, dtype=np.bool_), 0
    for members in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        read[:] = False
        for row in members.tolist():
            read[rows.of(row)] = True
        pairs += len(members) * int(np.count_nonzero(read))
    return len(rows.indices) / max(1, pairs)
