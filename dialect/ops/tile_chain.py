"""Tiles that are nothing but a chain of layers, and such a chain as a graph of neurons and connections."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Block, Operation

from redpebble.dialect.attributes.kernels import ActivationAttr
from redpebble.dialect.ops.constants import SparseConstantOp, constant_array
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.network import NetworkArrays
from redpebble.dialect.tensors import shape_of
from redpebble.sparse.csr import CscMatrix

Floats = NDArray[np.float32]


def chain_of(body: Block) -> list[LinearOp]:
    """Return the layers of a tile's body that is nothing but a chain of them from its argument to its result.

    Nothing is returned for any other body.
    """
    *ops, end = body.ops
    layers = [op for op in ops if isinstance(op, LinearOp)]
    if len(layers) != len(ops) or len(body.args) != 1 or len(end.operands) != 1 or not layers:
        return []
    values = [body.args[0], *(layer.result for layer in layers)]
    readers: list[Operation] = [*layers, end]
    chained = all(
        [use.operation for use in value.uses] == [reader] and reader.operands[0] is value
        for value, reader in zip(values, readers, strict=True)
    )
    return layers if chained else []


def chain_arrays(layers: Sequence[LinearOp]) -> NetworkArrays:
    """Return a chain of layers as one graph: the inputs are the first neurons, then the outputs of each layer.

    Raises:
        ValueError: a weight is not stored sparse, or a bias is no constant.
    """
    activations: dict[ActivationAttr, int] = {}
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats, NDArray[np.int64]]] = []
    start = 0
    for layer in layers:
        weight, (inputs, outputs) = _weight(layer), shape_of(layer.weight)
        targets = np.repeat(np.arange(outputs), np.diff(weight.pointers)) + start + inputs
        bias = np.zeros(outputs, dtype=np.float32) if layer.bias is None else constant_array(layer.bias)
        if bias is None:
            raise ValueError("a bias is no constant")
        number = -1 if layer.activation is None else activations.setdefault(layer.activation, len(activations))
        parts.append((weight.rows + start, targets, weight.values, bias, np.full(outputs, number, dtype=np.int64)))
        start += inputs
    sources, targets, weights, biases, activation_of = zip(*parts, strict=True)
    return NetworkArrays(
        np.concatenate(sources),
        np.concatenate(targets),
        np.concatenate(weights),
        np.concatenate(biases),
        tuple(activations),
        np.concatenate(activation_of),
        np.arange(start, start + shape_of(layers[-1].weight)[1]),
    )


def _weight(layer: LinearOp) -> CscMatrix:
    constant = layer.weight.owner
    if isinstance(constant, SparseConstantOp):
        return constant.weight
    raise ValueError("a weight is not stored sparse")
