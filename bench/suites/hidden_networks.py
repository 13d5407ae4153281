"""Networks that are wider than the cache and whose structure may be hidden: recipes of their connections, seeded.

Every layer has as many neurons as the one before; neuron n of a layer reads `reads(layer)[n]`, [width, connections].
With `shuffled`, the neurons of each layer, inputs and outputs included, stand in a random order.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper
from scipy.sparse import csr_array

from ...dialect.attributes.activations import ActivationAttr
from ...tools.benching.engines.chain import ChainLayer

Indices = NDArray[np.int64]
Reads = Callable[[int, int, np.random.Generator], Indices]
"""A function of (width, number of the layer, random numbers) that returns the inputs of a layer's neurons."""


def band(reach: int, count: int) -> Reads:
    """Return the layers in which a neuron reads `count` of the `reach` around its place, on a ring."""

    def reads(width: int, _: int, rng: np.random.Generator) -> Indices:
        offsets = np.argsort(rng.random((width, reach)), axis=1)[:, :count] - reach // 2
        return (np.arange(width)[:, None] + offsets) % width

    return reads


def blocks(size: int, count: int) -> Reads:
    """Return the layers in which a neuron reads `count` of the `size` neurons of its block."""

    def reads(width: int, _: int, rng: np.random.Generator) -> Indices:
        chosen = np.argsort(rng.random((width, size)), axis=1)[:, :count]
        return np.arange(width)[:, None] // size * size + chosen

    return reads


def grid(width: int, _layer: int, _: np.random.Generator) -> Indices:
    """Return the inputs of neurons on a torus: themselves and their eight neighbours."""
    side = round(width**0.5)
    row, column = np.divmod(np.arange(width), side)
    around = [(step, other) for step in (-1, 0, 1) for other in (-1, 0, 1)]
    return np.stack([(row + step) % side * side + (column + other) % side for step, other in around], axis=1)


def butterfly(width: int, layer: int, _: np.random.Generator) -> Indices:
    """Return the inputs of neurons of a radix-2 butterfly: themselves, and a neuron at a distance that doubles."""
    own = np.arange(width)
    return np.stack([own, own ^ (1 << layer % (width.bit_length() - 1))], axis=1)


@dataclass(frozen=True)
class HiddenNetwork:
    """A chain of layers with Relu: its name, its structure, and whether neurons are shuffled."""

    name: str
    reads: Reads
    width: int = 65536
    depth: int = 12
    shuffled: bool = True

    def layers(self, seed: int = 0) -> list[ChainLayer]:
        """Return the layers with random weights, [outputs, inputs]."""
        rng = np.random.default_rng(seed)
        shuffle = rng.permutation if self.shuffled else np.arange
        orders = [shuffle(self.width) for _ in range(self.depth + 1)]
        return [self._layer(layer, orders[layer], orders[layer + 1], rng) for layer in range(self.depth)]

    def _layer(self, number: int, before: Indices, after: Indices, rng: np.random.Generator) -> ChainLayer:
        reads = self.reads(self.width, number, rng)
        count = reads.shape[1]
        inputs = np.empty_like(reads)
        inputs[after] = np.sort(before[reads], axis=1)
        values = rng.uniform(-1, 1, reads.size).astype(np.float32) * np.float32((2 / count) ** 0.5)
        starts = np.arange(0, reads.size + 1, count, dtype=np.int64)
        weight = csr_array((values, inputs.ravel().astype(np.int32), starts), shape=(self.width, self.width))
        bias = rng.uniform(-0.1, 0.1, (self.width, 1)).astype(np.float32)
        return ChainLayer(weight, bias, ActivationAttr("relu"))


HIDDEN_NETWORKS: Final[Mapping[str, HiddenNetwork]] = MappingProxyType(
    {
        network.name: network
        for network in (
            HiddenNetwork("shuffled band 128, 16 a neuron", band(128, 16)),
            HiddenNetwork("shuffled blocks of 256, 16 a neuron", blocks(256, 16)),
            HiddenNetwork("shuffled blocks of 64, 16 a neuron", blocks(64, 16)),
            HiddenNetwork("shuffled band 32, 4 a neuron", band(32, 4)),
            HiddenNetwork("visible band 32, 4 a neuron", band(32, 4), shuffled=False),
            HiddenNetwork("shuffled grid 256x256, 9 a neuron", grid),
            HiddenNetwork("butterfly", butterfly, depth=16, shuffled=False),
        )
    }
)


def onnx_model(layers: list[ChainLayer]) -> onnx.ModelProto:
    """Return a chain of layers as a model x [batch, inputs] -> y [batch, outputs] with sparse initializers."""
    nodes: list[onnx.NodeProto] = []
    sparse: list[onnx.SparseTensorProto] = []
    biases: list[onnx.TensorProto] = []
    for number, layer in enumerate(layers):
        weight = layer.weight
        rows = np.repeat(np.arange(weight.shape[0]), np.diff(weight.indptr))
        positions = rows * weight.shape[1] + weight.indices
        values = _raw(f"w{number}", weight.data, TensorProto.FLOAT)
        indices = _raw(f"w{number}.positions", positions.astype(np.int64), TensorProto.INT64)
        sparse.append(helper.make_sparse_tensor(values, indices, list(weight.shape)))
        biases.append(_raw(f"b{number}", layer.bias.ravel(), TensorProto.FLOAT))
        names = [f"x{number}" if number else "x", f"w{number}", f"b{number}"]
        nodes.append(helper.make_node("Gemm", names, [f"z{number}"], f"/layers.{number}/Gemm", transB=1))
        result = "y" if number == len(layers) - 1 else f"x{number + 1}"
        nodes.append(helper.make_node("Relu", [f"z{number}"], [result], f"/layers.{number}/Relu"))
    ends = ((layers[0].weight.shape[1], "x"), (layers[-1].weight.shape[0], "y"))
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])] for size, name in ends)
    graph = helper.make_graph(nodes, "chain", inputs, outputs, biases, sparse_initializer=sparse)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _raw(name: str, values: NDArray[np.generic], kind: int) -> onnx.TensorProto:
    return helper.make_tensor(name, kind, values.shape, values.tobytes(), raw=True)
