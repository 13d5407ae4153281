"""Traffic of caches for accesses to rows: least recently used rows leave, changed ones are written back."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import compiled

Rows = NDArray[np.int32]


class RowTraffic(NamedTuple):
    """Rows that a cache takes in, and rows that it writes back."""

    missed: int
    written: int

    @property
    def total(self) -> int:
        """Rows moved."""
        return self.missed + self.written


def row_traffic(accesses: Rows, changed: NDArray[np.bool_], capacity: int) -> RowTraffic:
    """Return the traffic of accesses to rows [accesses], `changed` by some, with a cache of `capacity` rows.

    Rows that are still in the cache at the end are not counted as written back.
    """
    count = int(accesses.max(initial=-1)) + 1
    # links to the row used after and before; `count` is the anchor of the ring, -1 says that a row is not there
    after, before = np.full(count + 1, -1, dtype=np.int32), np.full(count + 1, -1, dtype=np.int32)
    after[count] = before[count] = count
    dirty, counts = np.zeros(count + 1, dtype=np.bool_), np.zeros(2, dtype=np.int64)
    _count(accesses, changed, _Cache(after, before, dirty), max(1, capacity), counts)
    return RowTraffic(int(counts[0]), int(counts[1]))


class _Cache(NamedTuple):
    """The rows of a cache as a ring [rows + 1], the one used longest ago first, and which of them changed."""

    after: Rows
    before: Rows
    dirty: NDArray[np.bool_]


@compiled
def _count(accesses: Rows, changed: NDArray[np.bool_], cache: _Cache, capacity: int, counts: NDArray[np.int64]) -> None:
    """Add the rows missed to counts[0], those written back to counts[1]."""
    after, before, dirty = cache.after, cache.before, cache.dirty
    anchor, held = len(after) - 1, 0
    for number in range(len(accesses)):
        row = accesses[number]
        if after[row] >= 0:
            after[before[row]] = after[row]
            before[after[row]] = before[row]
        else:
            counts[0] += 1
            if held == capacity:
                oldest = after[anchor]
                after[anchor] = after[oldest]
                before[after[oldest]] = anchor
                after[oldest] = -1
                counts[1] += dirty[oldest]
                dirty[oldest] = False
            else:
                held += 1
        newest = before[anchor]
        after[newest] = row
        before[row] = newest
        after[row] = anchor
        before[anchor] = row
        if changed[number]:
            dirty[row] = True
