"""The layers of a model whose weights can be pruned: products with one constant matrix that nothing else reads.

A convolution is such a product for each place of its window. A recurrence has two of them, of its inputs and of its
states, each for all gates and directions at once.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, numpy_helper

from ..dialect.ops.recurrences import CELLS
from .windows import Window

Array = NDArray[np.float32]

Reading = tuple[str, Window | None]
"""A value, and the window through which a layer reads it: layers of the same have the same inputs."""

SMALL: Final = 4096
"""Weights of a layer that takes about as long as its call: nothing is gained by pruning it."""


@dataclass(frozen=True)
class PrunableLayer:
    """A MatMul or Gemm with a constant weight [inputs, outputs], or a Conv, whose inputs are channels and taps.

    Or one of the two weights of an LSTM, GRU or RNN, [directions, gates, inputs], as [inputs, directions * gates].
    """

    name: str
    node: int
    """Position among the nodes of the graph."""
    x: str
    """Name of the value that it multiplies."""
    weight: str
    """Name of the initializer."""
    is_turned: bool
    """Whether the initializer is [outputs, inputs]."""
    inputs: int
    outputs: int
    window: Window | None = None
    """The window of a convolution."""
    shape: tuple[int, ...] | None = None
    """The shape of the initializer of a recurrence."""
    is_of_states: bool = False
    """Whether it multiplies the states of a recurrence, which no run shows; `x` is what the recurrence reads."""
    takes_codes: bool = False
    """Whether MatMulNBits computes the same with quantized weights."""

    @property
    def size(self) -> int:
        """The number of weights, zeros included."""
        return self.inputs * self.outputs

    @property
    def reading(self) -> Reading:
        return (self.weight if self.is_of_states else self.x), self.window

    def matrix(self, stored: NDArray[np.float32]) -> Array:
        """Return a weight [inputs, outputs] from the initializer."""
        return np.ascontiguousarray(stored.reshape(self.outputs, -1).T if self.is_turned else stored)

    def stored(self, matrix: Array) -> Array:
        """Return the initializer of a weight [inputs, outputs]."""
        turned = np.ascontiguousarray(matrix.T if self.is_turned else matrix)
        if self.shape is not None:
            return turned.reshape(self.shape)
        return turned if self.window is None else turned.reshape(self.outputs, -1, *self.window.kernel)

    def rows(self, x: NDArray[np.float32], samples: int) -> Iterator[Array]:
        """Yield the rows that the layer multiplies, [rows, inputs], in batches; x may have any leading axes.

        Of many samples, x is some of them, a convolution looks at a few windows each.
        """
        if self.window is None:
            yield x.reshape(-1, self.inputs)
        else:
            yield from self.window.rows(x, samples)


def prunable_layers(graph: onnx.GraphProto, keep: Sequence[str] = ()) -> tuple[PrunableLayer, ...]:
    """Return the layers to prune, in the order of the graph, without those that `keep` names.

    Raises:
        ValueError: a name is that of no such layer.
    """
    weights = {one.name: one for one in graph.initializer if one.data_type == onnx.TensorProto.FLOAT}
    overridable = {value.name for value in graph.input}
    constants = {one.name for one in graph.initializer} - overridable
    reads = Counter(name for node in graph.node for name in names_read(node))
    reads.update(output.name for output in graph.output)
    # a product of two weights has no samples, and is one number for each run
    nodes = [(index, node) for index, node in enumerate(graph.node) if node.input and node.input[0] not in constants]
    found = [layer for index, node in nodes for layer in _layers(index, node, weights)]
    layers = {layer.name: layer for layer in found if reads[layer.weight] == 1 and layer.weight not in overridable}
    # a recurrence is named as a whole, or one of its weights
    names = {layer.name: {layer.name, graph.node[layer.node].name} for layer in layers.values()}
    for name in keep:
        if not any(name in own for own in names.values()):
            raise ValueError(f"layer to keep: expected one of {', '.join(layers) or 'none'}, got {name!r}")
    return tuple(layer for name, layer in layers.items() if names[name].isdisjoint(keep) and layer.size > SMALL)


def _layers(index: int, node: NodeProto, weights: Mapping[str, onnx.TensorProto]) -> Iterator[PrunableLayer]:
    """Yield the layers of a node."""
    if node.domain not in ("", "ai.onnx"):
        return
    if node.op_type in RECURRENCES:
        yield from _recurrent_layers(index, node, weights)
    elif node.op_type in ("MatMul", "Gemm", "Conv") and node.input[1] in weights:
        layer = _layer(index, node, weights)
        if layer is not None:
            yield layer


RECURRENCES: Final = tuple(facts.operator for facts in CELLS.values())

OF_INPUTS, OF_STATES = "W", "R"
"""Names of the weights of a recurrence, as ONNX has them."""


def _recurrent_layers(index: int, node: NodeProto, weights: Mapping[str, onnx.TensorProto]) -> Iterator[PrunableLayer]:
    for place, word in enumerate((OF_INPUTS, OF_STATES), 1):
        weight = node.input[place]
        if weight in weights and len(weights[weight].dims) == len("dgi"):
            shape = tuple(weights[weight].dims)
            size, name = (shape[2], shape[0] * shape[1]), f"{node.name or next(filter(None, node.output))}.{word}"
            of_states = word == OF_STATES
            yield PrunableLayer(name, index, node.input[0], weight, True, *size, shape=shape, is_of_states=of_states)


def _layer(index: int, node: NodeProto, weights: Mapping[str, onnx.TensorProto]) -> PrunableLayer | None:
    shape = weights[node.input[1]].dims
    flags = {attribute.name: attribute.i for attribute in node.attribute}
    is_conv = node.op_type == "Conv"
    if flags.get("transA") or flags.get("group", 1) != 1 or (len(shape) < 3 if is_conv else len(shape) != 2):
        return None
    is_turned = is_conv or bool(flags.get("transB"))
    inputs, outputs = (int(np.prod(shape[1:])), shape[0]) if is_turned else (shape[0], shape[1])
    window = Window.of(node, shape[2:]) if is_conv else None
    name = node.name or node.output[0]
    takes_codes = node.op_type == "MatMul"
    return PrunableLayer(
        name, index, node.input[0], node.input[1], is_turned, inputs, outputs, window, takes_codes=takes_codes
    )


def weights_of(graph: onnx.GraphProto, layers: Sequence[PrunableLayer], folder: str) -> dict[str, Array]:
    """Return the weights [inputs, outputs] of layers by name; `folder` has the files that hold them."""
    stored = {one.name: one for one in graph.initializer}
    return {
        layer.name: layer.matrix(numpy_helper.to_array(stored[layer.weight], folder).astype(np.float32, copy=False))
        for layer in layers
    }


def names_read(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node reads of the graph around it."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            own = {name for inner in body.node for name in inner.output} | _given(body)
            yield from (name for inner in body.node for name in names_read(inner) if name not in own)
            yield from (output.name for output in body.output if output.name not in own)


def _given(graph: GraphProto) -> set[str]:
    return {value.name for value in (*graph.input, *graph.initializer)}
