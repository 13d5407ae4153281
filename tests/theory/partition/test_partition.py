"""What a partition costs, against the definition; what is no partition; balance."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redpebble.theory.partition.hypergraph import dealt_by_weight, loads_of, most_connections
from redpebble.theory.partition.partition import (
    Owners,
    Partition,
    all_sent,
    count_sent,
    dense_pattern,
    layer_traffic,
    local_connections,
    random_rows,
    slices,
    traffic,
)
from redpebble.theory.partition.stages import stage_partition, stages
from tests.support.random_patterns import Matrix, layers, pattern_of_matrix, random_chain, sent_by_definition


@given(layers())
def test_traffic_is_what_the_definition_counts(layer: tuple[Matrix, Owners, Owners, int]) -> None:
    matrix, inputs, outputs, parts = layer
    pattern, sent = pattern_of_matrix(matrix), sent_by_definition(matrix, inputs, outputs)
    cost, table = layer_traffic(pattern, inputs, outputs, parts), count_sent(pattern, inputs, outputs, parts)
    assert {pair: len(values) for pair, values in sent.items()} == {
        pair: table[pair] for pair in product(range(parts), repeat=2) if table[pair]
    }
    assert cost.volume == sum(len(values) for values in sent.values())
    assert cost.messages == len(sent)
    assert cost.most_sent == max(sum(len(v) for (a, _), v in sent.items() if a == part) for part in range(parts))
    assert cost.most_received == max(sum(len(v) for (_, b), v in sent.items() if b == part) for part in range(parts))
    connections = [int(matrix[:, outputs == part].sum()) for part in range(parts)]
    assert cost.most_connections == max(connections)
    assert cost.imbalance == pytest.approx(max(connections) * parts / sum(connections) - 1 if any(connections) else 0)


@given(layers())
def test_volume_is_connectivity_minus_one(layer: tuple[Matrix, Owners, Owners, int]) -> None:
    matrix, inputs, outputs, parts = layer
    connectivity = sum(len({owner, *outputs[row].tolist()}) for row, owner in zip(matrix, inputs.tolist(), strict=True))
    assert layer_traffic(pattern_of_matrix(matrix), inputs, outputs, parts).volume == connectivity - len(inputs)


@pytest.mark.slow
@given(layers())
def test_local_connections_are_those_inside_a_part(layer: tuple[Matrix, Owners, Owners, int]) -> None:
    matrix, inputs, outputs, parts = layer
    expected = [int(matrix[np.ix_(inputs == part, outputs == part)].sum()) for part in range(parts)]
    assert local_connections(pattern_of_matrix(matrix), inputs, outputs, parts).tolist() == expected


@given(st.integers(0, 30), st.integers(1, 7))
def test_slices_are_even_and_ascend(width: int, parts: int) -> None:
    owners = slices(width, parts)
    sizes = np.bincount(owners, minlength=parts)
    assert owners.tolist() == sorted(owners.tolist())
    assert len(sizes) == parts
    assert sizes.max() - sizes.min() <= 1


def test_what_every_part_needs_is_sent_to_all_others() -> None:
    owners = np.arange(3, dtype=np.int32)
    assert np.array_equal(all_sent(7, 3), count_sent(dense_pattern(7, 3), slices(7, 3), owners, 3))


def test_random_rows_cost_what_chance_says() -> None:
    chain = [pattern_of_matrix(matrix) for matrix in random_chain([400, 400, 400], 0.02, 0)]
    partition = random_rows(chain, 4, np.random.default_rng(1))
    # an input with d connections is used by part p with probability 1 - (3/4)^d
    for pattern, cost in zip(chain, traffic(chain, partition), strict=True):
        degrees = np.bincount(pattern.indices, minlength=400)
        assert cost.volume == pytest.approx(float(np.sum(3 * (1 - 0.75**degrees))), rel=0.05)
    assert all(np.bincount(owners).tolist() == [100] * 4 for owners in partition.owners)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 6), st.floats(0, 1))
def test_a_part_that_is_dealt_by_weight_keeps_the_limit(weights: list[int], parts: int, imbalance: float) -> None:
    counts = np.array(weights, dtype=np.int64)
    loads = loads_of(counts, dealt_by_weight(counts, parts), parts)
    assert loads.sum() == counts.sum()
    assert loads.max() <= counts.sum() / parts + counts.max()
    assert most_connections(counts, parts, imbalance) >= min(
        int(loads.max()), counts.sum() * (1 + imbalance) / parts - 1
    )


@given(st.lists(st.integers(0, 9), max_size=7), st.integers(1, 4))
def test_no_cut_into_stages_has_a_lighter_heaviest_one(work: list[int], parts: int) -> None:
    def heaviest(found: tuple[int, ...] | list[int]) -> int:
        return max(
            (sum(amount for amount, at in zip(work, found, strict=True) if at == part) for part in range(parts)),
            default=0,
        )

    found = stages(work, parts)
    assert found == sorted(found)
    assert all(0 <= stage < parts for stage in found)
    cuts = [cut for cut in product(range(parts), repeat=len(work)) if list(cut) == sorted(cut)]
    assert heaviest(found) == min(heaviest(cut) for cut in cuts)


def test_a_stage_owns_all_outputs_of_its_layers() -> None:
    partition = stage_partition([5, 1, 4], [2, 3, 2, 4], 2)
    assert [owners.tolist() for owners in partition.owners] == [[0, 0], [0, 0, 0], [1, 1], [1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("parts", "owners", "message"),
    [
        (0, [[0], [0]], "expected 1 part or more, got 0"),
        (1, [[0]], "expected owners of 2 levels or more, as a layer has, got 1"),
        (2, [[0], [2]], "level 1: expected owners from 0 to 1, got 2"),
    ],
)
def test_a_wrong_partition_is_refused(parts: int, owners: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("..", r"\.\.")):
        Partition(parts, tuple(np.array(level, dtype=np.int32) for level in owners))


def test_owners_of_another_dtype_or_length_are_refused() -> None:
    pattern, owners = dense_pattern(2, 3), np.zeros(3, dtype=np.int32)
    with pytest.raises(ValueError, match="owners of level 0: expected int32 of rank 1, got int64 of rank 1"):
        Partition(1, (np.zeros(2, dtype=np.int64), owners))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="owners of 3 inputs for a layer of 2"):
        count_sent(pattern, owners, owners, 1)
    with pytest.raises(ValueError, match="owners of 2 outputs for a layer of 3"):
        count_sent(pattern, owners[:2], owners[:2], 1)
    with pytest.raises(ValueError, match="a partition of 1 layers for a chain of 2"):
        traffic([pattern, pattern], Partition(1, (owners[:2], owners)))
    with pytest.raises(ValueError, match="expected one level more than 2 layers, got 2"):
        stage_partition([1, 1], [1, 1], 2)
    with pytest.raises(ValueError, match="expected 1 part or more, got 0"):
        stages([1], 0)
