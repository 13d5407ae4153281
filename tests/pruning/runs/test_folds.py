"""Parts of the data are random, and no weight is fitted to what it is judged by."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

from redpebble.pruning.runs.calibration_data import Feeds
from redpebble.pruning.runs.folds import (
    FOLDS,
    LEAST_SAMPLES,
    MANY_SAMPLES,
    Split,
    shuffled,
    spared_batches,
    split_batches,
)

TEXT = """<ir_version: 8, opset_import: ["" : 17]> one (int64[batch, 3] ids) => (int64[batch, 3] y) { y = Abs(ids) }"""
GRAPH = onnx.parser.parse_model(TEXT).graph
FIXED = onnx.parser.parse_model(TEXT.replace("batch", "10")).graph


def batches(count: int, size: int) -> list[Feeds]:
    ids = np.arange(count * 3, dtype=np.int64).reshape(count, 3)
    return [{"ids": ids[start : start + size]} for start in range(0, count, size)]


def samples(some: Sequence[Feeds]) -> list[int]:
    return [int(first) // 3 for batch in some for first in batch["ids"][:, 0]]


def split(count: int, size: int = 30, seed: int = 0, *, folded: bool = True) -> Split:
    return split_batches(GRAPH, batches(count, size), seed, folded=folded)


@pytest.mark.parametrize("count", [7, 47, 300, MANY_SAMPLES - 1])
def test_each_of_some_samples_is_left_out_of_one_fold(count: int) -> None:
    found = split(count)
    assert found.is_spared
    assert len(found.folds) == FOLDS
    assert sorted(one for fold in found.folds for one in samples(fold.judged)) == list(range(count))
    for fold in found.folds:
        assert sorted(samples(fold.fitted) + samples(fold.judged)) == list(range(count))
        assert abs(len(samples(fold.judged)) - count / FOLDS) < 1
    # the weights of the result are fitted to all
    assert samples(found.fitted) == list(range(count))
    assert not found.is_held_out.any()


@pytest.mark.parametrize(("count", "folded"), [(MANY_SAMPLES, True), (LEAST_SAMPLES, False), (200, False)])
def test_one_of_eight_is_held_out_where_that_is_enough_or_all_is_done_once(count: int, folded: bool) -> None:
    found = split(count, folded=folded)
    (fold,) = found.folds
    fitted, judged = fold
    assert len(samples(judged)) == count // 8
    assert sorted(samples(fitted) + samples(judged)) == list(range(count))
    assert found.is_held_out.nonzero()[0].tolist() == samples(judged)
    assert found.fitted is fitted


def test_what_is_left_out_is_random_by_the_seed() -> None:
    first, again, other = (samples(split(400, seed=seed, folded=False).folds[0].judged) for seed in (0, 0, 1))
    assert first == again != other
    # not the end of each batch: data that is sorted would lack classes
    assert len({one % 30 for one in first}) > 20


def test_few_samples_are_spared_only_where_a_fit_is_done_again() -> None:
    found = split(LEAST_SAMPLES - 1, folded=False)
    assert not found.is_spared
    assert found.folds[0].fitted is found.folds[0].judged
    assert not split(1).is_spared


def test_batches_of_a_size_that_the_model_states_are_judged_whole() -> None:
    held = split_batches(FIXED, batches(170, 10), 0, folded=False)
    assert [len(batch["ids"]) for batch in held.folds[0].judged] == [10, 10]
    assert held.is_held_out.sum() == 20
    folds = split_batches(FIXED, batches(170, 10), 0, folded=True).folds
    assert {len(batch["ids"]) for fold in folds for batch in fold.judged} == {10}
    assert sorted(one for fold in folds for one in samples(fold.judged)) == list(range(170))


def test_samples_are_shuffled_with_their_labels() -> None:
    x, labels = np.arange(50.0), np.arange(50)
    feeds, moved = shuffled({"x": x, "z": -x}, labels, 3)
    assert moved is not None
    assert np.array_equal(feeds["x"], moved)
    assert np.array_equal(feeds["z"], -feeds["x"])
    assert sorted(moved) == labels.tolist() != moved.tolist()
    # what does not belong together is refused later
    assert shuffled({"x": x, "z": x[1:]}, None, 3)[0]["x"] is x
    assert shuffled({"x": x}, labels[1:], 3)[0]["x"] is x


def test_samples_that_somebody_else_has_spared_are_judged_by() -> None:
    ours, theirs = batches(7, 3), batches(2, 2)
    found = spared_batches(ours, theirs)
    assert found.fitted is ours
    assert found.folds[0].judged is theirs
    assert found.is_spared
    assert found.is_held_out.nonzero()[0].tolist() == [7, 8]
