"""Weights of layers in a row multiplied, where one layer takes less time than two: x (W V) instead of (x W) V."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp, constant_array
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.provenance import origin_of, set_provenance, value_name
from redpebble.dialect.tensors import DYNAMIC, shape_of
from redpebble.kernels.machine import Machine
from redpebble.passes.analysis.layer_costs import linear_us
from redpebble.passes.analysis.weights import Weight, weight_of
from redpebble.sparse.csr import CscMatrix

WORTH_IT: Final = 0.9
"""Share of the time of two layers below which one takes their place: it rounds otherwise than they do."""

MOST_PRODUCTS: Final = 1 << 32
"""Products of numbers that a product of weights may take: some seconds."""

ROWS: Final = 64
"""Rows that layers are priced for where their number is not known."""

SPARSE: Final = 0.6
"""Density below which a product is stored as its entries."""


def multiply_weights(module: ModuleOp, machine: Machine) -> None:
    """Let one layer take the place of two wherever that takes less time; a first one with other readers stays."""
    for layer in [op for op in module.walk() if isinstance(op, LinearOp)]:
        while (merged := _merged(layer, machine)) is not None:
            layer = merged


def _merged(layer: LinearOp, machine: Machine) -> LinearOp | None:
    """Return the layer that takes the place of a layer and the one before it; None where two are better."""
    first = layer.x.owner
    if not isinstance(first, LinearOp) or first.activation is not None or first.parent is not layer.parent:
        return None
    if layer.is_rounded or first.is_rounded:
        return None
    before, behind = weight_of(first.weight), weight_of(layer.weight)
    if before is None or behind is None or not (_is_known(first.bias) and _is_known(layer.bias)):
        return None
    (inputs, inner), outputs = before.shape, behind.shape[1]
    # through a bottleneck goes less than through the product
    if inputs * inner * outputs > MOST_PRODUCTS or 2 * inner < min(inputs, outputs):
        return None
    if not (np.isfinite(_entries(before)).all() and np.isfinite(_entries(behind)).all()):
        return None
    product = _product(before, behind)
    leading = shape_of(layer.x)[:-1]
    rows = ROWS if DYNAMIC in leading else int(np.prod(leading, dtype=np.int64))
    one, two = (linear_us(weight, rows, machine) for weight in (product.result, layer.weight))
    if first.result.has_one_use():
        two += linear_us(first.weight, rows, machine)
    return _replace(layer, first, product) if one < WORTH_IT * two else None


def _is_known(bias: SSAValue | None) -> bool:
    return bias is None or constant_array(bias) is not None


def _product(first: Weight, second: Weight) -> ConstantOp | SparseConstantOp:
    """Return the product of two weights, computed in float64."""
    product = _transposed(second) @ _transposed(first)
    product.sort_indices()
    inputs, outputs = first.shape[0], second.shape[1]
    if product.nnz >= SPARSE * inputs * outputs:
        return ConstantOp(np.ascontiguousarray(product.toarray().T.astype(np.float32)))
    entries = product.indices.astype(np.int64), product.data.astype(np.float32)
    return SparseConstantOp(CscMatrix((inputs, outputs), product.indptr.astype(np.int64), *entries))


def _entries(weight: Weight) -> NDArray[np.float32]:
    return weight.values if isinstance(weight, CscMatrix) else weight


def _transposed(weight: Weight) -> csr_array:
    """Return a weight [inputs, outputs] as a matrix [outputs, inputs]."""
    if isinstance(weight, CscMatrix):
        shape = weight.shape[1], weight.shape[0]
        return csr_array((weight.values.astype(np.float64), weight.rows, weight.pointers), shape=shape)
    return csr_array(np.ascontiguousarray(weight.T, dtype=np.float64))


def _replace(layer: LinearOp, first: LinearOp, product: ConstantOp | SparseConstantOp) -> LinearOp:
    """Let a layer read what the one before it reads, with the product of both weights; return it."""
    constants: list[ConstantOp | SparseConstantOp] = [product]
    bias, second = layer.bias, weight_of(layer.weight)
    carried = None if first.bias is None else constant_array(first.bias)
    if carried is not None and second is not None:
        own = None if layer.bias is None else constant_array(layer.bias)
        total = _transposed(second) @ carried.astype(np.float64) + (0.0 if own is None else own)
        constants.append(ConstantOp(total.astype(np.float32)))
        bias = constants[-1].result
    set_provenance(product, "", [value_name(layer.weight)])
    merged = LinearOp(first.x, product.result, bias, layer.activation)
    set_provenance(merged, origin_of(layer), [value_name(layer.result)])
    merged.result.name_hint = layer.result.name_hint
    Rewriter.insert_op([*constants, merged], InsertPoint.before(layer))
    layer.result.replace_all_uses_with(merged.result)
    Rewriter.erase_op(layer)
    if not first.result.uses.get_length():
        Rewriter.erase_op(first)
    return merged
