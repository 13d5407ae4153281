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
from typing import NamedTuple

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.attributes.product_order import GRAPH_FIRST, WEIGHTS_FIRST, ProductOrderAttr
from ...dialect.ops.graphs.aggregate import NOTHING, AggregateOp, AtTargets
from ...dialect.ops.graphs.edges_of_call import AggregateSortedOp, SortEdgesOp
from ...dialect.ops.layers import LinearOp
from ...dialect.provenance import origin_of, set_provenance, value_name
from ...dialect.tensors import shape_of
from ...kernels.graphs.aggregate_cost import GraphWork, aggregate_us, work_of_call
from ...kernels.machine import Machine, MachineOptions
from ..analysis.layer_costs import linear_us
from ..analysis.weights import weight_of
from ..rewriting.multiply_weights import multiply_weights
from ..rewriting.replacing import pass_on

WORTH_IT = 0.98
"""Share of the time of weights first up to which the graph comes first; at equal times weights first is faster."""


OverGraph = AggregateOp | AggregateSortedOp
"""Sums over the edges of a constant graph, or over those that a call brings."""


class _Products(NamedTuple):
    """A product over a graph and one with weights, one right behind the other."""

    aggregate: OverGraph
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
        machine = self.machine
        multiply_weights(op, machine)
        for aggregate in [found for found in op.walk() if isinstance(found, OverGraph)]:
            products = _products_of(aggregate)
            if products is not None:
                _order(products, machine)


def _products_of(aggregate: OverGraph) -> _Products | None:
    """Return an aggregation with the layer before it or behind it, where the two may change places."""
    if aggregate.maximum is not None or not _is_known(aggregate):
        return None
    before, behind = aggregate.x.owner, aggregate.result.get_user_of_unique_use()
    if any(isinstance(op, LinearOp) and op.is_rounded for op in (before, behind)):
        return None
    is_alone = isinstance(before, LinearOp) and before.result.has_one_use() and before.bias is before.activation is None
    if is_alone and isinstance(before, LinearOp) and weight_of(before.weight) is not None:
        return _Products(aggregate, before, WEIGHTS_FIRST)
    if isinstance(behind, LinearOp) and behind.x is aggregate.result and weight_of(behind.weight) is not None:
        return _Products(aggregate, behind, GRAPH_FIRST) if aggregate.is_plain else None
    return None


def _is_known(aggregate: OverGraph) -> bool:
    return isinstance(aggregate, AggregateOp) or isinstance(aggregate.begins.owner, SortEdgesOp)


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


def _work(aggregate: OverGraph, features: int) -> GraphWork:
    """Return the work of the sums with so many features."""
    if isinstance(aggregate, AggregateSortedOp):
        return work_of_call(features)
    return GraphWork(*aggregate.edges.shape, len(aggregate.edges.values), features)


def _over_same(aggregate: OverGraph, x: SSAValue, after: AtTargets = NOTHING) -> OverGraph:
    """Return the sums of other values over the same edges."""
    if isinstance(aggregate, AggregateOp):
        return AggregateOp(x, aggregate.graph, after)
    assert isinstance(aggregate.begins.owner, SortEdgesOp)
    return AggregateSortedOp(x, aggregate.begins.owner, after)


def _swapped(products: _Products) -> OverGraph:
    """Let the product that comes last come first; bias and activation come last as before. Return the aggregation."""
    aggregate, linear, first = products
    if first == WEIGHTS_FIRST:
        inner = aggregation = _over_same(aggregate, linear.x)
        outer = LinearOp(inner.result, linear.weight, aggregate.bias, aggregate.activation)
        last, earlier = aggregate, linear
    else:
        inner = LinearOp(aggregate.x, linear.weight)
        outer = aggregation = _over_same(aggregate, inner.result, AtTargets(linear.bias, linear.activation))
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
