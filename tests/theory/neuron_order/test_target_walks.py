import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from redpebble.sparse.csr import CscMatrix
from redpebble.sparse.edges import EdgeList
from redpebble.theory.neuron_order.target_walks import distinct_share, near_walk, walked


def random_graph(seed: int, nodes: int, edges: int) -> CscMatrix:
    rng = np.random.default_rng(seed)
    sources, targets = rng.integers(0, nodes, (2, edges))
    return EdgeList(sources, targets, rng.standard_normal(edges, dtype=np.float32)).matrix((nodes, nodes))


@given(st.integers(0, 99), st.integers(1, 30), st.integers(0, 90))
def test_a_walk_takes_each_target_once_with_all_its_edges_in_their_order(seed: int, nodes: int, edges: int) -> None:
    graph = random_graph(seed, nodes, edges)
    walk = near_walk(graph)
    assert sorted(walk) == list(range(nodes))
    found = walked(graph, walk)
    for place, target in enumerate(walk):
        own, known = (
            slice(*one.pointers[[number, number + 1]]) for one, number in ((found, place), (graph, int(target)))
        )
        np.testing.assert_array_equal(found.rows[own], graph.rows[known])
        np.testing.assert_array_equal(found.values[own], graph.values[known])


@given(st.integers(0, 99), st.integers(1, 30), st.integers(1, 90), st.integers(1, 20))
def test_the_share_counts_sources_that_differ_among_edges_in_a_row(seed: int, nodes: int, edges: int, row: int) -> None:
    graph = random_graph(seed, nodes, edges)
    groups = [graph.rows[first : first + row] for first in range(0, len(graph.rows), row)]
    assert distinct_share(graph, row) == sum(len(set(group)) for group in groups) / len(graph.rows)


def test_a_shuffled_ring_is_walked_along() -> None:
    names = np.random.default_rng(0).permutation(4000)
    following = names[np.arange(1, 4001) % 4000]
    edges = EdgeList(np.concatenate((names, following)), np.concatenate((following, names)))
    graph = edges.matrix((4000, 4000))
    assert distinct_share(graph, 100) > 0.9
    assert distinct_share(walked(graph, near_walk(graph)), 100) < 0.6


def test_a_graph_without_edges_reads_nothing() -> None:
    graph = random_graph(0, 5, 0)
    assert distinct_share(graph, 3) == 0
    assert sorted(near_walk(graph)) == list(range(5))


def test_sources_behind_the_targets_have_no_place_in_a_walk() -> None:
    graph = CscMatrix.from_dense(np.eye(7, 5, 2, dtype=np.float32) + np.eye(7, 5, -2, dtype=np.float32))
    assert sorted(near_walk(graph)) == [0, 1, 2, 3, 4]
