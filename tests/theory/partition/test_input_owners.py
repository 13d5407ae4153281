"""Owners of inputs, chosen last: no other owners would let fewer values be sent."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from redpebble.sparse.csr import CsrPattern
from redpebble.theory.partition.partition import (
    Owners,
    dense_pattern,
    free_inputs,
    layer_traffic,
    owners_of_inputs,
    slices,
)
from redpebble.theory.partition.search import PartitionRequest, find_partition


@st.composite
def layers(draw: st.DrawFn) -> tuple[CsrPattern, Owners, int]:
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    inputs, outputs, parts = (draw(st.integers(1, most)) for most in (12, 10, 4))
    mask: NDArray[np.bool_] = rng.random((outputs, inputs)) < draw(st.floats(0, 1))
    pointers = np.concatenate((np.zeros(1, np.int64), np.cumsum(mask.sum(axis=1))))
    return CsrPattern(pointers, np.nonzero(mask)[1], inputs), rng.integers(0, parts, outputs).astype(np.int32), parts


@settings(max_examples=40, deadline=None)
@given(layers())
def test_an_input_is_sent_to_all_parts_that_use_it_but_one(layer: tuple[CsrPattern, Owners, int]) -> None:
    pattern, outputs, parts = layer
    owners = owners_of_inputs(pattern, outputs, parts)
    assert owners.dtype == np.int32
    users = [{int(outputs[o]) for o in pattern.rows[pattern.indices == i]} for i in range(pattern.column_count)]
    least = sum(max(len(parts_of_one) - 1, 0) for parts_of_one in users)
    assert layer_traffic(pattern, owners, outputs, parts).volume == least


def test_inputs_that_all_parts_use_are_slices() -> None:
    outputs = np.arange(8, dtype=np.int32) % 3
    np.testing.assert_array_equal(owners_of_inputs(dense_pattern(10, 8), outputs, 3), slices(10, 3))


def test_inputs_that_nothing_uses_are_dealt_evenly() -> None:
    pattern = CsrPattern(np.array([0, 2]), np.array([0, 1]), 6)
    owners = owners_of_inputs(pattern, np.array([1], dtype=np.int32), 3)
    assert np.bincount(owners, minlength=3).tolist() == [2, 2, 2]


def test_a_search_that_chooses_owners_sends_no_more_than_with_slices() -> None:
    rng = np.random.default_rng(0)
    # two blocks whose inputs stand in random places
    order = rng.permutation(32)
    rows = [np.sort(order[:16] if output % 2 else order[16:]) for output in range(32)]
    pattern = CsrPattern(np.arange(0, 32 * 16 + 1, 16), np.concatenate(rows), 32)
    request = PartitionRequest(2, proposals=50)
    chosen = find_partition([pattern], request, free_inputs(32))
    assert layer_traffic(pattern, chosen.owners[0], chosen.owners[1], 2).volume == 0
    sliced = find_partition([pattern], request)
    assert layer_traffic(pattern, sliced.owners[0], sliced.owners[1], 2).volume > 0
