"""Metrics by name: what they are of outputs that can be told by hand."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from redpebble.pruning.metrics import Answers, metric_of

Array = NDArray[Any]


def answers(outputs: Array, teacher: Array, labels: Array | None = None, **inputs: Array) -> Answers:
    """Two batches, of the first sample and of all others."""
    parts = slice(0, 1), slice(1, None)
    return Answers(
        [{"y": outputs[part]} for part in parts],
        [{name: value[part] for name, value in inputs.items()} for part in parts],
        [{"y": teacher[part]} for part in parts],
        labels,
    )


def one_hot(classes: list[Any], count: int = 4) -> Array:
    return np.eye(count, dtype=np.float32)[np.array(classes)]


def test_accuracy_counts_labels_or_what_the_teacher_says() -> None:
    ours, theirs = one_hot([0, 1, 2, 3]), one_hot([0, 1, 2, 0])
    assert metric_of("accuracy")(answers(ours, theirs)) == {"accuracy": 0.75}
    # a label below zero is none
    assert metric_of("accuracy")(answers(ours, theirs, np.array([0, 0, -1, 3]))) == {"accuracy": 2 / 3}
    with pytest.raises(ValueError, match="labels: expected shape"):
        metric_of("accuracy")(answers(ours, theirs, np.zeros((4, 2), np.int64)))


def test_recall_counts_the_nearest_of_the_teacher_or_of_the_same_label() -> None:
    theirs = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]], np.float32)
    ours = np.array([[1, 0], [0, 1], [0.9, 0.1], [0.1, 1]], np.float32)
    assert metric_of("recall@1")(answers(theirs, theirs)) == {"recall@1": 1.0, "cosine": pytest.approx(1.0)}
    assert metric_of("recall@1")(answers(ours, theirs))["recall@1"] == 0.0
    assert metric_of("recall@3")(answers(ours, theirs))["recall@3"] == 1.0
    assert metric_of("recall@1")(answers(ours, theirs, np.array([7, 5, 7, 5])))["recall@1"] == 1.0


def test_recall_pools_the_tokens_that_a_mask_leaves() -> None:
    states = np.random.default_rng(0).standard_normal((3, 2, 4)).astype(np.float32)
    mask = np.array([[1, 0], [1, 1], [1, 0]])
    other = states.copy()
    other[mask == 0] = 100
    assert metric_of("recall@1")(answers(other, states, attention_mask=mask))["cosine"] == pytest.approx(1.0)


def test_perplexity_is_that_of_next_tokens_under_the_mask() -> None:
    ids, mask = np.array([[1, 2, 3], [0, 1, 1]]), np.array([[1, 1, 1], [1, 1, 0]])
    even = np.zeros((2, 3, 4), np.float32)
    found = metric_of("perplexity")(answers(even, even, input_ids=ids, attention_mask=mask))
    assert found["perplexity"] == pytest.approx(4.0)
    sure = 50 * one_hot([[2, 3, 0], [1, 0, 0]])
    assert metric_of("perplexity")(answers(sure, even, input_ids=ids, attention_mask=mask))["perplexity"] < 1.001
    with pytest.raises(ValueError, match="perplexity: expected an input input_ids, got x"):
        metric_of("perplexity")(answers(even, even, x=ids))


def test_characters_are_read_without_blanks_and_repeats() -> None:
    theirs = one_hot([[1, 1, 0, 1, 2], [3, 0, 0, 0, 0]])
    ours = one_hot([[1, 0, 2, 2, 2], [3, 3, 0, 0, 0]])
    # of 1 1 2, one is missing; 3 is right
    assert metric_of("cer")(answers(ours, theirs)) == {"characters right": 0.75, "cer": 0.25}
    labels = np.array([[1, 2, -1], [3, 1, -1]])
    assert metric_of("cer")(answers(ours, theirs, labels))["cer"] == 0.25
    assert metric_of("cer")(answers(one_hot([[0] * 5] * 2), theirs))["cer"] == 1.0


@pytest.mark.parametrize("name", ["bleu", "recall", "recall@0", "recall@x", ""])
def test_a_metric_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="metric: expected one of quality, accuracy, perplexity, cer or recall@k, got"):
        metric_of(name)
