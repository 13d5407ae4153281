"""Ops over edges in standard operators: Gather, Mul and ScatterElements over edges, constant or of a call.

```
y = ScatterElements(zeros, Expand(targets), weights * Gather(x, sources), "add")
```

A constant graph is stored as values and gaps; what has batch axes of unknown size, or an opset without sums in
ScatterElements, is a product with its dense matrix. Edges of a call are taken in any order.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import onnx_ir as ir
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.graphs import (
    LOWEST,
    MAXIMA_SINCE,
    SUMS_SINCE,
    AggregateOp,
    AttendEdgesOp,
    EdgeListOp,
    OverEdgesOp,
    SortEdgesOp,
)
from ...dialect.tensors import DYNAMIC, shape_of
from ..writing.node_builder import Emitter, NodeBuilder
from .elementwise import emit_activation


def emit_edge_list(op: EdgeListOp, builder: NodeBuilder) -> Sequence[ir.Value]:
    """Nothing: sums read what the edges are made of."""
    return [builder.operand(op.from_nodes)] * len(op.results)


def emit_sort_edges(op: SortEdgesOp, builder: NodeBuilder) -> Sequence[ir.Value]:
    """Nothing, as for the list of edges."""
    return [builder.operand(op.sources)] * len(op.results)


def emit_aggregate(op: AggregateOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Gather, Mul and ScatterElements, or MatMul; then Add and the activation."""
    if op.of_call:
        value = _scattered_of_call(op, builder)
    else:
        value = _scattered(op, builder) if _is_scattered(op, builder) else _product(op, builder)
    return (_with_bias_and_activation(op, value, builder),)


def emit_attend_edges(op: AttendEdgesOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """The softmax over edges by ScatterElements, then Gather, Mul and ScatterElements; Add and the activation.

    Raises:
        ValueError: the opset has no sums in ScatterElements.
    """
    # runtimes compare as soon as they add: torch writes maxima in opset 17
    if builder.opset < SUMS_SINCE:
        raise ValueError(f"{op.name} has no form in opset {builder.opset}")
    edges = _edges_of_call(op.graph, builder) if op.of_call else _edges(op.graph, builder)
    return (_with_bias_and_activation(op, _attended(op, edges, builder), builder),)


def _with_bias_and_activation(op: OverEdgesOp, value: ir.Value, builder: NodeBuilder) -> ir.Value:
    if op.bias is not None:
        value = builder.node("Add", value, builder.bias(op.bias))
    return value if op.activation is None else emit_activation(op.activation, value, builder)


def _is_scattered(op: AggregateOp, builder: NodeBuilder) -> bool:
    since = SUMS_SINCE if op.maximum is None else MAXIMA_SINCE
    fits = builder.opset >= since and DYNAMIC not in shape_of(op.result)
    if op.maximum is not None and not fits:
        raise ValueError(f"{op.name} of maxima has no form in opset {builder.opset}")
    return fits


def _product(op: AggregateOp, builder: NodeBuilder) -> ir.Value:
    """Return A x: the graph lies transposed."""
    graph = builder.node("Transpose", builder.operand(op.graph), perm=(1, 0))
    return builder.node("MatMul", graph, builder.operand(op.x))


class Edges(NamedTuple):
    """Edges as nodes of ONNX: weights [edges, 1], None for 1 everywhere, sources and targets [edges]."""

    weights: ir.Value | None
    sources: ir.Value
    targets: ir.Value


def _edges(graph: SSAValue, builder: NodeBuilder) -> Edges:
    weights, gaps = builder.initializers.edges(graph)
    wide = builder.node("Cast", gaps, to=int(ir.DataType.INT64))
    positions = builder.node("CumSum", wide, builder.initializers.literal(np.array(0, np.int64)))
    count = builder.initializers.literal(np.array(shape_of(graph)[0], np.int64))
    return Edges(weights, *(builder.node(operator, positions, count) for operator in ("Mod", "Div")))


def _edges_of_call(graph: SSAValue, builder: NodeBuilder) -> Edges:
    made = _list_of(graph)
    weights = None if made.factors is None else _column(made.factors, builder)
    return Edges(weights, *(_flat(numbers, builder) for numbers in (made.from_nodes, made.to_nodes)))


def _list_of(graph: SSAValue) -> EdgeListOp:
    """Return the list that sorted edges are made of.

    Raises:
        ValueError: no sort yields them.
    """
    match graph.owner:
        case SortEdgesOp(sources=SSAValue(owner=EdgeListOp() as edges)):
            return edges
        case _:
            raise ValueError("edges that no pebble.sort_edges of a pebble.edge_list yields have no form in onnx")


def _flat(numbers: SSAValue, builder: NodeBuilder) -> ir.Value:
    return builder.node("Reshape", builder.operand(numbers), builder.integers([-1]))


def _column(numbers: SSAValue, builder: NodeBuilder) -> ir.Value:
    """Return a value of each edge as [edges, 1]."""
    return builder.node("Reshape", builder.operand(numbers), builder.integers([-1, 1]))


def _scattered_of_call(op: AggregateOp, builder: NodeBuilder) -> ir.Value:
    edges, x = _list_of(op.graph), builder.operand(op.x)
    messages = builder.node("Gather", x, _flat(edges.from_nodes, builder), axis=0)
    if op.maximum is None and edges.factors is not None:
        messages = builder.node("Mul", _column(edges.factors, builder), messages)
    shape = builder.node("Shape", messages)
    spread = builder.node("Expand", _column(edges.to_nodes, builder), shape)
    start = builder.node("ConstantOfShape", builder.node("Shape", x), value=_fill(0.0))
    if op.maximum is not None:
        lowest = builder.node("ConstantOfShape", shape, value=_fill(LOWEST))
        start = builder.node("ScatterElements", start, spread, lowest, axis=0, reduction="min")
    reduction = "add" if op.maximum is None else "max"
    return builder.node("ScatterElements", start, spread, messages, axis=0, reduction=reduction)


def _scattered(op: AggregateOp, builder: NodeBuilder) -> ir.Value:
    *leading, targets, features = shape = shape_of(op.result)
    axis = len(shape) - 2
    weights, source, target = _edges(op.graph, builder)
    assert weights is not None
    messages = builder.node("Gather", builder.operand(op.x), source, axis=axis)
    index = builder.node("Unsqueeze", target, builder.integers([1]))
    edges = len(op.edges.values)
    spread = builder.node("Expand", index, builder.integers([*leading, edges, features]))
    start = builder.node("ConstantOfShape", builder.integers([*leading, targets, features]), value=_fill(0.0))
    if op.maximum is None:
        messages = builder.node("Mul", weights, messages)
        return builder.node("ScatterElements", start, spread, messages, axis=axis, reduction="add")
    lowest = builder.node("ConstantOfShape", builder.integers([*leading, edges, features]), value=_fill(LOWEST))
    start = builder.node("ScatterElements", start, spread, lowest, axis=axis, reduction="min")
    return builder.node("ScatterElements", start, spread, messages, axis=axis, reduction="max")


def _attended(op: AttendEdgesOp, edges: Edges, builder: NodeBuilder) -> ir.Value:
    x, scores = builder.operand(op.x), builder.operand(op.scores)
    features, heads = shape_of(op.result)[1], op.softmax.heads
    bounds = builder.integers([heads]), builder.integers([2 * heads]), builder.integers([1])
    origin = builder.node("Slice", scores, builder.integers([0]), bounds[0], bounds[2])
    own = builder.node("Slice", scores, *bounds)
    logits = builder.node(
        "Add", *(builder.node("Gather", *pair, axis=0) for pair in ((origin, edges.sources), (own, edges.targets)))
    )
    if op.softmax.activation is not None:
        logits = emit_activation(op.softmax.activation, logits, builder)
    column = builder.node("Unsqueeze", edges.targets, builder.integers([1]))
    spread = builder.node("Expand", column, builder.node("Shape", logits))
    of_nodes = builder.node("Shape", origin)

    def scattered(values: ir.Value, start: float, reduction: str) -> ir.Value:
        filled = builder.node("ConstantOfShape", of_nodes, value=_fill(start))
        return builder.node("ScatterElements", filled, spread, values, axis=0, reduction=reduction)

    largest = scattered(logits, 0.0 if op.softmax.from_zero else LOWEST, "max")
    powers = builder.node("Exp", builder.node("Sub", logits, builder.node("Gather", largest, edges.targets, axis=0)))
    powers = powers if edges.weights is None else builder.node("Mul", edges.weights, powers)
    totals = scattered(powers, op.softmax.epsilon, "add")
    shares = builder.node("Div", powers, builder.node("Gather", totals, edges.targets, axis=0))
    view = builder.node("Reshape", x, builder.integers([0, heads, features // heads]))
    messages = builder.node("Gather", view, edges.sources, axis=0)
    messages = builder.node("Mul", builder.node("Unsqueeze", shares, builder.integers([2])), messages)
    index = builder.node("Unsqueeze", edges.targets, builder.integers([1, 2]))
    index = builder.node("Expand", index, builder.node("Shape", messages))
    start = builder.node("ConstantOfShape", builder.node("Shape", view), value=_fill(0.0))
    sums = builder.node("ScatterElements", start, index, messages, axis=0, reduction="add")
    return builder.node("Reshape", sums, builder.integers([0, features]))


def _fill(number: float) -> ir.TensorProtocol:
    """Return the value of a ConstantOfShape."""
    return ir.tensor(np.array([number], np.float32))


GRAPHS_EMITTERS: Final[Mapping[type[Operation], Emitter]] = MappingProxyType(
    {
        AggregateOp: emit_aggregate,
        AttendEdgesOp: emit_attend_edges,
        EdgeListOp: emit_edge_list,
        SortEdgesOp: emit_sort_edges,
    }
)
