"""Parts are what paths connect, and groups hold whole parts: the oracle is reachability by matrix powers."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.theory.components.joint_parts import NOWHERE, LayerParts, group_counts, grouped, joint_parts, layer_parts
from tests.support.patterns import Mask, rows_of


def own_parts(mask: Mask) -> LayerParts:
    """The parts of a layer that has several, or one with a single part."""
    found = layer_parts(rows_of(mask.T))
    if found is None:
        return LayerParts(np.zeros(mask.shape[0], np.int64), np.zeros(mask.shape[1], np.int64))
    return found


def reachable(masks: Sequence[Mask]) -> Mask:
    """Whether paths lead from one neuron of all levels to another, whatever the direction of connections."""
    sizes = [masks[0].shape[0], *(mask.shape[1] for mask in masks)]
    starts = np.cumsum([0, *sizes])
    together = np.eye(starts[-1], dtype=bool)
    for level, mask in enumerate(masks):
        rows, columns = np.nonzero(mask)
        together[starts[level] + rows, starts[level + 1] + columns] = True
    together |= together.T
    for _ in range(int(np.ceil(np.log2(starts[-1]))) + 1):
        together = together @ together
    return together


@st.composite
def chains(draw: st.DrawFn) -> list[Mask]:
    widths = draw(st.lists(st.integers(1, 10), min_size=2, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    density = draw(st.sampled_from([0.0, 0.1, 0.2, 0.4]))
    return [rng.random(pair) < density for pair in pairwise(widths)]


@settings(max_examples=60, deadline=None)
@given(chain=chains())
def test_neurons_are_in_one_part_when_a_path_joins_them(chain: list[Mask]) -> None:
    layers = [layer_parts(rows_of(mask.T)) for mask in chain]
    known = [layer for layer in layers if layer is not None]
    if len(known) < len(layers):
        return
    levels = np.concatenate(joint_parts(known))
    same = (levels[:, None] == levels) & (levels != NOWHERE)[:, None] & (levels != NOWHERE)
    expected = reachable(chain)
    alone = np.flatnonzero(levels == NOWHERE)
    assert (alone < chain[0].shape[0]).all()
    assert not chain[0][alone].any()
    expected[alone] = expected[:, alone] = False
    np.testing.assert_array_equal(same, expected)


@settings(max_examples=60, deadline=None)
@given(chain=chains(), count=st.integers(1, 5))
def test_each_group_holds_whole_parts(chain: list[Mask], count: int) -> None:
    levels = joint_parts([own_parts(mask) for mask in chain])
    members = grouped(levels, count)
    group_of_part: dict[int, int] = {}
    for level, places in zip(levels, members, strict=True):
        assert places.shape[0] == count
        held = places[places != NOWHERE]
        assert sorted(held.tolist()) == np.flatnonzero(level != NOWHERE).tolist()
        for group, row in enumerate(places):
            for neuron in row[row != NOWHERE].tolist():
                assert group_of_part.setdefault(int(level[neuron]), group) == group


def test_a_layer_in_one_part_has_none() -> None:
    mask = np.ones((4, 3), dtype=bool)
    assert layer_parts(rows_of(mask.T)) is None
    mask[3] = mask[:, 2] = False  # neurons without connections are no parts worth while
    assert layer_parts(rows_of(mask.T)) is None
    assert layer_parts(rows_of(np.zeros((3, 3), dtype=bool))) is None


def test_shuffled_blocks_fill_their_groups() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.permutation(np.repeat(np.arange(8), 4)) for _ in range(3)]
    layers = [own_parts(before[:, None] == after) for before, after in pairwise(parts)]
    for count in (2, 4, 8):
        for places, level in zip(grouped(joint_parts(layers), count), parts, strict=True):
            assert places.shape == (count, 32 // count)
            assert all(len(np.unique(level[row])) == 8 // count for row in places)


def test_blocks_in_order_stay_in_place() -> None:
    blocks = np.repeat(np.arange(4), 3)
    levels = joint_parts([own_parts(blocks[:, None] == blocks)])
    for places in grouped(levels, 2):
        np.testing.assert_array_equal(places.ravel(), np.arange(12))


def test_numbers_of_groups_go_up_by_halves() -> None:
    assert group_counts(16, 64) == [2, 3, 4, 6, 8, 12, 16]
    assert group_counts(100, 8) == [2, 3, 4, 6, 8]
    assert group_counts(5, 64) == [2, 3, 4, 5]
