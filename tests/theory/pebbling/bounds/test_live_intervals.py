"""Groups of roles and what they cost."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from redpebble.sparse.neuron_graph import NeuronGraph, from_layers, id_array
from redpebble.theory.pebbling.bounds.live_intervals import counted_connections, interval_groups, joint_group
from tests.support.network_strategies import networks


def test_a_chain_of_layers_splits_into_its_pairs() -> None:
    groups = interval_groups(from_layers([np.ones((2, 3)), np.ones((3, 4))]))
    assert [group.shape for group in groups] == [(2, 3), (3, 4)]
    assert [group.left_costs.tolist() for group in groups] == [[1, 1], [2, 2, 2]]
    assert [group.right_costs.tolist() for group in groups] == [[2] * 3, [2] * 4]


def test_whole_neurons_cost_the_least_of_their_roles() -> None:
    """Input 0, hidden 1, output 2 that feeds output 3; the skip connection 0 -> 2 stays within even depths."""
    network = NeuronGraph(4, id_array([0, 1, 2, 0]), id_array([1, 2, 3, 2]), id_array([0]), id_array([2, 3]))
    group = joint_group(network)
    assert list(zip(group.rows.tolist(), group.columns.tolist(), strict=True)) == [(0, 0), (1, 0), (1, 1)]
    assert group.left_costs.tolist() == [1, 1]
    assert group.right_costs.tolist() == [2, 2]


def test_connections_out_of_neurons_with_only_a_bias_are_left_out() -> None:
    network = NeuronGraph(3, id_array([0, 1]), id_array([2, 2]), id_array([0]), id_array([2]))
    assert counted_connections(network).tolist() == [0]


@given(networks())
def test_every_counted_connection_is_in_one_group(network: NeuronGraph) -> None:
    groups = interval_groups(network)
    counted = counted_connections(network)
    assert sum(len(group.rows) for group in groups) == len(counted)
    assert sum(group.shape[0] for group in groups) == len(np.unique(network.sources[counted]))
    assert sum(group.shape[1] for group in groups) == len(np.unique(network.targets[counted]))
