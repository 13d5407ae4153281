"""Traffic of rows is what a cache that is written down step by step would have."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.theory.depth_first.traffic import row_traffic

Accesses = Sequence[tuple[int, bool]]
"""Rows, and whether each access changes its row."""


def assert_traffic(accesses: Accesses, capacity: int) -> None:
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
    assert row_traffic(rows, changed, capacity) == (missed, written), (accesses, capacity)


@pytest.mark.parametrize(("rows", "most_accesses"), [(2, 5), (3, 4)])
def test_all_accesses_to_few_rows_have_the_traffic_of_a_cache(rows: int, most_accesses: int) -> None:
    one = [*product(range(rows), (False, True))]
    for count in range(most_accesses + 1):
        for accesses in product(one, repeat=count):
            for capacity in range(1, rows + 1):
                assert_traffic(accesses, capacity)


@settings(max_examples=60, deadline=None)
@given(accesses=st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=80), capacity=st.integers(1, 14))
def test_rows_leave_that_were_not_used_for_longest(accesses: Accesses, capacity: int) -> None:
    assert_traffic(accesses, capacity)
