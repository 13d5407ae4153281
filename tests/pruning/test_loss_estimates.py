"""Intervals of losses hold what other samples lose, also where the few that lose anything are not among the data."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from redpebble.pruning.loss_estimates import CONFIDENCE, FEW, WRONG, LossEstimate, interval_of
from redpebble.pruning.losses import variance_lost

beta: Any = import_module("scipy.stats").beta
TAIL = (1 - CONFIDENCE) / 2


@pytest.mark.parametrize(("wrong", "count"), [(0, 37), (0, 300), (3, 100), (20, 400)])
def test_intervals_are_those_of_a_share_where_samples_are_right_or_wrong(wrong: int, count: int) -> None:
    low, high = interval_of(np.repeat([WRONG, 0.0], [wrong, count - wrong]), 0)
    assert high == pytest.approx(WRONG * beta.ppf(1 - TAIL, wrong + 1, count - wrong), rel=0.08)
    assert low == pytest.approx(WRONG * beta.ppf(TAIL, wrong, count - wrong + 1) if wrong else 0.0, rel=0.2)


def test_intervals_hold_the_mean_of_a_population_that_few_samples_decide() -> None:
    rng = np.random.default_rng(0)
    population = np.where(rng.random(100_000) < 0.03, rng.uniform(0.2, 2.0, 100_000), 1e-4)
    held = list[bool]()
    for seed in range(40):
        low, high = interval_of(rng.choice(population, 75), seed)
        held.append(low <= population.mean() <= high)
    assert np.mean(held) >= 0.95


def test_even_losses_have_a_narrow_interval() -> None:
    low, high = interval_of(np.random.default_rng(0).uniform(0.04, 0.06, 1000), 0)
    assert 0.049 < low < 0.05 < high < 0.065


def test_the_loss_is_the_mean_of_its_samples_and_as_large_as_the_variance_for_the_mean() -> None:
    rng = np.random.default_rng(0)
    dense = [{"y": rng.standard_normal((count, 5)), "z": rng.standard_normal((count, 3, 2))} for count in (8, 3)]
    mean = {
        name: np.concatenate([one[name] for one in dense]).reshape(-1, dense[0][name].shape[-1]).mean(axis=0)
        for name in "yz"
    }
    found = [{name: np.broadcast_to(mean[name], value.shape) for name, value in one.items()} for one in dense]
    losses = variance_lost(found, dense)
    assert losses.shape == (11,)
    assert losses.mean() == pytest.approx(1.0)
    assert not variance_lost(dense, dense).any()
    # nothing says which part of the batch is a sample
    odd = [{"y": one["y"], "n": one["z"].sum()} for one in dense]
    assert variance_lost(odd, odd).shape == (2,)


def test_few_samples_are_said_to_be_few() -> None:
    few, enough = (LossEstimate.of(np.zeros(count), 0) for count in (37, FEW))
    assert few.caution.startswith("37 samples are few: other inputs may lose 2")
    assert not enough.caution
    assert str(enough).startswith("0.00% of the outputs' variance lost, 0.00 to 5.")
    assert str(enough).endswith("% with 99% confidence, on 200 samples held out")
    assert str(LossEstimate.of(np.zeros(60), 0, 5)).endswith("on 60 samples, cross-validated in 5 folds")
    # a fit to all samples loses less than those that leave some of them out
    held_out, folded = (LossEstimate.of(np.full(300, 0.1), 0, folds).interval for folds in (1, 5))
    assert held_out is not None
    assert folded == pytest.approx((0.8 * held_out[0], held_out[1]))
    blind = LossEstimate(0.01, None, 0)
    assert str(blind).endswith("variance lost, more on other inputs, on the data that weights are fitted to")
    assert blind.caution.startswith("no sample is held out, so the loss of other inputs is unknown")
