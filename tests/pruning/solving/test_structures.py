"""Masks have exactly the structure that was asked for, and structures of one's own have a name."""

from itertools import combinations

import numpy as np
import pytest

from redpebble.pruning.solving.structures import STRUCTURES, Mask, Scores, Structure, structure_of
from redpebble.sparse.csr import CsrPattern
from redpebble.sparse.patterns.n_of_m import n_of_m


def scores_of(inputs: int, outputs: int, seed: int = 0) -> Scores:
    return np.random.default_rng(seed).random((inputs, outputs), dtype=np.float32)


def mask_of(text: str, scores: Scores, density: float) -> Mask:
    return structure_of(text).choose(scores, density)


def pattern(mask: Mask) -> CsrPattern:
    outputs, inputs = np.nonzero(mask.T)
    return (
        CsrPattern(np.append(0, np.cumsum(mask.sum(axis=0))), inputs.astype(np.int64), len(mask))
        if len(outputs)
        else CsrPattern(np.zeros(mask.shape[1] + 1, np.int64), inputs.astype(np.int64), len(mask))
    )


@pytest.mark.parametrize("density", [0.1, 0.33, 0.5, 1.0])
def test_free_keeps_the_largest_of_all_and_equal_the_largest_of_each_output(density: float) -> None:
    scores = scores_of(40, 30)
    free, equal = mask_of("free", scores, density), mask_of("equal", scores, density)
    assert free.sum() == round(density * scores.size)
    assert scores[free].min() >= scores[~free].max(initial=0)
    assert set(equal.sum(axis=0)) == {round(density * 40)}
    assert all(scores[equal[:, n], n].min() >= scores[~equal[:, n], n].max(initial=0) for n in range(30))


@pytest.mark.parametrize(("text", "kept", "of"), [("2:4", 2, 4), ("1:8", 1, 8), ("n:16", 4, 16)])
def test_n_of_m_is_kept_and_discovered(text: str, kept: int, of: int) -> None:
    mask = mask_of(text, scores_of(128, 96), 0.25)
    assert np.all(mask.reshape(-1, of, 96).sum(axis=1) == kept)
    found = n_of_m(pattern(mask))
    assert found is not None
    assert (found.kept, found.of) == (kept, of)


def test_a_last_group_that_is_not_full_keeps_no_more_than_the_others() -> None:
    assert list(mask_of("2:4", scores_of(10, 3), 0.5).sum(axis=0)) == [6, 6, 6]


def test_grouped_n_of_m_uses_each_choice_as_often_as_any_other_and_no_way_is_better() -> None:
    scores = scores_of(4, 3)
    mask = mask_of("grouped:1:3:1", scores[:3], 1.0)
    assert np.all(mask.sum(axis=0) == 1)
    assert np.all(mask.sum(axis=1) == 1)
    ways = [sum(scores[a, n] for n, a in enumerate(way)) for way in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0))]
    ways += [sum(scores[a, n] for n, a in enumerate(way)) for way in ((2, 0, 1), (2, 1, 0))]
    assert scores[:3][mask].sum() == pytest.approx(max(ways))
    many = mask_of("grouped:2:4:4", scores_of(32, 48), 1.0)
    choices = [np.array([n in chosen for n in range(4)], dtype=np.bool_) for chosen in combinations(range(4), 2)]
    for block in many.reshape(8, 4, 2, 24).transpose(0, 2, 3, 1).reshape(16, 24, 4):
        assert [int((block == choice).all(axis=1).sum()) for choice in choices] == [4] * 6


def test_v_n_m_shares_four_inputs_of_m_among_v_outputs_that_each_keep_n() -> None:
    mask = mask_of("8:2:16", scores_of(64, 32), 1.0)
    assert np.all(mask.reshape(4, 16, 32).sum(axis=1) == 2)
    # the outputs of a group may stand anywhere: in each 16 inputs they read four
    shared = {tuple(np.flatnonzero(row)) for row in _groups_of(mask, 8)}
    assert sorted(sum(shared, ())) == list(range(32))


def _groups_of(mask: Mask, height: int) -> list[Mask]:
    """Return groups of outputs [outputs] whose inputs together are four of every 16, found one after the other."""
    left, groups = set(range(mask.shape[1])), list[Mask]()
    while left:
        first = min(left)
        group = [first]
        for other in sorted(left - {first}, key=lambda n: -int((mask[:, first] & mask[:, n]).sum())):
            together = mask[:, [*group, other]].any(axis=1).reshape(-1, 16).sum(axis=1)
            if len(group) < height and np.all(together <= 4):
                group.append(other)
        left -= set(group)
        groups.append(np.array([n in group for n in range(mask.shape[1])], dtype=np.bool_))
    return groups


def test_rows_read_the_same_inputs_in_groups_of_similar_outputs() -> None:
    rng = np.random.default_rng(0)
    kinds = rng.random((40, 5), dtype=np.float32)
    scores = np.tile(kinds, 4)
    scores += np.float32(0.01) * scores_of(40, 20)
    mask = mask_of("rows:4", scores, 0.3)
    assert set(mask.sum(axis=0)) == {12}
    for kind in range(5):
        assert np.array_equal(mask[:, kind], mask[:, kind + 15])


def test_blocks_stand_beside_each_other() -> None:
    narrow, square = (mask_of(text, scores_of(64, 32), 0.25) for text in ("blocks:4", "blocks:4:8"))
    assert set(narrow.reshape(16, 4, 32).sum(axis=1).ravel()) == {0, 4}
    assert set(square.reshape(16, 4, 4, 8).sum(axis=(1, 3)).ravel()) == {0, 32}
    assert narrow.sum() == square.sum() == 512


@pytest.mark.parametrize("text", ["free", "equal", "n:32", "2:4", "grouped:2:4:8", "64:2:8", "rows:4", "blocks:4"])
def test_inputs_without_weight_and_odd_sizes_are_no_obstacle(text: str) -> None:
    mask = mask_of(text, np.zeros((13, 7), np.float32), 0.3)
    assert mask.shape == (13, 7)
    assert 0 < mask.sum() < 13 * 7


@pytest.mark.parametrize("text", ["", "even", "2:", "4:2", "2:4:8:16", "rows", "rows:0", "free:3", "64:5:8", "n:1"])
def test_what_is_no_structure_is_said_with_those_that_are(text: str) -> None:
    with pytest.raises(ValueError, match=r"structure.*: expected one (of free, equal|such as)"):
        structure_of(text)


def test_a_structure_of_ones_own_has_a_name() -> None:
    def diagonal(numbers: tuple[int, ...]) -> Structure:
        def choose(scores: Scores, density: float) -> Mask:
            rows, columns = np.indices(scores.shape)
            return np.abs(rows - columns) <= np.array(numbers)

        return Structure(choose)

    with STRUCTURES.extended({"diagonal": diagonal}):
        assert mask_of("diagonal:1", scores_of(5, 5), 1.0).sum() == 13
    with pytest.raises(ValueError, match=r"structure: expected one of .*, got 'diagonal:1'"):
        structure_of("diagonal:1")
