"""The search for partitions: balance, cost that is counted exactly, the same result every time, and good ones."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.models.radixnet import RadixNet, radixnet_patterns
from redpebble.theory.partition.hypergraph import layer_hypergraph, most_connections
from redpebble.theory.partition.partition import (
    LayerPattern,
    Partition,
    connections_of_parts,
    random_rows,
    slices,
    traffic,
)
from redpebble.theory.partition.refine_partition import AnnealedPartition, Chain, Cooling, cost_of_parts
from redpebble.theory.partition.search import PartitionRequest, find_partition, grow_parts
from tests.support.random_patterns import pattern_of_matrix, random_chain

CHAINS = st.tuples(
    st.lists(st.integers(1, 12), min_size=2, max_size=4), st.sampled_from([0.0, 0.15, 0.4, 1.0]), st.integers(0, 99)
)


def chain_of(patterns: list[LayerPattern], parts: int, imbalance: float) -> Chain:
    limits = [most_connections(pattern.lengths, parts, imbalance) for pattern in patterns]
    layers = [layer_hypergraph(pattern, parts, most) for pattern, most in zip(patterns, limits, strict=True)]
    return Chain(layers, slices(patterns[0].column_count, parts), parts, limits)


@settings(max_examples=40, deadline=None)
@given(CHAINS, st.integers(1, 4), st.sampled_from([0.0, 2.5]))
def test_a_partition_is_complete_balanced_and_no_worse_than_random_rows(
    drawn: tuple[list[int], float, int], parts: int, message_values: float
) -> None:
    patterns = [pattern_of_matrix(matrix) for matrix in random_chain(*drawn)]
    found = find_partition(patterns, PartitionRequest(parts, 0.1, proposals=60, message_values=message_values))
    assert [len(owners) for owners in found.owners] == drawn[0]
    random = random_rows(patterns, parts, np.random.default_rng(0))
    rows = Partition(parts, (found.owners[0], *random.owners[1:]))

    def cost(partition: Partition) -> float:
        return sum(one.volume + message_values * one.messages for one in traffic(patterns, partition))

    fullest = max(one.imbalance for one in traffic(patterns, rows))
    for pattern, owners in zip(patterns, found.owners[1:], strict=True):
        limit = most_connections(pattern.lengths, parts, 0.1)
        assert connections_of_parts(pattern, owners, parts).max() <= limit
    assert cost(found) <= cost(rows) or fullest > 0.1


@settings(max_examples=30, deadline=None)
@given(CHAINS, st.integers(2, 4), st.sampled_from([0.0, 3.0]), st.floats(0.05, 5.0))
def test_annealing_counts_what_its_moves_change(
    drawn: tuple[list[int], float, int], parts: int, message_values: float, temperature: float
) -> None:
    chain = chain_of([pattern_of_matrix(matrix) for matrix in random_chain(*drawn)], parts, 0.2)
    start = [grow_parts(layer, parts, most) for layer, most in zip(chain.layers, chain.most_connections, strict=True)]
    cooling = Cooling(40, temperature, temperature, 3, message_values)
    annealed = AnnealedPartition(chain, start, cooling)
    assert annealed.cost == cost_of_parts(chain, start, message_values)
    best = annealed.anneal(0, threads=2)
    assert annealed.cost == pytest.approx(cost_of_parts(chain, annealed.parts, message_values))
    assert cost_of_parts(chain, best, message_values) <= cost_of_parts(chain, start, message_values)


@pytest.mark.slow
@given(st.integers(0, 200))
@settings(max_examples=15, deadline=None)
def test_tiny_networks_get_their_best_partition(seed: int) -> None:
    widths = [4, 4, 3]
    patterns = [pattern_of_matrix(matrix) for matrix in random_chain(widths, 0.4, seed)]
    limits = [most_connections(pattern.lengths, 2, 0.5) for pattern in patterns]

    def volume(owners: tuple[int, ...]) -> int | None:
        levels = np.array(owners[:4], dtype=np.int32), np.array(owners[4:], dtype=np.int32)
        loads = [connections_of_parts(p, o, 2).max() for p, o in zip(patterns, levels, strict=True)]
        if any(load > limit for load, limit in zip(loads, limits, strict=True)):
            return None
        return sum(one.volume for one in traffic(patterns, Partition(2, (slices(4, 2), *levels))))

    volumes = [found for owners in product((0, 1), repeat=7) if (found := volume(owners)) is not None]
    found = find_partition(patterns, PartitionRequest(2, 0.5, proposals=400))
    assert sum(one.volume for one in traffic(patterns, found)) <= min(volumes) + 1


def test_the_seed_decides_and_the_threads_do_not() -> None:
    patterns = [pattern_of_matrix(matrix) for matrix in random_chain([60, 50, 40, 30], 0.08, 3)]

    def owners(seed: int, threads: int) -> list[list[int]]:
        found = find_partition(patterns, PartitionRequest(4, seed=seed, proposals=100, threads=threads))
        return [level.tolist() for level in found.owners]

    assert owners(1, 1) == owners(1, 3)
    assert owners(1, 2) != owners(2, 2)


def test_one_part_owns_everything_and_given_owners_of_inputs_stay() -> None:
    patterns = [pattern_of_matrix(matrix) for matrix in random_chain([5, 6], 0.5, 0)]
    assert not any(owners.any() for owners in find_partition(patterns, PartitionRequest(1)).owners)
    given_owners = np.array([1, 0, 1, 0, 1], dtype=np.int32)
    assert np.array_equal(find_partition(patterns, PartitionRequest(2), given_owners).owners[0], given_owners)


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="expected up to 10000 parts, got 10001"):
        PartitionRequest(10_001)
    with pytest.raises(ValueError, match="expected 1 part or more, got 0"):
        PartitionRequest(0)
    with pytest.raises(ValueError, match="expected an imbalance of 0 or more, got -1"):
        PartitionRequest(1, -1.0)
    with pytest.raises(ValueError, match="expected 0 or more proposals, got -1"):
        PartitionRequest(1, proposals=-1)


def test_what_is_no_chain_is_refused() -> None:
    layer = pattern_of_matrix(np.ones((3, 2), dtype=np.bool_))
    with pytest.raises(ValueError, match="expected a chain of one layer or more, got none"):
        find_partition([], PartitionRequest(2))
    with pytest.raises(ValueError, match="layer 1 takes 3 values, the layer before it gives 2"):
        find_partition([layer, layer], PartitionRequest(2))
    with pytest.raises(ValueError, match="owners of 2 inputs for a network of 3"):
        find_partition([layer], PartitionRequest(2), np.zeros(2, dtype=np.int32))


TARGETS = [(1024, 120, 8, 900), (1024, 120, 32, 1350), (4096, 120, 8, 4200)]


@pytest.mark.slow
@pytest.mark.parametrize(("neurons", "layers", "parts", "most"), TARGETS)
def test_radixnet_sends_no_more_than_its_target(neurons: int, layers: int, parts: int, most: int) -> None:
    patterns = radixnet_patterns(RadixNet(neurons, layers), np.random.default_rng(0))
    costs = traffic(patterns, find_partition(patterns, PartitionRequest(parts)))
    assert sum(one.volume for one in costs) <= most * layers
    assert max(one.imbalance for one in costs) <= 0.03


@pytest.mark.slow
def test_a_wide_radixnet_sends_a_twelfth_of_random_rows() -> None:
    patterns = radixnet_patterns(RadixNet(16384, 120), np.random.default_rng(0))
    costs = traffic(patterns, find_partition(patterns, PartitionRequest(42)))
    random = traffic(patterns, random_rows(patterns, 42, np.random.default_rng(0)))
    assert 12 * sum(one.volume for one in costs) <= sum(one.volume for one in random)
    assert max(one.imbalance for one in costs) <= 0.03


def test_a_short_radixnet_sends_an_eighth_of_random_rows() -> None:
    patterns = radixnet_patterns(RadixNet(1024, 9), np.random.default_rng(0))
    costs = traffic(patterns, find_partition(patterns, PartitionRequest(8)))
    assert sum(one.volume for one in costs) <= 900 * 9
    assert max(one.imbalance for one in costs) <= 0.03
