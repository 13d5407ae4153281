"""What is split is predicted to gain, whatever the number of rows, and nothing else is."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.kernels.grouped_cost import ROWS, LayerSize, dense_us, grouped_us, rows_around
from redpebble.theory.components.joint_parts import LayerParts
from redpebble.theory.components.split_plan import LEAST_GAIN, Chain, runs_that_pay


def shuffled(levels: list[list[int]], seed: int) -> list[LayerParts]:
    """Layers between levels that have so many neurons of each part, in random places."""
    rng = np.random.default_rng(seed)
    parts = [rng.permutation(np.repeat(np.arange(len(sizes)), sizes)) for sizes in levels]
    return [LayerParts(before, after) for before, after in itertools.pairwise(parts)]


def chain_of(layers: list[LayerParts | None], sizes: list[int], rows: tuple[int, ...] = ROWS) -> Chain:
    return Chain(tuple(LayerSize(*pair) for pair in itertools.pairwise(sizes)), tuple(layers), rows)


def test_many_hidden_blocks_of_wide_layers_are_split_from_end_to_end() -> None:
    layers = shuffled([[64] * 16] * 4, 0)
    (run,) = runs_that_pay(chain_of([*layers], [1024] * 4))
    (segment,) = run.segments
    assert (segment.start, segment.stop, segment.groups) == (0, 3, 16)
    assert min(run.gains.values()) > 4
    assert tuple(run.gains) == ROWS


def test_narrow_layers_and_layers_of_one_part_are_left_alone() -> None:
    assert runs_that_pay(chain_of([*shuffled([[8] * 4] * 3, 0)], [32] * 3)) == []
    assert runs_that_pay(chain_of([None, None], [1024] * 3)) == []


def test_layers_beside_a_dense_one_are_split_by_themselves() -> None:
    before, behind = shuffled([[64] * 16] * 2, 0), shuffled([[64] * 16] * 2, 1)
    runs = runs_that_pay(chain_of([*before, None, *behind], [1024] * 4))
    assert [[(segment.start, segment.stop) for segment in run.segments] for run in runs] == [[(0, 1)], [(2, 3)]]


def test_other_parts_behind_make_another_segment_of_the_run() -> None:
    before, behind = shuffled([[64] * 16] * 3, 0), shuffled([[64] * 16] * 3, 1)
    (run,) = runs_that_pay(chain_of([*before, *behind], [1024] * 5))
    assert [(segment.start, segment.stop) for segment in run.segments] == [(0, 2), (2, 4)]


@settings(max_examples=30, deadline=None)
@given(
    parts=st.lists(st.integers(1, 300), min_size=1, max_size=6),
    depth=st.integers(1, 3),
    seed=st.integers(0, 100),
    rows=st.sampled_from([None, 1, 3, 64, 5000]),
)
def test_a_run_gains_for_every_number_of_rows(parts: list[int], depth: int, seed: int, rows: int | None) -> None:
    counted = rows_around(rows)
    for run in runs_that_pay(chain_of([*shuffled([parts] * (depth + 1), seed)], [sum(parts)] * (depth + 1), counted)):
        assert tuple(run.gains) == counted
        assert min(run.gains.values()) >= LEAST_GAIN
        for segment in run.segments:
            sizes = [LayerSize(a.shape[1], b.shape[1], len(a)) for a, b in itertools.pairwise(segment.levels)]
            assert sum(size.weights for size in sizes) < (segment.stop - segment.start) * sum(parts) ** 2


@pytest.mark.parametrize(("rows", "counted"), [(None, ROWS), (1, (1,)), (3, (2, 4)), (64, (64,)), (10_000, (512,))])
def test_prices_are_those_of_neighbouring_numbers_of_rows(rows: int | None, counted: tuple[int, ...]) -> None:
    assert rows_around(rows) == counted


@pytest.mark.parametrize("rows", ROWS)
def test_more_weights_take_more_time(rows: int) -> None:
    small, large = LayerSize(64, 64, 4), LayerSize(128, 128, 4)
    assert grouped_us(small, rows) < grouped_us(large, rows)
    assert dense_us(LayerSize(256, 256), rows) < dense_us(LayerSize(512, 512), rows)
    assert dense_us(LayerSize(256, 256), rows) < dense_us(LayerSize(256, 256), rows, other_weights=10**7)
