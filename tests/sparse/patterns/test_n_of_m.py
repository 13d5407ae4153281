"""N of M is found where it is, also among shuffled inputs, and nowhere else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.models.structured import n_of_m as n_of_m_mask
from redpebble.sparse.patterns.n_of_m import n_of_m
from tests.support.patterns import rows_of, shuffled


@pytest.mark.parametrize(("kept", "of"), [(2, 4), (1, 4), (1, 2), (3, 8), (1, 16)])
def test_neighbours_that_keep_n_of_m_are_found(kept: int, of: int) -> None:
    found = n_of_m(rows_of(n_of_m_mask(kept, of)(128, np.random.default_rng(0))))
    assert found is not None
    assert (found.kept, found.of, found.is_shuffled) == (kept, of, False)


@pytest.mark.parametrize(("kept", "of", "width"), [(2, 4, 768), (1, 4, 256), (1, 8, 1024)])
def test_shuffled_groups_are_found_and_every_row_keeps_n_of_each(kept: int, of: int, width: int) -> None:
    mask = shuffled(n_of_m_mask(kept, of)(width, np.random.default_rng(1)), seed=2)
    found = n_of_m(rows_of(mask))
    assert found is not None
    assert found.is_shuffled
    assert found.groups.shape == (width // of, of)
    assert np.array_equal(np.sort(found.groups.ravel()), np.arange(width))
    assert np.all(mask[:, found.groups].sum(axis=2) == kept)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(0, 40), st.sampled_from([1, 7, 16, 24, 64])),
    density=st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]),
    seed=st.integers(0, 2**16),
)
def test_what_is_found_is_true_of_every_row(shape: tuple[int, int], density: float, seed: int) -> None:
    mask = np.random.default_rng(seed).random(shape) < density
    found = n_of_m(rows_of(mask))
    if found is not None:
        counts = mask[mask.any(axis=1)][:, found.groups].sum(axis=2)
        assert np.all(counts == found.kept)


@pytest.mark.parametrize("equal_counts", [False, True])
def test_random_rows_have_no_groups(equal_counts: bool) -> None:
    rng = np.random.default_rng(3)
    scores = rng.random((256, 256))
    mask = scores.argsort(axis=1).argsort(axis=1) < 64 if equal_counts else scores < 0.25
    assert n_of_m(rows_of(mask)) is None


def test_rows_that_read_nothing_do_not_count() -> None:
    mask = n_of_m_mask(2, 4)(64, np.random.default_rng(4))
    mask[::3] = False
    found = n_of_m(rows_of(mask))
    assert found is not None
    assert (found.kept, found.of) == (2, 4)
