"""Tiles that are nothing but a chain of layers, and such a chain as a graph of neurons and connections."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Block, Operation, SSAValue

from ...sparse.csr import CscMatrix
from ...sparse.neuron_graph import chain_graph
from ..attributes.weighted_graph import WeightedGraph
from ..tensors import shape_of
from .constants import SparseConstantOp, constant_array
from .layers import LinearOp


def chain_of(body: Block) -> list[LinearOp]:
    """Return the layers of a tile's body that is nothing but a chain of them from its argument to its result.

    Nothing is returned for any other body, nor for layers on codes.
    """
    *ops, end = body.ops
    if len(body.args) != 1 or len(end.operands) != 1:
        return []
    layers: list[LinearOp] = []
    reader = only_reader(body.args[0])
    while isinstance(reader, LinearOp) and reader.times is None:
        layers.append(reader)
        reader = only_reader(reader.result)
    return layers if reader is end and len(layers) == len(ops) else []


def only_reader(value: SSAValue) -> Operation | None:
    """Return the op that alone reads a value, as its first operand."""
    uses = list(value.uses)
    return uses[0].operation if len(uses) == 1 and uses[0].index == 0 else None


def weighted_graph_of(layers: Sequence[LinearOp]) -> WeightedGraph:
    """Return a chain of layers as one graph: the inputs are the first neurons, then the outputs of each layer.

    Raises:
        ValueError: a weight is not stored sparse, or a bias is no constant.
    """
    weights, biases = [_weight(layer) for layer in layers], [_bias(layer) for layer in layers]
    activations = tuple(dict.fromkeys(layer.activation for layer in layers if layer.activation is not None))
    numbers = [-1 if layer.activation is None else activations.index(layer.activation) for layer in layers]
    return WeightedGraph(
        chain_graph([weight.pattern for weight in weights]),
        np.concatenate([weight.values for weight in weights]),
        np.concatenate(biases),
        activations,
        np.repeat(numbers, [len(bias) for bias in biases]),
    )


def _weight(layer: LinearOp) -> CscMatrix:
    constant = layer.weight.owner
    if isinstance(constant, SparseConstantOp):
        return constant.weight
    raise ValueError("a weight is not stored sparse")


def _bias(layer: LinearOp) -> NDArray[np.float32]:
    bias = np.zeros(shape_of(layer.weight)[1], dtype=np.float32) if layer.bias is None else constant_array(layer.bias)
    if bias is None:
        raise ValueError("a bias is no constant")
    return bias
