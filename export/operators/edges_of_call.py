"""Sums over edges that a call brings, in standard operators: Gather, Mul and ScatterElements, which take any order.

```
y = ScatterElements(zeros, Expand(targets), weights * Gather(x, sources), "add")
```
"""

from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir
from xdsl.ir import SSAValue

from ...dialect.ops.graphs.aggregate import LOWEST
from ...dialect.ops.graphs.attend_sorted import AttendSortedOp
from ...dialect.ops.graphs.edges_of_call import AggregateSortedOp, EdgeListOp, SortEdgesOp
from ..writing.node_builder import NodeBuilder
from .graphs import Edges, attended, fill_of, with_bias_and_activation


def emit_edge_list(op: EdgeListOp, builder: NodeBuilder) -> Sequence[ir.Value]:
    """Nothing: sums read what the edges are made of."""
    return [builder.operand(op.from_nodes)] * len(op.results)


def emit_sort_edges(op: SortEdgesOp, builder: NodeBuilder) -> Sequence[ir.Value]:
    """Nothing, as for the list of edges."""
    return [builder.operand(op.sources)] * len(op.results)


def emit_aggregate_sorted(op: AggregateSortedOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Gather, Mul and ScatterElements; then Add and the activation."""
    edges, x = edges_of(op.begins), builder.operand(op.x)
    messages = gathered(x, edges.from_nodes, builder)
    if op.maximum is None and edges.factors is not None:
        messages = builder.node("Mul", column(edges.factors, builder), messages)
    shape = builder.node("Shape", messages)
    spread = builder.node("Expand", column(edges.to_nodes, builder), shape)
    start = builder.node("ConstantOfShape", builder.node("Shape", x), value=fill_of(0.0))
    if op.maximum is not None:
        lowest = builder.node("ConstantOfShape", shape, value=fill_of(LOWEST))
        start = builder.node("ScatterElements", start, spread, lowest, axis=0, reduction="min")
    reduction = "add" if op.maximum is None else "max"
    sums = builder.node("ScatterElements", start, spread, messages, axis=0, reduction=reduction)
    return (with_bias_and_activation(op, sums, builder),)


def emit_attend_sorted(op: AttendSortedOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Attention as over a constant graph."""
    given = edges_of(op.begins)
    weights = None if given.factors is None else column(given.factors, builder)
    sources, targets = (
        builder.node("Reshape", builder.operand(numbers), builder.integers([-1]))
        for numbers in (given.from_nodes, given.to_nodes)
    )
    return (attended(op, Edges(weights, sources, targets), builder),)


class _Ends(NamedTuple):
    """Values that edges are made of: [edges] or [edges, 1]."""

    from_nodes: SSAValue
    to_nodes: SSAValue
    factors: SSAValue | None


def edges_of(begins: SSAValue) -> _Ends:
    """Return what sorted edges are made of.

    Raises:
        ValueError: no sort yields them.
    """
    match begins.owner:
        case SortEdgesOp(sources=SSAValue(owner=EdgeListOp() as edges)):
            return _Ends(edges.from_nodes, edges.to_nodes, edges.factors)
        case _:
            raise ValueError("edges that no pebble.sort_edges of a pebble.edge_list yields have no form in onnx")


def gathered(x: ir.Value, numbers: SSAValue, builder: NodeBuilder) -> ir.Value:
    """Return the rows of nodes along the edges."""
    flat = builder.node("Reshape", builder.operand(numbers), builder.integers([-1]))
    return builder.node("Gather", x, flat, axis=0)


def column(numbers: SSAValue, builder: NodeBuilder) -> ir.Value:
    """Return a value of each edge as [edges, 1]."""
    return builder.node("Reshape", builder.operand(numbers), builder.integers([-1, 1]))
