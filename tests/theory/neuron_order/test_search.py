"""Annealing counts exactly, orders are never worse than what came, and what was shuffled is found across layers."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.kernels.formats.permute_lookup import panels_of
from redpebble.kernels.work import Layer
from redpebble.theory.neuron_order.graph_orders import MOST_IN_PASS, cuthill_mckee_numbers, pass_numbers
from redpebble.theory.neuron_order.neuron_groups import NeuronGroups
from redpebble.theory.neuron_order.search import GRAPH_ORDERS, Reordering, Request, reorder
from redpebble.theory.neuron_order.swap_annealing import PositionState, anneal_positions
from redpebble.theory.neuron_order.views import View, view_cost
from tests.support.hidden_structure import band, blocks, chain_groups, rows_of, shuffled

NONE = np.zeros(0, dtype=np.int64)


def views_of(rng: np.random.Generator, size: int) -> list[View]:
    walk, segments = (rows_of(rng.random((size, count)) < 0.3) for count in (40, 7))
    return [View(walk, 3, 4, panels_of(walk), 1, 1000), View(segments, 0, 9, NONE, 2, 70)]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**16), size=st.integers(2, 30))
def test_the_price_after_swaps_is_that_of_the_places_counted_anew(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    views = views_of(rng, size)
    state = PositionState(views, size)
    assert state.cost == sum(view_cost(view, np.arange(size)) for view in views)
    state.run(rng.random((50, 5)), 300.0)
    state.go_back()
    state.run(rng.random((50, 5)), 1e-9)
    best = state.best()
    assert np.array_equal(np.sort(best), np.arange(size))
    assert state.best_cost == sum(view_cost(view, best) for view in views) <= state.cost


def test_annealing_is_the_same_for_the_same_seed_and_better_with_time() -> None:
    views = views_of(np.random.default_rng(0), 64)
    one, again, long = (
        anneal_positions(views, 64, seconds, np.random.default_rng(7)) for seconds in (0.002, 0.002, 0.05)
    )
    assert np.array_equal(one.best, again.best)
    assert long.cost <= one.cost < sum(view_cost(view, np.arange(64)) for view in views)
    assert not anneal_positions(views, 64, 0.0, np.random.default_rng(7)).trace


def found(groups: NeuronGroups, **options: object) -> Reordering:
    layers = [
        Layer(weight.rows.column_count, np.diff(weight.rows.pointers).astype(np.int64)) for weight in groups.weights
    ]
    return reorder(groups, layers, Request(**options))  # pyright: ignore[reportArgumentType]


def spans(groups: NeuronGroups, positions: np.ndarray) -> float:
    """How far apart the inputs of an output stand, mean of the weights between hidden layers."""
    means: list[float] = []
    for weight in groups.weights[1:-1]:
        rows = weight.ordered(positions)
        means.append(float(np.mean(rows.indices[rows.pointers[1:] - 1] - rows.indices[rows.pointers[:-1]])))
    return float(np.mean(means))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["band", "blocks"])
def test_shuffled_bands_and_blocks_are_recovered_across_layers(kind: str) -> None:
    rng = np.random.default_rng(0)
    width = 2048
    masks = [band(width, 32, 8, rng) if kind == "band" else blocks(width, 64, 8, rng) for _ in range(4)]
    as_made, groups = chain_groups(masks), chain_groups(shuffled(masks, rng))
    result = found(groups)
    assert result.name in GRAPH_ORDERS
    assert (
        spans(groups, result.positions)
        < (2.5 * 32 if kind == "band" else 1.1 * 64)
        < spans(groups, groups.identity()) / 10
    )
    made = found(as_made, orders=("identity",), seconds=1e-9).before
    assert result.after[64] < 0.5 * (result.before[64] + made[64])


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**16), seconds=st.sampled_from([0.0, 0.001]))
def test_no_order_is_predicted_to_be_slower_than_what_came(seed: int, seconds: float) -> None:
    rng = np.random.default_rng(seed)
    sizes: list[int] = rng.integers(1, 90, 4).tolist()
    groups = chain_groups([rng.random(shape) < 0.2 for shape in itertools.pairwise(sizes)])
    for orders in (None, tuple(GRAPH_ORDERS), ("counts", "dealt")):
        result, again = (found(groups, seconds=seconds, orders=orders, seed=seed) for _ in range(2))
        assert all(result.after[batch] <= time for batch, time in result.before.items())
        assert np.array_equal(result.positions, again.positions)
        assert result.tried == again.tried
        for pinned in (0, 3):
            assert np.array_equal(groups.order_of(pinned, result.positions), np.arange(sizes[pinned]))


def test_random_masks_are_not_ordered_by_their_graph() -> None:
    rng = np.random.default_rng(0)
    result = found(chain_groups([rng.random((300, 300)) < density for density in (0.02, 0.1, 0.5)]))
    assert (result.name, result.tried) == ("identity", ())


def test_annealing_places_the_inputs_of_walks() -> None:
    rng = np.random.default_rng(0)
    groups = chain_groups([rng.random((64, 256)) < 0.1, rng.random((256, 256)) < 0.05])
    result = found(groups, batches=(1,), seconds=0.05)
    assert result.after[1] < 0.97 * result.before[1]
    assert result.tried[-1].trace[-1].proposals > 1000


def test_a_shuffled_butterfly_runs_in_passes() -> None:
    rng = np.random.default_rng(0)
    width = 4 * MOST_IN_PASS
    reads = [np.arange(width) ^ (1 << layer) for layer in range(12)]
    masks = [sparse_pairs(read) for read in reads]
    groups = chain_of_pairs(masks, rng)
    numbers = pass_numbers(groups, cuthill_mckee_numbers(groups))
    assert numbers is not None
    positions = groups.positions_by(numbers)
    rows = groups.weights[3].ordered(positions)
    assert np.abs(rows.indices[::2] - np.arange(width)).max() <= MOST_IN_PASS


def sparse_pairs(read: np.ndarray) -> np.ndarray:
    """What each output of a butterfly reads: itself and a partner."""
    return np.sort(np.column_stack([np.arange(len(read)), read]), axis=1)


def chain_of_pairs(layers: list[np.ndarray], rng: np.random.Generator) -> NeuronGroups:
    from redpebble.sparse.csr import CsrPattern
    from redpebble.theory.neuron_order.neuron_groups import Axis, GroupedWeight

    width = len(layers[0])
    orders = [rng.permutation(width) for _ in range(len(layers) + 1)]
    starts = np.arange(len(layers) + 2) * width
    axes = [Axis(start + np.arange(width), np.zeros(width, dtype=np.int64)) for start in starts[:-1]]
    weights: list[GroupedWeight] = []
    for at, reads in enumerate(layers):
        place = np.argsort(orders[at])
        inputs = np.sort(place[reads[orders[at + 1]]], axis=1)
        pointers = 2 * np.arange(width + 1)
        weights.append(GroupedWeight(CsrPattern(pointers, inputs.ravel(), width), axes[at], axes[at + 1]))
    return NeuronGroups(starts, np.ones(len(layers) + 1, dtype=bool), tuple(weights))


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected an order of identity, cuthill-mckee, .*, got 'alphabetical'"):
        found(chain_groups([np.ones((2, 2), dtype=bool)]), orders=("alphabetical",))
