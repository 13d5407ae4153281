"""The network op: a whole graph of neurons and connections as one op, so that an order of its connections shows."""

from collections.abc import Sequence
from hashlib import blake2b
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
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

from redpebble.dialect.attributes.kernels import ActivationAttr
from redpebble.dialect.attributes.memory_steps import verify_steps
from redpebble.dialect.attributes.transfers import InstanceBoundAttr, TransferCountAttr
from redpebble.dialect.ops.axis_maps import MixedFeatures, RowWise
from redpebble.dialect.ops.dense_literals import Floats
from redpebble.dialect.tensors import (
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

Indices = NDArray[np.int64]


class NetworkArrays(NamedTuple):
    """A graph of N neurons, I of them inputs, and W connections.

    Inputs are the neurons 0 to I - 1; neuron I + k is `activations[activation_of[k]]`(biases[k] + the sum over its
    connections of weight times source), without an activation where `activation_of[k]` is -1. Every connection runs
    from a smaller to a larger neuron.
    """

    sources: Indices
    """[W]; a connection is known by its place here and in the next two."""
    targets: Indices
    weights: NDArray[np.float32]
    biases: NDArray[np.float32]
    """[N - I]."""
    activations: tuple[ActivationAttr, ...]
    activation_of: Indices
    """[N - I]."""
    outputs: Indices
    """Neurons that are no inputs, each once: the features of the results, one result after the other."""


@irdl_op_definition
class NetworkOp(IRDLOperation):
    """A graph of neurons and connections, row by row: inputs [..., K] each, results [..., N] each.

    `order` is the order in which its connections run, `transfers` what that order moves, `steps` the loads, sums and
    stores that a fast memory makes of it, see `redpebble.dialect.attributes.memory_steps`.

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
    steps = opt_prop_def(DenseIntOrFPElementsAttr[IntegerType])
    outputs = var_result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), MixedFeatures(), RowWise())
    custom_directives = (Floats,)
    assembly_format: ClassVar = (
        "$inputs `sources` qualified($sources) `targets` qualified($targets) `weights` custom<Floats>($weights) "
        "`biases` custom<Floats>($biases) `activations` $activations `of` qualified($activation_of) "
        "`outputs` qualified($output_neurons) (`bound` $bound^)? (`order` qualified($order)^)? "
        "(`transfers` $transfers^)? (`steps` qualified($steps)^)? "
        "attr-dict `:` functional-type($inputs, $outputs)"
    )

    def __init__(self, inputs: Sequence[SSAValue], arrays: NetworkArrays, features: Sequence[int]) -> None:
        """Make a network whose results have these numbers of features; their other axes are those of the inputs."""
        leading = shape_of(inputs[0])[:-1]
        super().__init__(
            operands=[inputs],
            properties={
                "sources": dense_indices(arrays.sources),
                "targets": dense_indices(arrays.targets),
                "weights": dense_floats(arrays.weights),
                "biases": dense_floats(arrays.biases),
                "activations": ArrayAttr(arrays.activations),
                "activation_of": dense_indices(arrays.activation_of),
                "output_neurons": dense_indices(arrays.outputs),
            },
            result_types=[[f32_tensor((*leading, size)) for size in features]],
        )

    @property
    def arrays(self) -> NetworkArrays:
        """The graph; the arrays are views."""
        return NetworkArrays(
            indices_of(self.sources),
            indices_of(self.targets),
            floats_of(self.weights),
            floats_of(self.biases),
            self.activations.data,
            indices_of(self.activation_of),
            indices_of(self.output_neurons),
        )

    @property
    def input_count(self) -> int:
        """Neurons that are inputs."""
        return sum(shape_of(operand)[-1] for operand in self.inputs)

    def set_order(self, order: Indices, memory: tuple[int, str], counts: Sequence[int]) -> None:
        """Write an order and what it transfers for (memory, policy); steps of another order are dropped."""
        self.order = dense_indices(order)
        self.transfers = TransferCountAttr.of(*memory, counts, "")
        self.transfers = TransferCountAttr.of(*memory, counts, self.digest())
        self.steps = None

    def digest(self) -> str:
        """Return what `transfers` must carry: a digest of the graph, of the order, and of the counts themselves."""
        arrays = (self.sources, self.targets, self.output_neurons, *([self.order] if self.order is not None else []))
        digest = blake2b(digest_size=8)
        if self.transfers is not None:
            numbers = (self.input_count, self.transfers.memory.data, self.transfers.policy.data, *self.transfers.counts)
            digest.update(repr(numbers).encode())
        for array in arrays:
            digest.update(len(array.data.data).to_bytes(8, "little") + array.data.data)
        return digest.hexdigest()

    def verify_(self) -> None:
        _verify_shapes(self)
        _verify_sizes(self)
        _verify_graph(self.input_count, self.arrays)
        if self.order is not None:
            verify_order(self.input_count, self.arrays, indices_of(self.order))
        if self.transfers is not None and (self.order is None or self.transfers.order.data != self.digest()):
            raise VerifyException("transfers were counted for another order")
        if self.steps is not None:
            if self.order is None or self.transfers is None:
                raise VerifyException("steps without an order and its transfers")
            verify_steps(
                (self.input_count, self.arrays), indices_of(self.order), self.transfers, indices_of(self.steps)
            )


def _verify_shapes(op: NetworkOp) -> None:
    """Check that all operands and results have the same leading axes and known numbers of features."""
    if not op.inputs or not op.outputs:
        raise VerifyException(f"{len(op.inputs)} operands and {len(op.outputs)} results, expected one or more of each")
    leading = shape_of(op.inputs[0])[:-1]
    for word, values in (("operand", op.inputs), ("result", op.outputs)):
        for index, value in enumerate(values):
            shape = shape_of(value)
            if not shape or shape[-1] == DYNAMIC:
                raise VerifyException(f"{word} {index} is {shape_text(shape)}, expected a known size of the last axis")
            if shape[:-1] != leading:
                expected = shape_text((*leading, shape[-1]))
                raise VerifyException(f"{word} {index} is {shape_text(shape)}, expected {expected}")


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
        ("steps", op.steps, (*op.steps.get_shape()[:1], 4) if op.steps is not None else ()),
    ):
        if array is None:
            continue
        size = 4 if array in (op.weights, op.biases) else 8
        if array.get_shape() != expected or len(array.data.data) != prod(expected) * size:
            kind = "32-bit floats" if size == 4 else "64-bit integers"
            raise VerifyException(f"{name}: {array.type}, expected {shape_text(expected)} {kind}")


def _verify_graph(input_count: int, arrays: NetworkArrays) -> None:
    """Check ids, directions and duplicates."""
    neuron_count = input_count + len(arrays.biases)
    for name, ids in (("source", arrays.sources), ("target", arrays.targets), ("output", arrays.outputs)):
        outside = ids[(ids < 0) | (ids >= neuron_count)]
        if len(outside):
            raise VerifyException(f"{name} {outside[0]}, expected a neuron from 0 to {neuron_count - 1}")
    wrong = np.flatnonzero((arrays.sources >= arrays.targets) | (arrays.targets < input_count))
    if len(wrong):
        source, target = int(arrays.sources[wrong[0]]), int(arrays.targets[wrong[0]])
        raise VerifyException(
            f"connection {wrong[0]} runs {source} -> {target}, expected a larger target that is no input"
        )
    keys = np.sort(arrays.sources * neuron_count + arrays.targets)
    twice = keys[:-1][np.diff(keys) == 0]
    if len(twice):
        source, target = divmod(int(twice[0]), neuron_count)
        raise VerifyException(f"two connections run {source} -> {target}")
    if len(np.unique(arrays.outputs)) < len(arrays.outputs) or np.any(arrays.outputs < input_count):
        raise VerifyException("an output is an input, or an output twice")
    known = len(arrays.activations)
    if np.any((arrays.activation_of < -1) | (arrays.activation_of >= known)):
        raise VerifyException(f"an activation number is outside -1 to {known - 1}")


def verify_order(input_count: int, arrays: NetworkArrays, order: Indices) -> None:
    """Check that an order names every connection once, and each after all that its source sums.

    Raises:
        VerifyException: it does not; names a connection.
    """
    count = len(arrays.sources)
    if order.shape != (count,) or not np.array_equal(np.sort(order), np.arange(count)):
        raise VerifyException(f"order is no permutation of the {count} connections")
    places = np.empty(count, dtype=np.int64)
    places[order] = np.arange(count)
    last = np.full(input_count + len(arrays.biases), -1, dtype=np.int64)
    np.maximum.at(last, arrays.targets, places)
    early = np.flatnonzero(places < last[arrays.sources])
    if len(early):
        raise VerifyException(f"connection {early[0]} runs before neuron {arrays.sources[early[0]]} is final")
