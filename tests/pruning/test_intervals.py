"""Intervals of differences in a metric."""

import numpy as np
import pytest

from redpebble.pruning.intervals import difference_interval
from redpebble.pruning.metrics import Answers, Metric, metric_of


def answers(hits: list[np.ndarray], labels: np.ndarray) -> Answers:
    """Return answers of two classes that are right where a sample hits."""
    outputs = [{"y": np.eye(2, dtype=np.float32)[one.astype(int)]} for one in hits]
    feeds = [{"x": np.zeros((len(one), 1), np.float32)} for one in hits]
    return Answers(outputs, feeds, outputs, labels)


def pair(count: int, lost: float, seed: int = 0) -> tuple[Answers, Answers]:
    rng = np.random.default_rng(seed)
    before = rng.random(count) < 0.9
    after = before & (rng.random(count) >= lost)
    labels = np.ones(count, np.int64)
    parts = [slice(at, at + 32) for at in range(0, count, 32)]
    dense, sparse = ([one[part] for part in parts] for one in (before, after))
    return answers(dense, labels), answers(sparse, labels)


def test_an_interval_is_that_of_paired_samples() -> None:
    dense, sparse = pair(1000, 0.1)
    found = difference_interval(metric_of("accuracy"), dense, sparse)
    assert found is not None
    # 9 % of the samples are lost, none gained: the standard error is sqrt(.09 * .91 / 1000)
    middle, error = (found.least + found.greatest) / 2, np.sqrt(0.09 * 0.91 / 1000)
    assert middle == pytest.approx(-0.09, abs=0.03)
    assert 0.6 < (found.greatest - found.least) / (2 * 1.96 * error) < 1.6


def test_the_truth_is_inside_about_as_often_as_it_says() -> None:
    metric = metric_of("accuracy")
    inside = 0
    for seed in range(60):
        found = difference_interval(metric, *pair(200, 0.1, seed))
        assert found is not None
        inside += found.least <= -0.09 <= found.greatest
    assert inside >= 52


def test_equal_models_differ_by_what_no_sample_shows() -> None:
    dense, _ = pair(300, 0.1)
    found = difference_interval(metric_of("accuracy"), dense, dense)
    assert found == pytest.approx((-0.01, 0.01))
    assert str(found) == "-0.01 to +0.01"


def test_any_function_has_an_interval_and_few_samples_have_none() -> None:
    dense, sparse = pair(64, 0.5)
    own: Metric = lambda one: {"mean": float(np.concatenate([batch["y"][:, 1] for batch in one.outputs]).mean())}  # noqa: E731
    found = difference_interval(own, dense, sparse)
    assert found is not None
    assert found.greatest < 0
    assert difference_interval(own, *pair(9, 0.5)) is None
    assert difference_interval(metric_of("quality"), dense, sparse) is not None
