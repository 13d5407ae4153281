"""The layers of a model whose weights can be pruned: products with one constant matrix that nothing else reads."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, numpy_helper

from redpebble.pruning.graph_names import names_read

Array = NDArray[np.float32]

SMALL: Final = 4096
"""Weights of a layer that takes about as long as its call: nothing is gained by pruning it."""


@dataclass(frozen=True)
class PrunableLayer:
    """A MatMul or Gemm with a constant weight [inputs, outputs]."""

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

    @property
    def size(self) -> int:
        """The number of weights, zeros included."""
        return self.inputs * self.outputs

    def matrix(self, stored: NDArray[np.float32]) -> Array:
        """Return a weight [inputs, outputs] from the initializer."""
        return np.ascontiguousarray(stored.T if self.is_turned else stored)

    def stored(self, matrix: Array) -> Array:
        """Return the initializer of a weight [inputs, outputs]."""
        return np.ascontiguousarray(matrix.T if self.is_turned else matrix)

    def rows(self, x: NDArray[np.float32]) -> Array:
        """Return what the layer multiplies, [rows, inputs], of a value with any number of leading axes."""
        return x.reshape(-1, self.inputs)


def prunable_layers(graph: onnx.GraphProto, keep: Sequence[str] = ()) -> tuple[PrunableLayer, ...]:
    """Return the layers to prune, in the order of the graph, without those that `keep` names.

    Raises:
        ValueError: a name is that of no such layer.
    """
    weights = {one.name: one for one in graph.initializer if one.data_type == onnx.TensorProto.FLOAT}
    overridable = {value.name for value in graph.input}
    reads = Counter(name for node in graph.node for name in names_read(node))
    reads.update(output.name for output in graph.output)
    found = [_layer(index, node, weights) for index, node in enumerate(graph.node)]
    layers = {
        layer.name: layer
        for layer in found
        if layer is not None and reads[layer.weight] == 1 and layer.weight not in overridable
    }
    for name in keep:
        if name not in layers:
            raise ValueError(f"no layer {name!r} to keep, accepted are {', '.join(layers) or 'none'}")
    return tuple(layer for name, layer in layers.items() if name not in keep and layer.size > SMALL)


def _layer(index: int, node: NodeProto, weights: Mapping[str, onnx.TensorProto]) -> PrunableLayer | None:
    if node.domain not in ("", "ai.onnx") or node.op_type not in ("MatMul", "Gemm") or node.input[1] not in weights:
        return None
    shape = weights[node.input[1]].dims
    flags = {attribute.name: attribute.i for attribute in node.attribute}
    if len(shape) != 2 or flags.get("transA"):
        return None
    is_turned = bool(flags.get("transB"))
    inputs, outputs = (shape[1], shape[0]) if is_turned else (shape[0], shape[1])
    return PrunableLayer(node.name or node.output[0], index, node.input[0], node.input[1], is_turned, inputs, outputs)


def weights_of(graph: onnx.GraphProto, layers: Sequence[PrunableLayer]) -> dict[str, Array]:
    """Return the weights [inputs, outputs] of layers by name."""
    stored = {one.name: one for one in graph.initializer}
    return {
        layer.name: layer.matrix(numpy_helper.to_array(stored[layer.weight]).astype(np.float32, copy=False))
        for layer in layers
    }
