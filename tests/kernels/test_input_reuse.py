"""Misses that follow from gaps are those of a cache that evicts what was used least recently, about."""

from collections import OrderedDict

import numpy as np
import pytest

from redpebble.kernels.layer_with_pattern import RowReuse
from redpebble.sparse.csr import stable_order


def simulated(rows: list[int], capacity: int) -> float:
    """The share of misses of the second turn over `rows`."""
    cache: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for turn in range(2):
        for row in rows:
            misses += turn == 1 and row not in cache
            cache[row] = None
            cache.move_to_end(row)
            if len(cache) > capacity:
                cache.popitem(last=False)
    return misses / len(rows)


@pytest.mark.parametrize("capacity", [20, 60, 200, 400])
@pytest.mark.parametrize("reach", [10, 50, 150, 500])
def test_misses_are_those_of_a_simulated_cache(reach: int, capacity: int) -> None:
    rng = np.random.default_rng(0)
    rows = (np.arange(2000)[:, None] // 4 + rng.integers(0, reach, (2000, 4))).ravel() % 500
    assert RowReuse(rows).missed(capacity) == pytest.approx(simulated(rows.tolist(), capacity), abs=0.06)


def test_rows_that_fit_are_not_missed_and_random_ones_miss_their_share() -> None:
    rows = np.random.default_rng(0).integers(0, 100, 10000)
    reuse = RowReuse(rows)
    assert reuse.missed(100) == reuse.random_missed(100) == 0
    assert reuse.missed(40) == pytest.approx(reuse.random_missed(40), abs=0.02)
    assert (
        RowReuse(np.zeros(0, dtype=np.int64)).missed(1) == RowReuse(np.zeros(0, dtype=np.int64)).random_missed(1) == 0
    )


def test_few_keys_are_sorted_as_many_are() -> None:
    keys = np.random.default_rng(0).integers(0, 300, 5000)
    assert np.array_equal(stable_order(keys, 300), stable_order(keys, 1 << 20))
