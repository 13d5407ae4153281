"""What `pebble.network` computes, and that orders and counts on it always belong together."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from xdsl.utils.exceptions import VerifyException

from redpebble.dialect.attributes.activations import activate
from redpebble.dialect.attributes.weighted_graph import WeightedGraph
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.dialect.tensors import dense_indices
from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.pebbling.machine import Memory
from tests.dialect.pebble_text import parse
from tests.support.network_strategies import SEEDS, networks
from tests.support.random_orders import random_order
from tests.support.scheduled_modules import arrays_for, network_module, network_op, numbered, set_order


def drawn(network: NeuronGraph, seed: int) -> tuple[NeuronGraph, WeightedGraph]:
    graph = numbered(network)
    return graph, arrays_for(graph, np.random.default_rng(seed))


@settings(max_examples=30, deadline=None)
@given(network=networks().filter(lambda one: len(one.inputs) > 0), seed=SEEDS)
def test_it_computes_one_neuron_after_the_other(network: NeuronGraph, seed: int) -> None:
    graph, arrays = drawn(network, seed)
    x = np.random.default_rng(seed).standard_normal((5, len(graph.inputs)))
    values = {number: x[:, number] for number in range(len(graph.inputs))}
    for neuron in range(len(graph.inputs), graph.neuron_count):
        inner = neuron - len(graph.inputs)
        total = np.full(5, float(arrays.biases[inner]))
        for connection in graph.incoming.of(neuron).tolist():
            total += float(arrays.weights[connection]) * values[int(graph.sources[connection])]
        number = int(arrays.activation_of[inner])
        activated = total if number < 0 else activate(arrays.activations[number], total)
        values[neuron] = activated.astype(np.float64)
    (y,) = interpret(network_module(arrays, [len(graph.inputs)], [len(graph.outputs)]), {"x0": x})
    np.testing.assert_allclose(y, np.stack([values[one] for one in graph.outputs.tolist()], axis=1), rtol=1e-9)


@settings(max_examples=30, deadline=None)
@given(network=networks().filter(lambda one: one.connection_count > 1 and len(one.inputs) > 0), seed=SEEDS)
def test_counts_do_not_survive_another_order_or_another_count(network: NeuronGraph, seed: int) -> None:
    graph, arrays = drawn(network, seed)
    rng = np.random.default_rng(seed)
    order = random_order(graph, rng)
    module = network_module(arrays, [len(graph.inputs)], [len(graph.outputs)])
    op = set_order(module, graph, order, Memory(3))
    module.verify()
    assert op.transfers is not None
    counts = op.transfers.counts
    other = random_order(graph, rng)
    if not np.array_equal(other, order):
        op.order = dense_indices(other)
        with pytest.raises(VerifyException, match="transfers were counted for another order"):
            op.verify()
    op.set_order(order, 3, "min", counts)
    op.transfers = replace(op.transfers, row_writes=counts[3] + 1)
    with pytest.raises(VerifyException, match="transfers were counted for another order"):
        op.verify()


def test_the_text_of_a_schedule_reads_back() -> None:
    rng = np.random.default_rng(0)
    graph = numbered(NeuronGraph(4, *(np.array(ends) for ends in ([0, 1, 2], [2, 2, 3], [0, 1], [3]))))
    module = network_module(arrays_for(graph, rng), [2], [1])
    set_order(module, graph, np.arange(3), Memory(3, "lru"))
    again = parse(str(module))
    again.verify()
    assert again.is_structurally_equivalent(module)
    assert network_op(again).transfers == network_op(module).transfers
