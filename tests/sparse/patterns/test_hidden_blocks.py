"""Hidden blocks and groups are found; random masks are known to have none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.models.structured import blocks, panels
from redpebble.sparse.patterns.hidden_blocks import alike_inputs, row_groups, usual_height
from redpebble.sparse.patterns.similar_rows import first_alike
from tests.support.patterns import rows_of, sample_of, shuffled


@pytest.mark.parametrize(("outputs", "inputs"), [(4, 1), (16, 1), (4, 4), (1, 8), (8, 2)])
def test_shuffled_blocks_are_found(outputs: int, inputs: int) -> None:
    rows = rows_of(shuffled(blocks(outputs, inputs, 0.2)(256, np.random.default_rng(0)), seed=1))
    assert usual_height(first_alike(rows), np.flatnonzero(rows.lengths)) == outputs
    assert usual_height(alike_inputs(rows), np.unique(rows.indices)) == inputs


def test_shuffled_groups_of_v_n_m_are_found_with_their_rows() -> None:
    order = np.random.default_rng(2).permutation(1024)
    mask = panels(1024, np.random.default_rng(1))[order]
    rows = rows_of(mask[:, np.random.default_rng(3).permutation(1024)])
    found = row_groups(rows, sample_of(rows), np.random.default_rng(0))
    assert found is not None
    assert found.height == 16
    assert found.fill == pytest.approx(0.5, abs=0.02)
    groups = order // 16
    together = found.labels[:, None] == found.labels[None, :]
    assert np.mean(together == (groups[:, None] == groups[None, :])) > 0.999


@pytest.mark.parametrize("density", [0.02, 0.2, 0.5])
def test_random_masks_have_no_blocks_and_no_groups(density: float) -> None:
    rng = np.random.default_rng(4)
    for mask in (rng.random((512, 512)) < density, rng.random((512, 512)) < density * 2 * rng.random(512)):
        rows = rows_of(mask)
        assert usual_height(first_alike(rows), np.flatnonzero(rows.lengths)) == 1
        assert row_groups(rows, sample_of(rows), np.random.default_rng(0)) is None


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**16), st.integers(1, 12), st.integers(1, 12))
def test_inputs_are_alike_exactly_when_the_same_rows_read_them(seed: int, outputs: int, inputs: int) -> None:
    mask = np.random.default_rng(seed).random((outputs, inputs)) < 0.4
    readers = [tuple(column) for column in mask.T.tolist()]
    assert alike_inputs(rows_of(mask)).tolist() == [readers.index(one) for one in readers]
