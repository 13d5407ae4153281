"""The weather example: scores and gradients are right, the network beats EMOS, and stays better when it is pruned."""

import numpy as np
import pytest
from scipy.special import ndtr

from redpebble.pruning.examples.weather import Normal, crps, crps_gradients, example, normal_of


def test_the_score_is_the_integral_that_defines_it() -> None:
    grid = np.linspace(-12, 12, 200_001)
    for mean, deviation, truth in ((0.0, 1.0, 0.3), (0.5, 0.7, -1.2)):
        expected = np.trapezoid((ndtr((grid - mean) / deviation) - (grid >= truth)) ** 2, grid)
        one = Normal(np.array([mean], np.float32), np.array([deviation], np.float32))
        assert crps(one, np.array([truth], np.float32)) == pytest.approx(expected, rel=1e-3)


def test_gradients_of_the_score_are_those_of_finite_differences() -> None:
    answers = np.array([[0.2, -0.3], [1.0, 0.4]], np.float32)
    truth = np.array([0.5, -0.2], np.float32)
    gradients = crps_gradients(answers, truth)
    for place in np.ndindex(2, 2):
        moved = [answers.copy(), answers.copy()]
        moved[0][place] += 1e-2
        moved[1][place] -= 1e-2
        after, before = (crps(normal_of(one), truth) for one in moved)
        assert gradients[place] == pytest.approx((after - before) / 2e-2, rel=0.02, abs=1e-4)


@pytest.mark.slow
def test_the_pruned_network_is_better_than_emos() -> None:
    found = example(steps=1500, points=20_000, speedup=3.0, finetune=5.0)
    assert max(found.dense, found.pruned) < found.emos < found.raw
    assert found.speedup > 2
