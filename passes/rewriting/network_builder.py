"""Graph of neurons of some ops, under construction.

The features of a value are either neurons or sums, which become neurons once something needs their values: an
activation (which belongs to the neuron), a weight, more than one reader. So bias, activation and the addends of a
residual belong to the neuron of the linear layer before them wherever nothing else reads what lies between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.attributes.weighted_graph import WeightedGraph
from ...dialect.ops.constants import constant_array
from ...dialect.ops.elementwise import ActivateOp, BinaryOp, DivOp, MulOp, PreluOp, SubOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.movement import ConcatOp, ReshapeOp, SplitOp, TransposeOp
from ...dialect.tensors import shape_of
from ...sparse.csr import CscMatrix
from ...sparse.neuron_graph import NeuronGraph
from ..analysis.weights import weight_of

Ids = NDArray[np.int64]
Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sums:
    """Features of `shape`; feature f is biases[f] + the sum of weights[e] * neuron sources[e] over features[e] = f."""

    shape: tuple[int, ...]
    features: Ids
    sources: Ids
    weights: Doubles
    biases: Doubles

    @staticmethod
    def copies(neurons: Ids) -> Sums:
        """Return each neuron as a sum of one connection of weight 1."""
        count = neurons.size
        return Sums(neurons.shape, np.arange(count), neurons.reshape(-1), np.ones(count), np.zeros(count))

    def scaled(self, factors: Doubles) -> Sums:
        """Return feature f times factors[f]."""
        return Sums(
            self.shape, self.features, self.sources, self.weights * factors[self.features], self.biases * factors
        )

    def plus(self, other: Sums) -> Sums:
        """Return the sums of two values of the same shape."""
        return Sums(
            self.shape,
            np.concatenate((self.features, other.features)),
            np.concatenate((self.sources, other.sources)),
            np.concatenate((self.weights, other.weights)),
            self.biases + other.biases,
        )

    def selected(self, chosen: Ids) -> Sums:
        """Return the features `chosen`, each at most once, in the shape of `chosen`."""
        new_number = np.full(len(self.biases), -1, dtype=np.int64)
        new_number[chosen.reshape(-1)] = np.arange(chosen.size)
        stays = new_number[self.features] >= 0
        entries = new_number[self.features[stays]], self.sources[stays], self.weights[stays]
        return Sums(chosen.shape, *entries, self.biases[chosen.reshape(-1)])

    @staticmethod
    def nothing(biases: Doubles, shape: tuple[int, ...]) -> Sums:
        """Return features without connections."""
        empty = np.zeros(0, dtype=np.int64)
        return Sums(shape, empty, empty, np.zeros(0), biases)

    def followed_by(self, other: Sums) -> Sums:
        """Return the features of both, one after the other along a single axis."""
        count = len(self.biases)
        return Sums(
            (count + len(other.biases),),
            np.concatenate((self.features, count + other.features)),
            np.concatenate((self.sources, other.sources)),
            np.concatenate((self.weights, other.weights)),
            np.concatenate((self.biases, other.biases)),
        )


Features = Ids | Sums
"""Features of a value of the graph: the neurons that they are, in their shape, or sums that are none yet."""


@dataclass
class NetworkBuilder:
    """Neurons and connections so far; neurons are numbered as they come, so that connections run upwards."""

    leading_axes: dict[SSAValue, int]
    """Number of first axes that are rows, by value."""
    features: dict[SSAValue, Features] = field(default_factory=dict[SSAValue, Features])
    neuron_count: int = 0
    sources: list[Ids] = field(default_factory=list[Ids])
    targets: list[Ids] = field(default_factory=list[Ids])
    weights: list[Doubles] = field(default_factory=list[Doubles])
    biases: list[Doubles] = field(default_factory=list[Doubles])
    activations: list[ActivationAttr] = field(default_factory=list[ActivationAttr])
    activation_of: list[Ids] = field(default_factory=list[Ids])

    def add_input(self, value: SSAValue) -> None:
        """Make the features of a value inputs; all inputs come before the first op."""
        self.features[value] = self._new_neurons(self._shape(value))

    def add(self, op: Operation) -> None:
        """Add what an op sums, activates or renumbers.

        Raises:
            ValueError: results of the op are no neurons.
        """
        match op:
            case LinearOp():
                self._set(op.result, self._activated(self._linear(op), op.activation))
            case ActivateOp():
                self._set(op.result, self._activated(self._sums(op.x), op.activation))
            case PreluOp():
                slope = constant_array(op.right)
                assert slope is not None
                activation = ActivationAttr("leaky_relu", (float(slope.reshape(-1)[0]),))
                self._set(op.result, self._activated(self._sums(op.left), activation))
            case BinaryOp():
                self._set(op.result, self._binary(op))
            case ReshapeOp():
                self._select(op.x, op.result, self._numbers(op.x))
            case TransposeOp():
                leading = self.leading_axes[op.x]
                order = [axis - leading for axis in op.order[leading:]]
                self._select(op.x, op.result, self._numbers(op.x).transpose(order))
            case SplitOp():
                axis = op.axis.value.data - self.leading_axes[op.x]
                ends = np.cumsum([self._shape(part)[axis] for part in op.parts])
                for part, numbers in zip(op.parts, np.split(self._numbers(op.x), ends[:-1], axis), strict=True):
                    self._select(op.x, part, numbers)
            case ConcatOp():
                self._set(op.result, self._joined(op))
            case _:
                raise ValueError(f"{op.name} is no part of a graph of neurons")

    def neurons(self, value: SSAValue) -> Ids:
        """Return the neurons that the features of a value are, making some where they are sums."""
        features = self.features[value]
        if isinstance(features, Sums):
            features = self._neurons_of(features, None)
            self.features[value] = features
        return features

    def finish(self, results: Sequence[SSAValue]) -> WeightedGraph:
        """Return the graph whose outputs are the features of `results`, without the neurons they do not need.

        A feature that is an input, or in the results already, becomes a neuron of its own: one connection of weight 1.
        """
        input_count = self.neuron_count - sum(len(biases) for biases in self.biases)
        chosen: list[Ids] = []
        for value in results:
            neurons = self.neurons(value).reshape(-1)
            earlier = np.concatenate([np.zeros(0, dtype=np.int64), *chosen])
            _, firsts = np.unique(neurons, return_index=True)
            is_first = np.zeros(len(neurons), dtype=np.bool_)
            is_first[firsts] = True
            copied = ~is_first | (neurons < input_count) | np.isin(neurons, earlier)
            own = neurons.copy()
            own[copied] = self._new_targets(Sums.copies(neurons[copied]), None)
            chosen.append(own)
        ends = _ids(self.sources), _ids(self.targets)
        network = WeightedGraph(
            NeuronGraph(self.neuron_count, *ends, np.arange(input_count), np.concatenate(chosen)),
            _doubles(self.weights),
            _doubles(self.biases),
            tuple(self.activations),
            _ids(self.activation_of),
        )
        return without_dead_neurons(network)

    def _shape(self, value: SSAValue) -> tuple[int, ...]:
        """Return the known sizes of the features' axes."""
        return shape_of(value)[self.leading_axes[value] :]

    def _numbers(self, value: SSAValue) -> Ids:
        """Return the number of each feature of a value, in its shape."""
        shape = self._shape(value)
        return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)

    def _set(self, value: SSAValue, features: Features) -> None:
        """Keep the features of a result in its own shape; what is read more than once must be neurons."""
        shape = self._shape(value)
        if isinstance(features, Sums):
            self.features[value] = Sums(shape, features.features, features.sources, features.weights, features.biases)
            if value.uses.get_length() != 1:
                self.neurons(value)
        else:
            self.features[value] = features.reshape(shape)

    def _select(self, source: SSAValue, result: SSAValue, numbers: Ids) -> None:
        features = self.features[source]
        chosen = features.selected(numbers) if isinstance(features, Sums) else features.reshape(-1)[numbers]
        self._set(result, chosen)

    def _sums(self, value: SSAValue) -> Sums:
        features = self.features[value]
        return features if isinstance(features, Sums) else Sums.copies(features)

    def _activated(self, sums: Sums, activation: ActivationAttr | None) -> Features:
        return sums if activation is None else self._neurons_of(sums, activation)

    def _linear(self, op: LinearOp) -> Sums:
        weight = weight_of(op.weight)
        assert weight is not None
        matrix = weight if isinstance(weight, CscMatrix) else CscMatrix.from_dense(weight)
        bias = constant_array(op.bias) if op.bias is not None else None
        biases = np.zeros(matrix.shape[1]) if bias is None else bias.astype(np.float64)
        stays = matrix.values != 0
        sources = self.neurons(op.x).reshape(-1)[matrix.rows[stays]]
        return Sums((matrix.shape[1],), matrix.columns[stays], sources, matrix.values[stays].astype(np.float64), biases)

    def _binary(self, op: BinaryOp) -> Sums:
        shape = self._shape(op.result)
        if isinstance(op, MulOp | DivOp):
            value, constant = (op.left, op.right) if constant_array(op.left) is None else (op.right, op.left)
            factors = self._constant(constant, op.result)
            return self._broadcast(value, shape).scaled(1.0 / factors if isinstance(op, DivOp) else factors)
        left, right = (self._addend(value, op.result) for value in (op.left, op.right))
        return left.plus(right.scaled(np.full(len(right.biases), -1.0)) if isinstance(op, SubOp) else right)

    def _addend(self, value: SSAValue, result: SSAValue) -> Sums:
        shape = self._shape(result)
        if constant_array(value) is None:
            return self._broadcast(value, shape)
        return Sums.nothing(self._constant(value, result), shape)

    def _constant(self, value: SSAValue, result: SSAValue) -> Doubles:
        """Return a constant's number for each feature of `result`."""
        array = constant_array(value)
        assert array is not None
        shape = self._shape(result)
        trailing = array.reshape(array.shape[max(0, array.ndim - len(shape)) :])
        return np.broadcast_to(trailing, shape).astype(np.float64).reshape(-1)

    def _broadcast(self, value: SSAValue, shape: tuple[int, ...]) -> Sums:
        if self._shape(value) == shape:
            return self._sums(value)
        return Sums.copies(np.broadcast_to(self.neurons(value), shape))

    def _joined(self, op: ConcatOp) -> Features:
        """Return the features of a concat: sums where all parts are, else neurons."""
        axis = op.axis.value.data - self.leading_axes[op.result]
        if not all(isinstance(self.features[part], Sums) for part in op.parts):
            return np.concatenate([self.neurons(part) for part in op.parts], axis)
        firsts: list[Ids] = []
        joined = Sums.nothing(np.zeros(0), (0,))
        for part in op.parts:
            firsts.append(len(joined.biases) + self._numbers(part))
            joined = joined.followed_by(self._sums(part))
        return joined.selected(np.concatenate(firsts, axis))

    def _neurons_of(self, sums: Sums, activation: ActivationAttr | None) -> Ids:
        """Return neurons for sums; a sum that is one neuron as it is stays that neuron."""
        count = len(sums.biases)
        result = np.full(count, -1, dtype=np.int64)
        if activation is None:
            single = np.bincount(sums.features, minlength=count)[sums.features] == 1
            plain = single & (sums.weights == 1.0) & (sums.biases[sums.features] == 0.0)
            result[sums.features[plain]] = sums.sources[plain]
        new = np.flatnonzero(result < 0)
        result[new] = self._new_targets(sums.selected(new), activation)
        return result.reshape(sums.shape)

    def _new_neurons(self, shape: tuple[int, ...]) -> Ids:
        count = int(np.prod(shape))
        self.neuron_count += count
        return np.arange(self.neuron_count - count, self.neuron_count, dtype=np.int64).reshape(shape)

    def _new_targets(self, sums: Sums, activation: ActivationAttr | None) -> Ids:
        """Make every sum a neuron; connections between the same neurons become one."""
        keys = sums.features * max(1, self.neuron_count) + sums.sources
        unique, key_of = np.unique(keys, return_inverse=True)
        features, sources = np.divmod(unique, max(1, self.neuron_count))
        neurons = self._new_neurons((len(sums.biases),))
        self.sources.append(sources)
        self.targets.append(neurons[features])
        self.weights.append(np.bincount(key_of, weights=sums.weights, minlength=len(unique)).astype(np.float64))
        self.biases.append(sums.biases)
        if activation is not None and activation not in self.activations:
            self.activations.append(activation)
        number = -1 if activation is None else self.activations.index(activation)
        self.activation_of.append(np.full(len(neurons), number, dtype=np.int64))
        return neurons


def without_dead_neurons(network: WeightedGraph) -> WeightedGraph:
    """Return the graph without the neurons from which no connection leads to an output; inputs stay."""
    graph, input_count = network.graph, network.input_count
    needed = graph.is_output.copy()
    while True:
        before = int(needed.sum())
        needed[graph.sources[needed[graph.targets]]] = True
        if int(needed.sum()) == before:
            break
    needed[:input_count] = True
    number = np.cumsum(needed) - 1
    kept, inner = needed[graph.targets], needed[input_count:]
    ends = number[graph.sources[kept]], number[graph.targets[kept]]
    return WeightedGraph(
        NeuronGraph(int(needed.sum()), *ends, graph.inputs, number[graph.outputs]),
        network.weights[kept],
        network.biases[inner],
        network.activations,
        network.activation_of[inner],
    )


def _ids(parts: list[Ids]) -> Ids:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _doubles(parts: list[Doubles]) -> NDArray[np.float32]:
    return np.concatenate([np.zeros(0), *parts]).astype(np.float32)
