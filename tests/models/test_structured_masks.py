import numpy as np
import pytest
from numpy.typing import NDArray

from redpebble.models import zoo
from tests.models.zoo_oracle import density, weights


def first_weight(parameters: str) -> NDArray[np.float32]:
    return weights(zoo.build(f"structured({parameters}, width=64, depth=1)"))["layers.0.weight"]


@pytest.mark.parametrize(("pattern", "kept"), [("2:4", 2), ("1:4", 1), ("nmg", 1)])
def test_every_four_inputs_of_a_neuron_keep_the_same_number(pattern: str, kept: int) -> None:
    groups = first_weight(f"pattern={pattern!r}").reshape(64, 16, 4)
    assert (np.count_nonzero(groups, axis=2) == kept).all()


def test_nmg_uses_each_choice_equally_often_in_a_group_of_neurons() -> None:
    groups = first_weight("pattern='nmg'").reshape(4, 16, 16, 4)
    assert (np.count_nonzero(groups, axis=1) == 4).all()


def test_vnm_neurons_of_a_panel_share_four_of_eight_inputs_and_keep_two() -> None:
    panels = first_weight("pattern='vnm'").reshape(4, 16, 8, 8)
    assert (np.count_nonzero(panels, axis=3) == 2).all()
    assert ((panels != 0).any(axis=1).sum(axis=2) <= 4).all()


@pytest.mark.parametrize(("pattern", "rows", "columns"), [("block4x1", 4, 1), ("block16x1", 16, 1), ("block4x4", 4, 4)])
def test_blocks_are_kept_or_dropped_whole(pattern: str, rows: int, columns: int) -> None:
    weight = first_weight(f"pattern={pattern!r}, density=0.3")
    counts = np.count_nonzero(weight.reshape(64 // rows, rows, 64 // columns, columns), axis=(1, 3))
    assert np.unique(counts).tolist() == [0, rows * columns]


def test_shuffling_hides_blocks_but_keeps_their_number() -> None:
    weight = first_weight("pattern='block4x4', shuffled=True")
    counts = np.count_nonzero(weight.reshape(16, 4, 16, 4), axis=(1, 3))
    assert len(np.unique(counts)) > 2
    assert density(weight) == density(first_weight("pattern='block4x4'"))
    assert np.count_nonzero(weight) % 16 == 0
