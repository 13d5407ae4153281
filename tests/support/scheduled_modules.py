"""Networks as ops, with an order and what it moves, from graphs of the theory."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.weighted_graph import WeightedGraph
from redpebble.dialect.ops.network import NetworkOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.passes.network.schedule_connections import counts_of
from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.pebbling.machine import Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.theory.pebbling.orders.simple_orders import topological_positions
from tests.support.lowering_modules import function

ACTIVATIONS = (ActivationAttr("relu"), ActivationAttr("tanh"), ActivationAttr("leaky_relu", (0.1,)))


def numbered(network: NeuronGraph) -> NeuronGraph:
    """The same graph, inputs first, and every connection from a smaller to a larger number."""
    positions = topological_positions(network)
    by_number = np.lexsort((positions, ~network.is_input))
    number = np.empty(network.neuron_count, dtype=np.int64)
    number[by_number] = np.arange(network.neuron_count)
    ends = number[network.sources], number[network.targets]
    return NeuronGraph(network.neuron_count, *ends, np.sort(number[network.inputs]), number[network.outputs])


def arrays_for(network: NeuronGraph, rng: np.random.Generator) -> WeightedGraph:
    """Random weights, biases and activations for a graph that `numbered` returned."""
    inner = network.neuron_count - len(network.inputs)
    return WeightedGraph(
        network,
        rng.standard_normal(network.connection_count).astype(np.float32),
        rng.standard_normal(inner).astype(np.float32),
        ACTIVATIONS,
        rng.integers(-1, len(ACTIVATIONS), inner),
    )


def network_module(arrays: WeightedGraph, operands: Sequence[int], results: Sequence[int]) -> ModuleOp:
    """A function of one network: its operands and results have these numbers of features."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        op = NetworkOp(arguments, arrays, results)
        block.add_op(op)
        return op.outputs

    return function([f32_tensor((DYNAMIC, features)) for features in operands], body)


def network_op(module: ModuleOp) -> NetworkOp:
    """The one network of a module."""
    (op,) = [found for found in module.walk() if isinstance(found, NetworkOp)]
    return op


def set_order(module: ModuleOp, network: NeuronGraph, order: NDArray[np.int64], memory: Memory) -> NetworkOp:
    """Write an order, as the reference machine counts it, on the one network of a module."""
    op = network_op(module)
    count = count_transfers(network, order, memory)
    op.set_order(order, memory.capacity, memory.policy, counts_of(count))
    return op
