"""The network op: a whole graph of neurons and connections as one op, so that an order of its connections shows."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from math import prod
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DenseIntOrFPElementsAttr, Float32Type, IntegerType
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ...sparse.csr import Indices
from ...sparse.neuron_graph import NeuronGraph, check_order
from ..attributes.activations import ActivationAttr
from ..attributes.transfers import InstanceBoundAttr, TransferCountAttr
from ..attributes.weighted_graph import WeightedGraph
from ..tensors import (
    DENSE_TENSOR,
    DYNAMIC,
    dense_floats,
    dense_indices,
    f32_tensor,
    floats_of,
    indices_of,
    shape_of,
    shape_text,
)
from .axis_maps import MixedFeatures
from .dense_literals import Floats


@irdl_op_definition
class NetworkOp(IRDLOperation):
    """A graph of neurons and connections, row by row: inputs [..., K] each, results [..., N] each.

    `order` is an order of its connections, `transfers` what that order moves: they are counted, not executed.

    ```mlir
    %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64>
      weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32>
      activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64>
      : (tensor<?x2xf32>) -> tensor<?x1xf32>
    ```
    """

    name = "pebble.network"

    inputs = var_operand_def(DENSE_TENSOR)
    sources = prop_def(DenseIntOrFPElementsAttr[IntegerType])
    targets = prop_def(DenseIntOrFPElementsAttr[IntegerType])
    weights = prop_def(DenseIntOrFPElementsAttr[Float32Type])
    biases = prop_def(DenseIntOrFPElementsAttr[Float32Type])
    activations = prop_def(ArrayAttr[ActivationAttr])
    activation_of = prop_def(DenseIntOrFPElementsAttr[IntegerType])
    output_neurons = prop_def(DenseIntOrFPElementsAttr[IntegerType])
    bound = opt_prop_def(InstanceBoundAttr)
    order = opt_prop_def(DenseIntOrFPElementsAttr[IntegerType])
    transfers = opt_prop_def(TransferCountAttr)
    outputs = var_result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), MixedFeatures())
    custom_directives = (Floats,)
    assembly_format: ClassVar = (
        "$inputs `sources` qualified($sources) `targets` qualified($targets) `weights` custom<Floats>($weights) "
        "`biases` custom<Floats>($biases) `activations` $activations `of` qualified($activation_of) "
        "`outputs` qualified($output_neurons) (`bound` $bound^)? (`order` qualified($order)^)? "
        "(`transfers` $transfers^)? attr-dict `:` functional-type($inputs, $outputs)"
    )

    def __init__(self, inputs: Sequence[SSAValue], network: WeightedGraph, features: Sequence[int]) -> None:
        """Make a network whose results have these numbers of features; their other axes are those of the inputs."""
        leading = shape_of(inputs[0])[:-1]
        super().__init__(
            operands=[inputs],
            properties={
                "sources": dense_indices(network.graph.sources),
                "targets": dense_indices(network.graph.targets),
                "weights": dense_floats(network.weights),
                "biases": dense_floats(network.biases),
                "activations": ArrayAttr(network.activations),
                "activation_of": dense_indices(network.activation_of),
                "output_neurons": dense_indices(network.graph.outputs),
            },
            result_types=[[f32_tensor((*leading, size)) for size in features]],
        )

    @property
    def graph(self) -> NeuronGraph:
        """The neurons and connections; the arrays are views."""
        inputs, inner = self.input_count, self.biases.get_shape()[0]
        ends = indices_of(self.sources), indices_of(self.targets)
        return NeuronGraph(inputs + inner, *ends, np.arange(inputs), indices_of(self.output_neurons))

    @property
    def weighted_graph(self) -> WeightedGraph:
        """The graph with what its neurons compute; the arrays are views."""
        numbers = floats_of(self.weights), floats_of(self.biases)
        return WeightedGraph(self.graph, *numbers, self.activations.data, indices_of(self.activation_of))

    @property
    def input_count(self) -> int:
        """Neurons that are inputs."""
        return sum(shape_of(operand)[-1] for operand in self.inputs)

    def set_order(self, order: Indices, memory: int, policy: str, counts: tuple[int, int, int, int]) -> None:
        """Write an order and what it transfers for a memory of so many values."""
        self.order = dense_indices(order)
        self.transfers = TransferCountAttr(memory, policy, *counts, "")
        self.transfers = replace(self.transfers, order=self.digest())

    def digest(self) -> str:
        """Return what `transfers` must carry: a digest of the graph, of the order, and of the counts themselves."""
        arrays = (self.sources, self.targets, self.output_neurons, *([self.order] if self.order is not None else []))
        digest = blake2b(digest_size=8)
        if self.transfers is not None:
            numbers = (self.input_count, self.transfers.memory, self.transfers.policy, *self.transfers.counts)
            digest.update(repr(numbers).encode())
        for array in arrays:
            digest.update(len(array.data.data).to_bytes(8, "little") + array.data.data)
        return digest.hexdigest()

    def verify_(self) -> None:
        _verify_shapes(self)
        _verify_sizes(self)
        network = self.weighted_graph
        _verify_graph(network)
        if self.order is not None:
            _checked(partial(check_order, network.graph, indices_of(self.order)))
        if self.transfers is not None and (self.order is None or self.transfers.order != self.digest()):
            raise VerifyException("transfers were counted for another order")


def _verify_shapes(op: NetworkOp) -> None:
    """Check that all operands and results have the same leading axes and known numbers of features."""
    if not op.inputs or not op.outputs:
        raise VerifyException(f"expected one or more operands and results, got {len(op.inputs)} and {len(op.outputs)}")
    leading = shape_of(op.inputs[0])[:-1]
    for word, values in (("operand", op.inputs), ("result", op.outputs)):
        for index, value in enumerate(values):
            shape = shape_of(value)
            if not shape or shape[-1] == DYNAMIC:
                raise VerifyException(f"expected {word} {index} with a known last axis, got {shape_text(shape)}")
            if shape[:-1] != leading:
                expected = shape_text((*leading, shape[-1]))
                raise VerifyException(f"expected {word} {index} {expected}, got {shape_text(shape)}")


def _verify_sizes(op: NetworkOp) -> None:
    """Check that there are as many entries as the types and the other arrays say."""
    connections, neurons = op.sources.get_shape()[:1], op.biases.get_shape()[:1]
    features = sum(shape_of(value)[-1] for value in op.outputs)
    for name, array, expected in (
        ("sources", op.sources, connections),
        ("targets", op.targets, connections),
        ("weights", op.weights, connections),
        ("biases", op.biases, neurons),
        ("activation numbers", op.activation_of, neurons),
        ("output neurons", op.output_neurons, (features,)),
        ("connections in the order", op.order, connections),
    ):
        if array is None:
            continue
        size = 4 if array in (op.weights, op.biases) else 8
        if array.get_shape() != expected or len(array.data.data) != prod(expected) * size:
            kind = "32-bit floats" if size == 4 else "64-bit integers"
            raise VerifyException(f"expected {name} {shape_text(expected)} {kind}, got {array.type}")


def _verify_graph(network: WeightedGraph) -> None:
    """Check ids, directions, duplicates and activations."""
    graph = network.graph
    _checked(graph.check)
    wrong = np.flatnonzero(graph.sources >= graph.targets)
    if len(wrong):
        source, target = int(graph.sources[wrong[0]]), int(graph.targets[wrong[0]])
        raise VerifyException(
            f"expected a target larger than the source of connection {wrong[0]}, got {source} -> {target}"
        )
    known = len(network.activations)
    if np.any((network.activation_of < -1) | (network.activation_of >= known)):
        raise VerifyException(f"an activation number is outside -1 to {known - 1}")


def _checked(check: Callable[[], None]) -> None:
    """Run a check of the graph whose `ValueError` is the fault of the IR."""
    try:
        check()
    except ValueError as error:
        raise VerifyException(str(error)) from error
