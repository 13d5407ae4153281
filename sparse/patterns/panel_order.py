"""An order of panels in which each reads inputs that the one before it has read, so that these are still in the cache.

Panels are neighbours where their rows have inputs in common. From a panel the walk goes on to the neighbour not yet
visited with the most common inputs, and begins anew at the first panel left where there is none. Equal panels so come
together, and the panels of a ring, as in butterflies and RadiX-Nets, follow it around.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy.sparse import csr_array

from redpebble.sparse.csr import CsrPattern, Indices

MOST_PAIRS: Final = 1 << 23
"""Pairs of panels with an input in common above which all panels have some in common, and any order does."""


def shared_inputs_order(rows: CsrPattern, members: Indices) -> Indices:
    """Return the order of panels in which neighbours share inputs, [panels]; `members` are one row of each."""
    owner, inputs = rows.entries(members)
    readers = np.bincount(inputs, minlength=rows.column_count)
    if int(np.square(readers).sum()) > MOST_PAIRS:
        return np.arange(len(members))
    reads = csr_array((np.ones(len(inputs), np.int32), (owner, inputs)), shape=(len(members), rows.column_count))
    common = reads @ reads.T
    panel = np.repeat(np.arange(len(members)), np.diff(common.indptr))
    most_first = np.lexsort((common.indices, -common.data, panel))
    return np.array(_walk(common.indptr.tolist(), common.indices[most_first].tolist()), dtype=np.int64)


def _walk(starts: Sequence[int], neighbours: Sequence[int]) -> list[int]:
    """Return all panels in the order of the walk; those of panel n are `neighbours[starts[n] : starts[n + 1]]`."""
    left = [True] * (len(starts) - 1)
    order: list[int] = []
    for first in range(len(left)):
        panel: int | None = first if left[first] else None
        while panel is not None:
            left[panel] = False
            order.append(panel)
            panel = next((one for one in neighbours[starts[panel] : starts[panel + 1]] if left[one]), None)
    return order
