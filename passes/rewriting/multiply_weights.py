"""Weights of layers in a row multiplied, where one layer takes less time than two: x (W V) instead of (x W) V.

Only where single precision holds the product: no weight or bias of it may become infinite, and none too small.
"""

from typing import Final

import numpy as np
from scipy.sparse import csr_array
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.ops.constants import ConstantOp, SparseConstantOp, constant_array
from ...dialect.ops.layers import LinearOp
from ...dialect.provenance import set_provenance, value_name
from ...dialect.tensors import DYNAMIC, shape_of
from ...kernels.machine import Machine
from ...sparse.csr import CscMatrix
from ...sparse.densities import STORED_SPARSE
from ..analysis.layer_costs import linear_us
from ..analysis.weights import Floats, Weight, entries_of, weight_of
from .parameters import SMALLEST_NORMAL
from .replacing import replace

WORTH_IT: Final = 0.9
"""Share of the time of two layers below which one takes their place: it rounds otherwise than they do."""

MOST_PRODUCTS: Final = 1 << 32
"""Products of numbers that a product of weights may take: some seconds."""

ROWS: Final = 64
"""Rows that layers are priced for where their number is not known."""


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
    if not all(np.isfinite(entries_of(weight)).all() for weight in (before, behind)):
        return None
    total, multiplied = _carried(first.bias, behind, layer.bias), _product(before, behind)
    if not (_is_held(multiplied, before, behind) and (total is None or np.isfinite(total).all())):
        return None
    product = _constant(multiplied)
    leading = shape_of(layer.x)[:-1]
    rows = ROWS if DYNAMIC in leading else int(np.prod(leading, dtype=np.int64))
    one, two = (linear_us(weight, rows, machine) for weight in (product.result, layer.weight))
    if first.result.has_one_use():
        two += linear_us(first.weight, rows, machine)
    if one >= WORTH_IT * two:
        return None
    return _replace(layer, first, product, None if total is None else ConstantOp(total))


def _is_known(bias: SSAValue | None) -> bool:
    return bias is None or constant_array(bias) is not None


def _carried(bias: SSAValue | None, second: Weight, own: SSAValue | None) -> Floats | None:
    """Return the bias of a layer in the place of two, computed in float64; None where the first of them has none."""
    carried = None if bias is None else constant_array(bias)
    if carried is None:
        return None
    added = None if own is None else constant_array(own)
    with np.errstate(over="ignore", invalid="ignore"):
        total = _transposed(second) @ carried.astype(np.float64) + (0.0 if added is None else added)
        return total.astype(np.float32)


def _product(first: Weight, second: Weight) -> csr_array:
    """Return the product of two weights as a matrix [outputs, inputs], computed in float64."""
    return _transposed(second) @ _transposed(first)


def _is_held(product: csr_array, first: Weight, second: Weight) -> bool:
    """Return whether single precision holds a product: nothing overflows, and what underflows did so in a weight."""
    with np.errstate(over="ignore"):
        if not np.isfinite(product.data.astype(np.float32)).all():
            return False
    return not _underflows(product) or not _underflows(_product(_normal(first), _normal(second)))


def _underflows(product: csr_array) -> bool:
    magnitudes = np.abs(product.data)
    return bool(np.any((magnitudes > 0.0) & (magnitudes < SMALLEST_NORMAL)))


def _normal(weight: Weight) -> Weight:
    """Return a weight with zeros for numbers that are too small to be held in full."""
    entries = entries_of(weight)
    normal = np.where(np.abs(entries) < SMALLEST_NORMAL, np.float32(0.0), entries)
    return weight._replace(values=normal) if isinstance(weight, CscMatrix) else normal


def _constant(product: csr_array) -> ConstantOp | SparseConstantOp:
    """Return the constant of a weight whose transpose is `product`."""
    product.sort_indices()
    outputs, inputs = product.shape
    if product.nnz >= STORED_SPARSE * inputs * outputs:
        return ConstantOp(np.ascontiguousarray(product.toarray().T.astype(np.float32)))
    entries = product.indices.astype(np.int64), product.data.astype(np.float32)
    return SparseConstantOp(CscMatrix((inputs, outputs), product.indptr.astype(np.int64), *entries))


def _transposed(weight: Weight) -> csr_array:
    """Return a weight [inputs, outputs] as a matrix [outputs, inputs]."""
    if isinstance(weight, CscMatrix):
        shape = weight.shape[1], weight.shape[0]
        return csr_array((weight.values.astype(np.float64), weight.rows, weight.pointers), shape=shape)
    return csr_array(np.ascontiguousarray(weight.T, dtype=np.float64))


def _replace(
    layer: LinearOp, first: LinearOp, product: ConstantOp | SparseConstantOp, total: ConstantOp | None
) -> LinearOp:
    """Let a layer read what the one before it reads, with the product of both weights; return it.

    `total` is its bias, where that is another than before.
    """
    constants: list[ConstantOp | SparseConstantOp] = [product, *([] if total is None else [total])]
    set_provenance(product, "", [value_name(layer.weight)])
    merged = LinearOp(first.x, product.result, layer.bias if total is None else total.result, layer.activation)
    Rewriter.insert_op(constants, InsertPoint.before(layer))
    replace(layer, merged)
    if not first.result.uses.get_length():
        Rewriter.erase_op(first)
    return merged
