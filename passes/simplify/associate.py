"""Order products along the edges of a graph and with weights: (A X) W or A (X W), whichever takes less time.

```mlir
%h = pebble.linear %x, %w : (tensor<9x64xf32>, tensor<64x256xf32>) -> tensor<9x256xf32>
%y = pebble.aggregate %h, %a bias %b activation <relu> : ...
// ->
%h = pebble.aggregate %x, %a order <graph first, us = 8.4e+01, otherwise = 2.05e+02> : ...
%y = pebble.linear %h, %w bias %b activation <relu> : (tensor<9x64xf32>, tensor<64x256xf32>, ...) -> ...
```

and the other way round. Both orders are priced by the models that kernels are chosen by: the sums run over as many
features as the product has that comes first, and a layer has as many rows as there are nodes on its side of the graph.
Edges that a call brings are priced as those of a graph of a stated size. Bias and activation stay behind both products,
so that what stands between them has neither, nor another reader.

Before that, `(x W) V` of layers in a row becomes `x (W V)` where one layer takes less time than two; where something
else reads x W, than the second one: so scores of attention over edges read what features are made of, X (W a).

Source: the adaptive order of products in arXiv 2308.12093, section 3, which counts operations.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.attributes.product_order import GRAPH_FIRST, WEIGHTS_FIRST, ProductOrderAttr
from ...dialect.ops.constants import ConstantOp, SparseConstantOp, constant_array
from ...dialect.ops.graphs import AggregateOp, AtTargets
from ...dialect.ops.layers import LinearOp
from ...dialect.provenance import origin_of, set_provenance, value_name
from ...dialect.tensors import DYNAMIC, shape_of
from ...kernels.graphs.aggregate_cost import GraphWork, aggregate_us, work_of_call
from ...kernels.machine import Machine, MachineOptions
from ...sparse.csr import CscMatrix
from ...sparse.densities import STORED_SPARSE
from ..analysis.layer_costs import linear_us
from ..analysis.weights import Floats, Weight, entries_of, weight_of
from ..rewriting.parameters import SMALLEST_NORMAL
from ..rewriting.replacing import pass_on, replace

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Weights of layers in a row multiplied, where one layer takes less time than two: x (W V) instead of (x W) V.

MERGED_WORTH_IT: Final = 0.9
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
    if layer.is_rounded or first.is_rounded or first.times is not None or layer.times is not None:
        return None
    before, behind = weight_of(first.weight), weight_of(layer.weight)
    if before is None or behind is None or not (_has_known_bias(first.bias) and _has_known_bias(layer.bias)):
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
    if one >= MERGED_WORTH_IT * two:
        return None
    return _replace(layer, first, product, None if total is None else ConstantOp(total))


def _has_known_bias(bias: SSAValue | None) -> bool:
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


def _product(first: Weight, second: Weight) -> "csr_array":
    """Return the product of two weights as a matrix [outputs, inputs], computed in float64."""
    return _transposed(second) @ _transposed(first)


def _is_held(product: "csr_array", first: Weight, second: Weight) -> bool:
    """Return whether single precision holds a product: nothing overflows, and what underflows did so in a weight."""
    with np.errstate(over="ignore"):
        if not np.isfinite(product.data.astype(np.float32)).all():
            return False
    return not _underflows(product) or not _underflows(_product(_normal(first), _normal(second)))


def _underflows(product: "csr_array") -> bool:
    magnitudes = np.abs(product.data)
    return bool(np.any((magnitudes > 0.0) & (magnitudes < SMALLEST_NORMAL)))


def _normal(weight: Weight) -> Weight:
    """Return a weight with zeros for numbers that are too small to be held in full."""
    entries = entries_of(weight)
    normal = np.where(np.abs(entries) < SMALLEST_NORMAL, np.float32(0.0), entries)
    return weight._replace(values=normal) if isinstance(weight, CscMatrix) else normal


def _constant(product: "csr_array") -> ConstantOp | SparseConstantOp:
    """Return the constant of a weight whose transpose is `product`."""
    product.sort_indices()
    outputs, inputs = product.shape
    if product.nnz >= STORED_SPARSE * inputs * outputs:
        return ConstantOp(np.ascontiguousarray(product.toarray().T.astype(np.float32)))
    entries = product.indices.astype(np.int64), product.data.astype(np.float32)
    return SparseConstantOp(CscMatrix((inputs, outputs), product.indptr.astype(np.int64), *entries))


def _transposed(weight: Weight) -> "csr_array":
    """Return a weight [inputs, outputs] as a matrix [outputs, inputs]."""
    from scipy.sparse import csr_array

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


WORTH_IT = 0.98
"""Share of the time of weights first up to which the graph comes first; at equal times weights first is faster."""


class _Products(NamedTuple):
    """A product over a graph and one with weights, one right behind the other."""

    aggregate: AggregateOp
    linear: LinearOp
    first: str


@dataclass(frozen=True)
class Associate(MachineOptions, ModulePass):
    """Choose the order of products over a graph and with weights."""

    name = "pebble-associate"

    @staticmethod
    def on(machine: Machine) -> "Associate":
        """Return the pass for a machine."""
        return Associate(**Associate.numbers(machine))

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        multiply_weights(op, self.machine)
        order_products(op, self.machine)


def order_products(module: ModuleOp, machine: Machine) -> None:
    """Let the better of two products, over a graph and with weights, come first; constants stay what they are."""
    for aggregate in [found for found in module.walk() if isinstance(found, AggregateOp)]:
        products = _products_of(aggregate)
        if products is not None:
            _order(products, machine)


def _products_of(aggregate: AggregateOp) -> _Products | None:
    """Return an aggregation with the layer before it or behind it, where the two may change places."""
    if aggregate.maximum is not None:
        return None
    before, behind = aggregate.x.owner, aggregate.result.get_user_of_unique_use()
    if any(isinstance(op, LinearOp) and (op.is_rounded or op.times is not None) for op in (before, behind)):
        return None
    is_alone = isinstance(before, LinearOp) and before.result.has_one_use() and before.bias is before.activation is None
    if is_alone and isinstance(before, LinearOp) and weight_of(before.weight) is not None:
        return _Products(aggregate, before, WEIGHTS_FIRST)
    if isinstance(behind, LinearOp) and behind.x is aggregate.result and weight_of(behind.weight) is not None:
        return _Products(aggregate, behind, GRAPH_FIRST) if aggregate.is_plain else None
    return None


def _order(products: _Products, machine: Machine) -> None:
    """Write the better order of two products, and put them into it."""
    aggregate, linear, first = products
    inputs, outputs = shape_of(linear.weight)
    before, after = _work(aggregate, inputs), _work(aggregate, outputs)
    times = {
        order: aggregate_us(work, machine) + linear_us(linear.weight, rows, machine)
        for order, work, rows in ((GRAPH_FIRST, before, before.targets), (WEIGHTS_FIRST, after, after.sources))
    }
    (other,) = times.keys() - {first}
    swaps = times[other] <= (WORTH_IT if other == GRAPH_FIRST else 1.0) * times[first]
    chosen, left = (other, first) if swaps else (first, other)
    if swaps:
        aggregate = _swapped(products)
    aggregate.order = ProductOrderAttr(chosen, times[chosen], times[left])


def _work(aggregate: AggregateOp, features: int) -> GraphWork:
    """Return the work of the sums with so many features."""
    if aggregate.of_call:
        return work_of_call(features)
    return GraphWork(*aggregate.edges.shape, len(aggregate.edges.values), features)


def _swapped(products: _Products) -> AggregateOp:
    """Let the product that comes last come first; bias and activation come last as before. Return the aggregation."""
    aggregate, linear, first = products
    if first == WEIGHTS_FIRST:
        inner = aggregation = AggregateOp(linear.x, aggregate.graph)
        outer = LinearOp(inner.result, linear.weight, aggregate.bias, aggregate.activation)
        last, earlier = aggregate, linear
    else:
        inner = LinearOp(aggregate.x, linear.weight)
        outer = aggregation = AggregateOp(inner.result, aggregate.graph, AtTargets(linear.bias, linear.activation))
        last, earlier = linear, aggregate
    set_provenance(inner, origin_of(last), [_inner_name(last)])
    set_provenance(outer, origin_of(earlier), [value_name(last.results[0])])
    # where the last one stands all operands of both are known
    Rewriter.insert_op([inner, outer], InsertPoint.before(last))
    pass_on(last.results, outer.results)
    for op in (last, earlier):
        Rewriter.erase_op(op)
    return aggregation


def _inner_name(last: Operation) -> str:
    name = value_name(last.results[0])
    return f"{name}_before" if name else ""
