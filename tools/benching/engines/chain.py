"""A model as a chain of linear layers: what libraries that multiply one matrix at a time can execute."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from ....dialect.attributes.activations import ActivationAttr
from ....dialect.ops.constants import ConstantOp, SparseConstantOp, constant_array
from ....dialect.ops.elementwise import ActivateOp
from ....dialect.ops.layers import LinearOp
from ....dialect.provenance import node_name
from ....frontend.import_model import Source
from ....options import Options
from ....passes.analysis.weights import weight_of
from ....pipeline import build
from ....sparse.csr import CscMatrix
from ..errors import NotAChainError

Floats = NDArray[np.float32]

AS_THE_MODEL_SAYS = Options(
    skip_passes=(
        "pebble-drop-dead-units",
        "pebble-merge-equal-units",
        "pebble-sparsify",
        "pebble-discover-structure",
    )
)
"""Layers are found, and neither neurons nor connections change: a peer computes what the model says."""


@dataclass(frozen=True)
class ChainLayer:
    """y = activation(weight x + bias) on feature-major x: weight [outputs, inputs], bias [outputs, 1]."""

    weight: csr_array
    bias: Floats
    activation: ActivationAttr | None


def chain_of(model: Source) -> tuple[ChainLayer, ...]:
    """Return the layers of `model` in order.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
        NotAChainError: it has several inputs or outputs, or something between them that is no linear layer.
    """
    return chain_in(build(model, AS_THE_MODEL_SAYS, until="simplify"))


def chain_in(module: ModuleOp) -> tuple[ChainLayer, ...]:
    """Return the layers of the only function of `module`.

    Raises:
        NotAChainError: the function has several inputs, or an op that is no part of a chain of linear layers.
    """
    func = next(op for op in module.body.block.ops if isinstance(op, FuncOp))
    if len(func.args) != 1:
        raise NotAChainError(f"expected a chain of linear layers with 1 input, got {len(func.args)}")
    value: SSAValue = func.args[0]
    layers: list[ChainLayer] = []
    for op in func.body.block.ops:
        match op:
            case ConstantOp() | SparseConstantOp():
                continue
            case LinearOp() if op.x is value and op.weight is not value:
                layers.append(_layer(op))
            case ActivateOp() if op.x is value and layers and layers[-1].activation is None:
                layers[-1] = ChainLayer(layers[-1].weight, layers[-1].bias, op.activation)
            case ReturnOp() if list(op.operands) == [value]:
                break
            case _:
                raise NotAChainError(f"{_described(op)} is no part of a chain of linear layers")
        value = op.results[0]
    return tuple(layers)


def _layer(op: LinearOp) -> ChainLayer:
    weight = weight_of(op.weight)
    if weight is None:
        raise NotAChainError(f"the weight of {_described(op)} is no constant")
    bias = constant_array(op.bias) if op.bias is not None else np.zeros(weight.shape[1], dtype=np.float32)
    if bias is None:
        raise NotAChainError(f"the bias of {_described(op)} is no constant")
    return ChainLayer(csr_of(weight), bias.reshape(-1, 1), op.activation)


def csr_of(weight: Floats | CscMatrix) -> csr_array:
    """Return a weight [inputs, outputs] as the rows of its transpose, without zeros."""
    columns = weight if isinstance(weight, CscMatrix) else CscMatrix.from_dense(weight)
    # compressed columns of [inputs, outputs] are the compressed rows of [outputs, inputs]
    return csr_array((columns.values, columns.rows, columns.pointers), shape=(columns.shape[1], columns.shape[0]))


def _described(op: Operation) -> str:
    return f"node {node_name(op)!r} ({op.name})" if node_name(op) else op.name
