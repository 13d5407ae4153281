"""The weather example: scores are right, the network beats a linear one, and stays better when it is pruned."""

import numpy as np
import pytest
from scipy.special import ndtr

from redpebble.pruning.examples.weather import crps, example


def test_the_score_is_the_integral_that_defines_it() -> None:
    grid = np.linspace(-12, 12, 200_001)
    for mean, deviation, truth in ((0.0, 1.0, 0.3), (0.5, 0.7, -1.2)):
        expected = np.trapezoid((ndtr((grid - mean) / deviation) - (grid >= truth)) ** 2, grid)
        answers = np.array([[mean, deviation]], np.float32)
        assert crps(answers, np.array([truth], np.float32)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
def test_the_pruned_network_is_better_than_a_linear_one() -> None:
    found = example(epochs=10, points=20_000, speedup=3.0, finetune=5.0)
    assert max(found.dense, found.pruned) < found.linear < found.raw
    assert found.speedup > 2
