"""Groups know where a weight's connections go when their neurons change places."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.theory.neuron_order.neuron_groups import NeuronGroups
from tests.support.hidden_structure import chain_groups


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**16), density=st.sampled_from([0.0, 0.3, 1.0]), sizes=st.tuples(*[st.integers(1, 7)] * 4))
def test_an_order_permutes_the_rows_and_columns_of_every_weight(
    seed: int, density: float, sizes: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(seed)
    masks = [rng.random(shape) < density for shape in itertools.pairwise(sizes)]
    groups = chain_groups(masks)
    positions = groups.positions_by(rng.random(groups.neuron_count))
    for number, (mask, weight) in enumerate(zip(masks, groups.weights, strict=True)):
        rows = weight.ordered(positions)
        inputs, outputs = (groups.order_of(group, positions) for group in (number, number + 1))
        expected = mask[inputs][:, outputs]
        assert np.array_equal(np.diff(rows.pointers), expected.sum(axis=0))
        assert np.array_equal(rows.indices, np.nonzero(expected.T)[1])
    for pinned in (0, 3):
        assert np.array_equal(groups.order_of(pinned, positions), np.arange(sizes[pinned]))


def test_equal_numbers_leave_neurons_in_their_order() -> None:
    groups = chain_groups([np.ones((3, 5), dtype=bool), np.ones((5, 2), dtype=bool)])
    assert np.array_equal(groups.positions_by(np.zeros(10, dtype=np.int64)), groups.identity())


def test_groups_cover_their_neurons() -> None:
    with pytest.raises(ValueError, match=r"expected starts of 2 groups that ascend from 0, got \[0, 3\]"):
        NeuronGroups(np.array([0, 3]), np.array([True, False]), ())
