"""Densities within a time lose least of all that there are, and no layer gets one at which it would stay dense."""

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
import pytest

from redpebble.kernels.machine import Machine
from redpebble.pruning.budgets import (
    Option,
    allocated,
    densities_of,
    options_of,
    sparsest,
    uniform,
    within_loss,
    within_time,
)
from redpebble.pruning.layer_prices import GRID, LayerPrices
from redpebble.pruning.layers import PrunableLayer
from redpebble.pruning.options import Goal, PruneOptions
from redpebble.pruning.runs.call_sizes import CallSizes
from redpebble.pruning.runs.timing import MeasuredTimes
from redpebble.pruning.sensitivities import LossCurve
from redpebble.pruning.solving.structures import structure_of


def random_options(seed: int) -> list[list[Option]]:
    rng = np.random.default_rng(seed)
    return [[Option(1.0, 90.0, 0.0), *(Option(0.1, *rng.uniform(5, 80, 2)) for _ in range(3))] for _ in range(5)]


@pytest.mark.parametrize("seed", range(5))
def test_no_other_densities_lose_less_in_the_same_time(seed: int) -> None:
    layers, budget = random_options(seed), 220.0
    ways = [way for way in product(*layers) if sum(option.us for option in way) <= budget]
    found = allocated(layers, budget)
    assert found is not None
    assert sum(option.us for option in found) <= budget
    # steps of the time waste a little of it
    nearly = [way for way in ways if sum(option.us for option in way) <= budget * (1 - len(layers) / 4000)]
    assert sum(option.loss for option in found) <= min(sum(option.loss for option in way) for way in nearly)


def test_what_nothing_is_fast_enough_for_has_no_densities() -> None:
    assert allocated([[Option(1.0, 90.0, 0.0), Option(0.1, 40.0, 1.0)]] * 3, 119.0) is None
    assert allocated([[Option(1.0, 90.0, 0.0), Option(0.1, 40.0, 1.0)]] * 3, 120.0) is not None


def layer_of(inputs: int, outputs: int) -> PrunableLayer:
    return PrunableLayer("one", 0, "x", "w", False, inputs, outputs)


def prices_of(layer: PrunableLayer, rows: int) -> LayerPrices:
    return LayerPrices([layer], PruneOptions(Goal("sparsity", 0.5), rows), CallSizes(1, {"one": rows}, {}), Machine())


@pytest.mark.parametrize("rows", [1, 16, 128])
def test_densities_at_which_the_chooser_stays_dense_are_no_options(rows: int) -> None:
    layer = layer_of(768, 768)
    prices = prices_of(layer, rows)
    densities = densities_of(layer, structure_of("equal"), prices)
    assert densities == sorted(densities, reverse=True)
    assert densities[-1] == GRID[0]
    assert prices.sparse_us(layer, 0.98) is None
    times = [prices.sparse_us(layer, one) or np.inf for one in densities]
    assert max(times) < prices.dense_us(layer)
    options = options_of(layer, LossCurve(tuple(densities), tuple(1 - one for one in densities)), prices)
    assert options[0] == Option(1.0, prices.dense_us(layer), 0.0)
    assert [option.us for option in options[1:]] == times


def test_a_structure_with_one_density_has_that_option_alone() -> None:
    layer = layer_of(768, 768)
    assert densities_of(layer, structure_of("1:8"), prices_of(layer, 1)) == [0.125]


LAYERS = {name: [Option(1.0, 100.0, 0.0), Option(0.5, 60.0, 0.1), Option(0.1, 20.0, 0.4)] for name in "abc"}


def rehearsal(beside: Callable[[Mapping[str, float]], float]) -> Callable[[Mapping[str, float]], MeasuredTimes]:
    """Return what measures the times of all layers, and what is beside them."""

    def rehearse(densities: Mapping[str, float]) -> MeasuredTimes:
        us = (next(one.us for one in some if one.density == densities[name]) for name, some in LAYERS.items())
        return MeasuredTimes(400.0, sum(us) + beside(densities))

    return rehearse


def test_a_budget_is_what_is_left_of_the_time_beside_layers() -> None:
    rehearse = rehearsal(lambda _: 40.0)
    least = sparsest(LAYERS, rehearse, lambda: 400.0 / 1.5)
    assert (least.us, least.allocation.rest_us) == (100.0, 40.0)
    found = within_time(LAYERS, lambda: 400.0 / 1.5, rehearse, [least])
    assert found.us == 260.0
    assert found.allocation.rest_us == 40.0
    with pytest.raises(ValueError, match=r"expected 0\.1 ms \(4\.00x as fast\) or more, .*, got 0\.08 ms"):
        sparsest(LAYERS, rehearse, lambda: 80.0)


def test_the_best_of_what_was_tried_counts_where_times_do_not_add_up() -> None:
    """A layer that stays dense among sparse ones costs more than its price."""
    rehearse = rehearsal(lambda densities: 60.0 * (1.0 in densities.values()))
    found = within_time(LAYERS, lambda: 200.0, rehearse, [sparsest(LAYERS, rehearse, lambda: 200.0)])
    assert found.allocation.layers_us == 180.0
    assert found.us == 180.0


@pytest.mark.parametrize("wanted", [340.0, 250.0, 180.0])
def test_a_search_closes_in_on_the_time_where_layers_have_many_densities(wanted: float) -> None:
    """What is beyond the time that is asked for is paid with quality, also where layers take longer than priced."""
    fine = {name: [Option(1.0, 200.0, 0.0), *(Option(d, 200 * d, 1 / d) for d in GRID)] for name in "abc"}

    def rehearse(densities: Mapping[str, float]) -> MeasuredTimes:
        return MeasuredTimes(600.0, 60.0 + sum(150 * density**0.8 for density in densities.values()))

    for choose in (allocated, uniform):
        found = within_time(fine, lambda: wanted, rehearse, [sparsest(fine, rehearse, lambda: wanted)], choose)
        assert 0.93 * wanted <= found.us <= 1.02 * wanted


def test_uniform_is_the_highest_density_for_all_that_gain_by_it() -> None:
    layers = [*LAYERS.values(), [Option(1.0, 30.0, 0.0)]]
    found = uniform(layers, 215.0)
    assert found is not None
    assert [option.density for option in found] == [0.5, 0.5, 0.5, 1.0]
    assert uniform(layers, 80.0) is None


def test_within_a_loss_is_the_shortest_time() -> None:
    assert within_loss(LAYERS, 0.25).layers_us == 220
    assert within_loss(LAYERS, 0.31).layers_us == 180
    assert within_loss(LAYERS, 0.0).layers_us == 300
