"""Panels follow each other as their inputs do, each once."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.sparse.patterns.similar_rows import shared_inputs_order
from tests.support.patterns import rows_of


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**16), density=st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_every_panel_is_listed_once(seed: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rows_of(rng.random((12, 9)) < density)
    members = np.flatnonzero(rng.random(12) < 0.7)
    assert sorted(shared_inputs_order(rows, members)) == list(range(len(members)))


def test_panels_of_a_shuffled_ring_follow_it() -> None:
    rng, count = np.random.default_rng(0), 64
    own = rng.permutation(count)
    mask = np.zeros((count, count), dtype=bool)
    mask[np.arange(count), own] = mask[np.arange(count), (own + 1) % count] = True
    order = shared_inputs_order(rows_of(mask), np.arange(count))
    assert all((mask[one] & mask[other]).any() for one, other in pairwise(order))


def test_equal_panels_come_together() -> None:
    mask = np.tile(np.eye(5, 6, dtype=bool), (3, 1))
    mask[:, 5] = True
    order = shared_inputs_order(rows_of(mask), np.arange(15))
    assert (order % 5).reshape(5, 3).std(axis=1).max() == 0
