"""Traffic of rows is what a cache that is written down step by step would have."""

from collections import OrderedDict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.theory.depth_first.lru_cache import row_traffic

ACCESSES = st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=80)


@settings(max_examples=60, deadline=None)
@given(accesses=ACCESSES, capacity=st.integers(1, 14))
def test_rows_leave_that_were_not_used_for_longest(accesses: list[tuple[int, bool]], capacity: int) -> None:
    held: OrderedDict[int, bool] = OrderedDict()
    missed = written = 0
    for row, changes in accesses:
        dirty = held.pop(row, None)
        if dirty is None:
            missed += 1
            if len(held) == capacity:
                written += held.popitem(last=False)[1]
        held[row] = bool(dirty) or changes
    rows = np.array([row for row, _ in accesses], dtype=np.int32)
    changed = np.array([changes for _, changes in accesses], dtype=np.bool_)
    assert row_traffic(rows, changed, capacity) == (missed, written)
