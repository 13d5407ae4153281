"""Strides are those by which the pattern was made."""

import numpy as np
import pytest

from redpebble.models.radixnet import RadixNet, radixnet_patterns
from redpebble.sparse.csr import CsrPattern
from redpebble.sparse.patterns.strides import Strides, strides_of
from tests.support.patterns import rows_of, shuffled


def ring(count: int, distances: list[int]) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    rows = np.arange(count)[:, None]
    mask = np.zeros((count, count), dtype=bool)
    mask[rows, (rows - np.array(distances)) % count] = True
    return mask


@pytest.mark.parametrize(
    ("distances", "expected"),
    [
        ([0, 4], Strides("circulant", 24, 0, 4, 2)),
        ([3, 8, 13], Strides("circulant", 24, 3, 5, 3)),
        ([23, 0, 1], Strides("circulant", 24, 23, 1, 3)),
        ([5], Strides("circulant", 24, 5, 0, 1)),
        ([0, 12], Strides("circulant", 12, 0, 0, 1)),
        ([0, 3, 12, 15], Strides("circulant", 12, 0, 3, 2)),
        ([0, 1, 5], None),
    ],
)
def test_rows_that_read_relative_to_themselves_have_strides(distances: list[int], expected: Strides | None) -> None:
    found = strides_of(rows_of(ring(24, distances)))
    assert found == expected
    if found is not None:
        steps = (found.start + found.stride * np.arange(found.radix)) % found.period
        assert sorted({(step + k) % 24 for step in steps for k in range(0, 24, found.period)}) == sorted(distances)


def test_partners_of_a_butterfly_are_found() -> None:
    rows = np.arange(16)
    mask = np.eye(16, dtype=bool)
    mask[rows, rows ^ 4] = True
    assert strides_of(rows_of(mask)) == Strides("exchange", 16, 0, 4, 2)


def test_layers_of_a_radixnet_have_the_strides_of_their_classes() -> None:
    patterns = radixnet_patterns(RadixNet(1024, 6), np.random.default_rng(0))
    found = [strides_of(CsrPattern(one.pointers, one.indices.astype(np.int64), 1024)) for one in patterns]
    assert found == [Strides("circulant", 64, 0, 1 << layer, 2) for layer in range(5)] + [
        # 0 and 32 modulo 64 are the same as 0 modulo 32
        Strides("circulant", 32, 0, 0, 1)
    ]


def test_random_shuffled_rectangular_full_and_empty_patterns_have_no_strides() -> None:
    rng = np.random.default_rng(1)
    masks = [rng.random((40, 40)) < 0.2, shuffled(ring(40, [0, 3]), 2), np.ones((8, 8), bool), np.ones((8, 9), bool)]
    masks += [np.zeros((8, 8), bool), np.zeros((0, 0), bool)]
    assert [strides_of(rows_of(mask)) for mask in masks] == [None] * len(masks)
