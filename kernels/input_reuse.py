"""Reads that a cache of some rows does not deliver, from the order in which rows are read: no simulation.

A window of t reads meets a row at a read whose row was not met in the window before; a read that comes g reads after
the last one of its row is such for min(g, t) of the windows that hold it, so a window meets (sum of min(g, t)) / n rows
on average. The cache holds the rows of about the last t reads where that average is its capacity: reads with g > t
miss.
The first read of a row, which misses however large the cache is, counts as the one after its last read, in a loop.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..sparse.csr import Indices, stable_order


class RowReuse:
    """The gaps between reads of the same row, for caches of all capacities."""

    def __init__(self, rows: Indices) -> None:
        """Take the rows [reads] in the order in which they are read."""
        order = stable_order(rows, int(rows.max(initial=0)) + 1)
        sorted_rows = rows[order]
        first = np.append(True, sorted_rows[1:] != sorted_rows[:-1]) if len(rows) else np.zeros(0, dtype=np.bool_)
        gaps = np.diff(order, prepend=0)
        starts = np.flatnonzero(first)
        lasts = np.append(starts[1:], len(rows)) - 1
        # once around: from the last read of a row to its first one in the next turn
        gaps[starts] = order[starts] + len(rows) - order[lasts[: len(starts)]]
        self._gaps = np.sort(gaps)
        self._row_count = len(starts)

    @cached_property
    def _met(self) -> NDArray[np.float64]:
        """The mean of min(gap, t) over all gaps for t = each gap, ascending with t."""
        count = len(self._gaps)
        sums = np.cumsum(self._gaps) - self._gaps
        return (sums + self._gaps * (count - np.arange(count))) / count

    @property
    def reads(self) -> int:
        """The number of reads."""
        return len(self._gaps)

    def missed(self, capacity: float) -> float:
        """Return the share of reads that a cache of `capacity` rows does not deliver."""
        count = len(self._gaps)
        if count == 0 or capacity >= self._row_count:
            return 0.0
        met = int(np.searchsorted(self._met, capacity, side="right"))
        return 1.0 - met / count

    def random_missed(self, capacity: float) -> float:
        """Return the share that would miss if the same number of rows were read at random."""
        return max(0.0, 1.0 - capacity / self._row_count) if self._row_count else 0.0
