"""Models that are one chain of layers and activations, in numpy: forward, and backward to their weights and biases."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

Array = NDArray[np.float32]


class Activation(NamedTuple):
    """A function of each value, and its derivative as a function of its result."""

    of: Callable[[Array], Array]
    slope: Callable[[Array], Array]


def _relu(x: Array) -> Array:
    return np.maximum(x, np.float32(0))


def _step_of(y: Array) -> Array:
    return (y > 0).astype(np.float32)


def _tanh_slope(y: Array) -> Array:
    return np.float32(1) - y * y


def _sigmoid(x: Array) -> Array:
    return np.reciprocal(1 + np.exp(-np.clip(x, -60, 60)), dtype=np.float32)


def _sigmoid_slope(y: Array) -> Array:
    return np.subtract(y, y * y, dtype=np.float32)


def _same(x: Array) -> Array:
    return x


ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "Relu": Activation(_relu, _step_of),
    "Tanh": Activation(np.tanh, _tanh_slope),
    "Sigmoid": Activation(_sigmoid, _sigmoid_slope),
    "Identity": Activation(_same, np.ones_like),
}


@dataclass(frozen=True)
class ChainLayer:
    """A linear layer, with the names of the initializers of its weight and bias, and what follows it."""

    weight: str
    is_turned: bool
    bias: str | None
    activation: str


@dataclass(frozen=True)
class Chain:
    """Layers one behind the other, x [rows, inputs] -> y [rows, outputs]."""

    x: str
    layers: tuple[ChainLayer, ...]


def chain_of(graph: onnx.GraphProto) -> Chain | None:
    """Return a graph as a chain, None where it is something else."""
    constants = {one.name: one for one in graph.initializer}
    inputs = [value.name for value in graph.input if value.name not in constants]
    if len(inputs) != 1 or len(graph.output) != 1 or Counter(name for one in graph.node for name in one.output)[""]:
        return None
    current, layers = inputs[0], list[ChainLayer]()
    for node in graph.node:
        dynamic = [name for name in node.input if name not in constants]
        if dynamic != [current] or len(node.output) != 1 or node.domain:
            return None
        step = _step(node, constants, layers)
        if step is None:
            return None
        current, layers = node.output[0], step
    names = [name for layer in layers for name in (layer.weight, layer.bias) if name]
    is_whole = layers and current == graph.output[0].name and len(names) == len(set(names))
    return Chain(inputs[0], tuple(layers)) if is_whole else None


def _step(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto], layers: list[ChainLayer]
) -> list[ChainLayer] | None:
    """Return the layers with a further node, None for one that does not belong into a chain."""
    flags = {attribute.name: attribute.i or attribute.f for attribute in node.attribute}
    last = layers[-1] if layers else None
    plain = all(flags.get(name, 1) == 1 for name in ("alpha", "beta")) and not flags.get("transA")
    is_layer = node.op_type in ("MatMul", "Gemm") and node.input[1] in constants and plain
    if is_layer and len(constants[node.input[1]].dims) == 2:
        bias = node.input[2] if len(node.input) > 2 else None
        if bias is None or len(constants[bias].dims) == 1:
            return [*layers, ChainLayer(node.input[1], bool(flags.get("transB")), bias, "Identity")]
    if last is None or last.activation != "Identity":
        return None
    if node.op_type in ACTIVATIONS:
        return [*layers[:-1], ChainLayer(last.weight, last.is_turned, last.bias, node.op_type)]
    if node.op_type == "Add" and last.bias is None:
        bias = next((name for name in node.input if name in constants), "")
        if bias and len(constants[bias].dims) == 1:
            return [*layers[:-1], ChainLayer(last.weight, last.is_turned, bias, last.activation)]
    return None


@dataclass
class ChainWeights:
    """Weights [inputs, outputs] and biases [outputs] of a chain; zeros where it has no bias."""

    chain: Chain
    weights: list[Array]
    biases: list[Array]

    @staticmethod
    def of(chain: Chain, graph: onnx.GraphProto, others: Mapping[str, Array]) -> "ChainWeights":
        """Return copies of those of a graph, but for initializers that are among `others`."""
        stored = {one.name: numpy_helper.to_array(one).astype(np.float32) for one in graph.initializer}
        stored |= {name: other.copy() for name, other in others.items()}
        weights = [
            np.ascontiguousarray(stored[one.weight].T) if one.is_turned else stored[one.weight] for one in chain.layers
        ]
        biases = [
            stored[one.bias] if one.bias else np.zeros(weight.shape[1], np.float32)
            for one, weight in zip(chain.layers, weights, strict=True)
        ]
        return ChainWeights(chain, weights, biases)

    @property
    def stored(self) -> dict[str, Array]:
        """The initializers by name."""
        found: dict[str, Array] = {}
        for layer, weight, bias in zip(self.chain.layers, self.weights, self.biases, strict=True):
            found[layer.weight] = np.ascontiguousarray(weight.T if layer.is_turned else weight)
            if layer.bias:
                found[layer.bias] = bias
        return found

    def forward(self, x: Array) -> list[Array]:
        """Return x and the outputs of each layer, behind its activation."""
        values = [x]
        for layer, weight, bias in zip(self.chain.layers, self.weights, self.biases, strict=True):
            values.append(ACTIVATIONS[layer.activation].of(values[-1] @ weight + bias))
        return values

    def gradients(self, values: Sequence[Array], moved: Array) -> tuple[list[Array], list[Array]]:
        """Return the gradients of weights and biases, given that of the outputs [rows, outputs]."""
        weights, biases = list[Array](), list[Array]()
        for index in range(len(self.chain.layers) - 1, -1, -1):
            slope = ACTIVATIONS[self.chain.layers[index].activation].slope
            moved = moved * slope(values[index + 1])
            weights.append(values[index].T @ moved)
            biases.append(moved.sum(axis=0))
            if index:
                moved = moved @ self.weights[index].T
        return weights[::-1], biases[::-1]
