"""Layers as one graph: the same function, and the neurons and connections that a person would draw."""

import numpy as np
import pytest
from hypothesis import given, settings

from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.network import NetworkOp
from redpebble.passes.network.flatten_network import FlattenNetwork
from tests.passes.pass_texts import all_of, assert_same_function, only, parse, run
from tests.passes.random_networks import BATCHES, feeds_for, network, seeds


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_a_graph_computes_what_its_layers_computed_and_holds_all_of_them(seed: int) -> None:
    before = network(seed)
    after = run(before, FlattenNetwork())
    assert_same_function(before, after, [feeds_for(before, batch, seed) for batch in BATCHES])
    assert not all_of(after, LinearOp)
    for op in all_of(after, NetworkOp):
        assert op.graph.connection_count == len(op.weighted_graph.weights)


@settings(max_examples=30, deadline=None)
@given(seed=seeds)
def test_flattening_is_done_after_one_run(seed: int) -> None:
    once = run(network(seed), FlattenNetwork())
    assert run(once, FlattenNetwork()).is_structurally_equivalent(once)


SHARED = """
func.func @main(%x: tensor<?x2xf32> {pebble.name = "x"}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %h = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  %r = pebble.activate <relu> %h : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %s = pebble.add %r, %h : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %s : tensor<?x2xf32>
}
"""


def test_a_sum_that_is_read_twice_is_a_neuron_before_its_activation_is_one() -> None:
    """2 inputs, 2 sums, 2 activated, 2 outputs; 4 connections into the sums, 2 each into the others and 2 more."""
    op = only(run(parse(SHARED), FlattenNetwork()), NetworkOp)
    assert (op.input_count, len(op.weighted_graph.biases), len(op.graph.sources)) == (2, 6, 4 + 2 + 4)


DEAD = """
func.func @main(%x: tensor<?x2xf32> {pebble.name = "x"}) -> tensor<?x1xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %h = pebble.linear %x, %w activation <tanh> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  %a, %b = pebble.split %h axis 1 : (tensor<?x2xf32>) -> (tensor<?x1xf32>, tensor<?x1xf32>)
  func.return %b : tensor<?x1xf32>
}
"""


def test_a_neuron_that_reaches_no_output_is_not_in_the_graph() -> None:
    op = only(run(parse(DEAD), FlattenNetwork()), NetworkOp)
    assert (op.input_count, len(op.weighted_graph.biases)) == (2, 1)
    np.testing.assert_array_equal(op.weighted_graph.weights, [2.0, 4.0])


TWO_INPUTS = """
func.func @main(
    %x: tensor<?x5x2xf32> {pebble.name = "x", pebble.dims = ["batch", "5", "2"]},
    %z: tensor<?x5x3xf32> {pebble.name = "z", pebble.dims = ["batch", "5", "3"]})
    -> (tensor<?x5x1xf32>, tensor<?x5x3xf32>) {
  %w = pebble.constant dense<1.0> : tensor<5x1xf32>
  %v = pebble.constant dense<2.0> : tensor<3x3xf32>
  %c = pebble.concat %x, %z axis 2 : (tensor<?x5x2xf32>, tensor<?x5x3xf32>) -> tensor<?x5x5xf32>
  %y = pebble.linear %c, %w : (tensor<?x5x5xf32>, tensor<5x1xf32>) -> tensor<?x5x1xf32>
  %u = pebble.linear %z, %v : (tensor<?x5x3xf32>, tensor<3x3xf32>) -> tensor<?x5x3xf32>
  func.return %y, %u : tensor<?x5x1xf32>, tensor<?x5x3xf32>
}
"""


def test_several_inputs_and_outputs_are_one_graph() -> None:
    before = parse(TWO_INPUTS)
    after = run(before, FlattenNetwork())
    op = only(after, NetworkOp)
    assert (op.input_count, len(op.weighted_graph.biases), len(op.graph.sources)) == (5, 4, 5 + 9)
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((3, 5, 2)), "z": rng.standard_normal((3, 5, 3))}
    assert_same_function(before, after, [feeds])
