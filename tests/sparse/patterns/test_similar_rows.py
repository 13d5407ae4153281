"""Rows that share inputs are found wherever they stand, and random masks are known to have none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.sparse.patterns.similar_rows import (
    LEAST_SHARED,
    first_alike,
    panels_of,
    shared_inputs,
    similar_rows,
)
from tests.support.patterns import Mask, rows_of, sample_of


def shared_mask(density: float, share: float, rng: np.random.Generator, width: int = 512) -> tuple[Mask, float]:
    """Shuffled rows of which 8 at a time have a share of their inputs in common, and that share of all connections."""
    common = np.repeat(rng.random((width // 8, width)) < density * share, 8, axis=0)
    mask = common | (rng.random((width, width)) < density * (1 - share))
    return mask[rng.permutation(width)], float(common.sum() / mask.sum())


def shared_share(mask: Mask) -> float:
    rows = rows_of(mask)
    panels = panels_of(rows, first_alike(rows), sample_of(rows), np.random.default_rng(0))
    return sum(len(panel.rows) * panel.shared for panel in panels) / mask.sum()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**16), density=st.sampled_from([0.0, 0.1, 0.4, 0.9, 1.0]), copies=st.integers(1, 20))
def test_panels_are_disjoint_and_what_they_say_is_shared_is(seed: int, density: float, copies: int) -> None:
    rng = np.random.default_rng(seed)
    mask = np.repeat(rng.random((5, 30)) < density, copies, axis=0)
    mask ^= rng.random(mask.shape) < 0.02
    rows = rows_of(mask)
    panels = panels_of(rows, first_alike(rows), sample_of(rows), np.random.default_rng(1))
    listed = [row for panel in panels for row in panel.rows]
    assert len(listed) == len(set(listed))
    assert [len(panel.rows) for panel in panels] == sorted((len(panel.rows) for panel in panels), reverse=True)
    for panel in panels:
        members = mask[list(panel.rows)]
        np.testing.assert_array_equal(np.flatnonzero(members.all(axis=0)), shared_inputs(rows, np.array(panel.rows)))
        assert panel.shared == members.all(axis=0).sum()
        assert len(panel.rows) * panel.shared >= LEAST_SHARED * members.sum()


@given(st.lists(st.frozensets(st.integers(0, 5), max_size=3), min_size=1, max_size=30))
def test_rows_are_alike_exactly_when_they_read_the_same(lists: list[frozenset[int]]) -> None:
    mask = np.zeros((len(lists), 6), dtype=bool)
    for row, inputs in enumerate(lists):
        mask[row, list(inputs)] = True
    assert first_alike(rows_of(mask)).tolist() == [lists.index(inputs) for inputs in lists]


@pytest.mark.parametrize("height", [8, 16])
@pytest.mark.parametrize("density", [0.05, 0.2])
def test_shuffled_panels_are_found_exactly(height: int, density: float) -> None:
    rng = np.random.default_rng(height)
    mask = np.repeat(rng.random((512 // height, 512)) < density, height, axis=0)[rng.permutation(512)]
    rows = rows_of(mask)
    panels = panels_of(rows, first_alike(rows), sample_of(rows), np.random.default_rng(0))
    assert len(panels) == 64
    assert all(
        panel.shared == mask[panel.rows[0]].sum() == mask[list(panel.rows)].any(axis=0).sum() for panel in panels
    )


@pytest.mark.parametrize("density", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("share", [0.7, 0.8, 0.9])
def test_rows_that_share_most_of_their_inputs_are_found(density: float, share: float) -> None:
    mask, planted = shared_mask(density, share, np.random.default_rng(2))
    assert shared_share(mask) >= 0.93 * planted


@pytest.mark.parametrize("density", [0.01, 0.05, 0.1, 0.3, 0.5])
def test_random_masks_have_hardly_any_panels(density: float) -> None:
    mask = np.random.default_rng(3).random((512, 512)) < density
    assert shared_share(mask) < 0.2


def test_few_rows_and_empty_ones_are_in_no_class() -> None:
    empty = rows_of(np.zeros((9, 4), dtype=bool))
    assert panels_of(empty, first_alike(empty), sample_of(empty), np.random.default_rng(0)) == []
    assert similar_rows(empty, np.arange(1), np.random.default_rng(0)) == []
