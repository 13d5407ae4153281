"""What is equal is found by sorting fingerprints, and nothing else is."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from redpebble.sparse.fingerprints import Mask, Pairs, equal_lists, first_equal

LISTS = st.lists(st.lists(st.integers(0, 2), max_size=3), min_size=1, max_size=12)


@given(LISTS, st.integers(0, 2**16))
def test_pairs_of_lists_are_equal_exactly_when_they_hold_the_same(lists: list[list[int]], seed: int) -> None:
    pointers = np.append(0, np.cumsum([len(one) for one in lists]))
    entries = np.array([entry for one in lists for entry in one], dtype=np.int64)
    pairs = np.random.default_rng(seed).integers(0, len(lists), (20, 2))
    expected = [lists[int(one)] == lists[int(other)] for one, other in pairs]
    assert equal_lists(pointers, [entries, -entries], (pairs[:, 0], pairs[:, 1])).tolist() == expected


@given(LISTS)
def test_each_thing_is_led_by_the_first_equal_candidate(lists: list[list[int]]) -> None:
    prints = np.array([sum(one) for one in lists], dtype=np.uint64)  # equal for some different ones, too
    candidates = np.flatnonzero(np.arange(len(lists)) % 4 != 3)

    def equal(pairs: Pairs) -> Mask:
        return np.array([lists[one] == lists[other] for one, other in zip(*pairs, strict=True)], dtype=bool)

    found = first_equal(prints, candidates, equal)
    for one, leader in enumerate(found.tolist()):
        same = [other for other in candidates.tolist() if prints[other] == prints[one]]
        led = one in same and lists[same[0]] == lists[one]
        assert leader == (same[0] if led else one)
