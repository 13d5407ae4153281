"""Tiles that are nothing but a chain of layers, and such a chain as a graph of neurons and connections."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Block, Operation, SSAValue

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
    if len(body.args) != 1 or len(end.operands) != 1:
        return []
    layers: list[LinearOp] = []
    reader = only_reader(body.args[0])
    while isinstance(reader, LinearOp):
        layers.append(reader)
        reader = only_reader(reader.result)
    return layers if reader is end and len(layers) == len(ops) else []


def only_reader(value: SSAValue) -> Operation | None:
    """Return the op that alone reads a value, as its first operand."""
    uses = list(value.uses)
    return uses[0].operation if len(uses) == 1 and uses[0].index == 0 else None


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
