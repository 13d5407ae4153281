"""Layers as hypergraphs: groups and nets lose nothing, and parts get the names that suit their inputs."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from redpebble.sparse.csr import CsrPattern
from redpebble.sparse.patterns.similar_rows import first_alike
from redpebble.theory.partition.hypergraph import layer_hypergraph, most_connections
from redpebble.theory.partition.partition import Owners, layer_traffic
from redpebble.theory.partition.search import greedy_names, match_parts
from tests.support.random_patterns import Matrix, layers, pattern_of_matrix


@given(layers(), st.integers(0, 100))
def test_groups_and_nets_cost_what_the_layer_costs(layer: tuple[Matrix, Owners, Owners, int], seed: int) -> None:
    matrix, inputs, _, parts = layer
    pattern = pattern_of_matrix(matrix)
    graph = layer_hypergraph(pattern, parts, most_connections(pattern.lengths, parts, 0.1))
    groups = np.random.default_rng(seed).integers(0, parts, graph.group_count).astype(np.int32)
    used = graph.users(groups, parts) > 0
    volume = int((used.sum(axis=1) * graph.net_sizes).sum() - graph.owned(inputs, parts)[used].sum())
    assert volume == layer_traffic(pattern, inputs, graph.owners_of(groups), parts).volume


@given(layers())
def test_a_group_holds_outputs_of_the_same_inputs_and_a_net_inputs_of_the_same_groups(
    layer: tuple[Matrix, Owners, Owners, int],
) -> None:
    matrix, _, _, parts = layer
    pattern = pattern_of_matrix(matrix)
    graph = layer_hypergraph(pattern, parts, len(pattern.indices))
    members = [graph.members.of(g) for g in range(graph.group_count)]
    assert sorted(np.concatenate(members).tolist()) == list(range(matrix.shape[1]))
    # without a limit everything that is alike is together
    assert graph.group_count == len(np.unique(matrix, axis=1).T)
    for group, outputs in enumerate(members):
        assert (matrix[:, outputs] == matrix[:, outputs[:1]]).all()
        assert graph.weights[group] == matrix[:, outputs].sum()
    used = matrix.any(axis=1)
    assert np.array_equal(graph.net_of >= 0, used)
    assert graph.net_count == (len(np.unique(matrix[used], axis=0)) if used.any() else 0)
    assert graph.net_sizes.sum() == used.sum()


def test_groups_are_cut_where_balance_needs_it() -> None:
    pattern = pattern_of_matrix(np.ones((4, 12), dtype=np.bool_))
    graph = layer_hypergraph(pattern, 3, most_connections(pattern.lengths, 3, 0.0))
    assert graph.weights.sum() == 48
    assert sorted(graph.weights.tolist())[-1] <= 16
    assert graph.net_sizes.tolist() == [4]


@given(st.lists(st.lists(st.integers(0, 4), unique=True).map(sorted), max_size=12))
def test_equal_lists_are_in_one_class(rows: list[list[int]]) -> None:
    pointers = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum([len(row) for row in rows]))).astype(np.int64)
    lists = CsrPattern(pointers, np.array([item for row in rows for item in row], dtype=np.int32), 5)
    firsts, classes = np.unique(first_alike(lists), return_inverse=True)
    for row, found in zip(rows, classes.tolist(), strict=True):
        assert rows[firsts[found]] == row
    assert len(firsts) == len({tuple(row) for row in rows})
    columns = lists.transposed()
    assert [columns.of(item).tolist() for item in range(5)] == [
        [number for number, row in enumerate(rows) if item in row] for item in range(5)
    ]


@given(st.integers(1, 4), st.integers(0, 1000))
def test_names_are_a_permutation_worth_half_of_the_best(count: int, seed: int) -> None:
    gains = np.random.default_rng(seed).integers(0, 9, (count, count))
    names = greedy_names(gains)
    assert sorted(names.tolist()) == list(range(count))
    best = max(sum(int(gains[row, name]) for row, name in enumerate(order)) for order in permutations(range(count)))
    # a greedy matching is worth half of the best one at least
    assert 2 * int(gains[np.arange(count), names].sum()) >= best


@given(layers())
def test_naming_parts_changes_what_is_owned_and_nothing_else(layer: tuple[Matrix, Owners, Owners, int]) -> None:
    matrix, inputs, _, parts = layer
    pattern = pattern_of_matrix(matrix)
    graph = layer_hypergraph(pattern, parts, len(pattern.indices))
    groups = (np.arange(graph.group_count) % parts).astype(np.int32)
    named = match_parts(graph, groups, inputs, parts)
    assert len(set(zip(groups.tolist(), named.tolist(), strict=True))) == len(np.unique(groups))
    assert sorted(np.bincount(named, minlength=parts).tolist()) == sorted(np.bincount(groups, minlength=parts).tolist())
