"""A sample of rows shows whether any overlap: groups of every size are seen, random masks have none."""

import numpy as np
import pytest

from redpebble.models.structured import n_of_m, panels
from tests.support.patterns import Mask, rows_of, sample_of, shuffled


def is_random(mask: Mask) -> bool:
    rows = rows_of(mask)
    return sample_of(rows).is_random(np.arange(rows.row_count))


@pytest.mark.parametrize(("height", "density"), [(2, 0.05), (2, 0.4), (4, 0.01), (8, 0.2), (32, 0.1)])
def test_rows_of_which_half_are_in_groups_overlap(height: int, density: float) -> None:
    rng = np.random.default_rng(height)
    mask = rng.random((1024, 1024)) < density
    mask[:512] = np.repeat(rng.random((512 // height, 1024)) < density, height, axis=0)
    assert not is_random(shuffled(mask, seed=1))


def test_rows_that_share_half_of_their_inputs_overlap() -> None:
    assert not is_random(shuffled(panels(512, np.random.default_rng(0)), seed=1))


@pytest.mark.parametrize("density", [0.002, 0.02, 0.1, 0.5, 1.0])
def test_random_rows_have_none(density: float) -> None:
    rng = np.random.default_rng(2)
    assert is_random(rng.random((1024, 700)) < density)
    assert is_random(rng.random((1024, 700)) < density * 2 * rng.random(700))


def test_rows_of_2_of_4_have_none() -> None:
    assert is_random(n_of_m(2, 4)(512, np.random.default_rng(3)))


def test_the_share_of_rows_that_touch_is_that_of_all() -> None:
    mask = np.random.default_rng(4).random((900, 900)) < 0.01
    met = mask.astype(np.float64) @ mask.T.astype(np.float64) > 0
    np.fill_diagonal(met, val=False)
    assert sample_of(rows_of(mask)).touching == pytest.approx(met.sum() / (900 * 899), abs=0.02)
