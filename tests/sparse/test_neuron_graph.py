"""What a network refuses, and the facts it knows."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph, from_layers, id_array
from tests.support.network_strategies import networks


def network_of(connections: list[tuple[int, int]], inputs: list[int], outputs: list[int]) -> NeuronGraph:
    pairs = np.array(connections, dtype=np.int64).reshape(-1, 2)
    return NeuronGraph(4, pairs[:, 0].copy(), pairs[:, 1].copy(), id_array(inputs), id_array(outputs))


@pytest.mark.parametrize(
    "connections, inputs, outputs, message",
    [
        ([(0, 4)], [0], [3], r"targets: expected neurons from 0 to 3, got 4"),
        ([(-1, 3)], [0], [3], r"sources: expected neurons from 0 to 3, got -1"),
        ([(0, 3)], [0, 0], [3], "inputs names neuron 0 twice"),
        ([(0, 3)], [0], [3, 3], "outputs names neuron 3 twice"),
        ([(0, 3)], [0, 1], [1, 3], "neuron 1 is both input and output"),
        ([(0, 3), (3, 1)], [0, 1], [3], "connection 1 runs 3 -> 1, into an input"),
        ([(0, 3), (1, 3), (0, 3)], [0, 1], [3], "connections 0 and 2 both run 0 -> 3"),
        ([(0, 1), (1, 2), (2, 1), (2, 3)], [0], [3], "neuron 1 is on a cycle or behind one"),
    ],
)
def test_a_malformed_network_is_refused(
    connections: list[tuple[int, int]], inputs: list[int], outputs: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        network_of(connections, inputs, outputs).check()


def test_ids_of_another_type_are_refused() -> None:
    ids = cast("NDArray[np.int64]", np.zeros(1, dtype=np.int32))
    with pytest.raises(ValueError, match="sources: expected int64 of rank 1, got int32 of rank 1"):
        NeuronGraph(2, ids, ids, ids, ids).check()


def test_sources_and_targets_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="1 sources and 2 targets"):
        NeuronGraph(3, id_array([0]), id_array([1, 2]), id_array([0]), id_array([2])).check()


def test_layers_become_consecutive_neurons() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    first, second = np.array([[1.0, 0.0], [2.0, 3.0], [0.0, 0.0]]), np.array([[0.0], [4.0]])
    network = from_layers([first, sparse.csr_array(second)])
    assert network.neuron_count == 6
    assert sorted(zip(network.sources.tolist(), network.targets.tolist(), strict=True)) == [
        (0, 3),
        (1, 3),
        (1, 4),
        (4, 5),
    ]
    assert network.inputs.tolist() == [0, 1, 2]
    assert network.outputs.tolist() == [5]
    assert network.is_moved.tolist() == [True, True, False, True, True, True]


def test_layers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="layer 1 takes 3 values, the width before it is 2"):
        from_layers([np.ones((4, 2)), np.ones((3, 1))])
    with pytest.raises(ValueError, match="expected a network of one layer or more, got none"):
        from_layers([])


@given(networks())
def test_the_topological_order_puts_sources_before_targets(network: NeuronGraph) -> None:
    places = np.empty(network.neuron_count, dtype=np.int64)
    places[network.topological_order] = np.arange(network.neuron_count)
    assert np.all(places[network.sources] < places[network.targets])
    assert np.all(network.depths[network.sources] < network.depths[network.targets])


@given(networks())
def test_incoming_and_outgoing_hold_every_connection_once(network: NeuronGraph) -> None:
    for adjacency, ends in ((network.incoming, network.targets), (network.outgoing, network.sources)):
        assert sorted(adjacency.indices.tolist()) == list(range(network.connection_count))
        for neuron in range(network.neuron_count):
            assert np.all(ends[adjacency.of(neuron)] == neuron)
