"""Aggregations in standard operators: Gather, Mul, ScatterElements over edges that are stored as values and gaps.

What has batch axes of unknown size, or an opset without sums in ScatterElements, is a product with the dense matrix.
"""

from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from xdsl.ir import SSAValue

from ...dialect.ops.graphs.aggregate import LOWEST, MAXIMA_SINCE, SUMS_SINCE, AggregateOp, CombinesEdges
from ...dialect.ops.graphs.attend_edges import AttendEdgesOp, AttendsEdges
from ...dialect.tensors import DYNAMIC, shape_of
from ..writing.node_builder import NodeBuilder
from .elementwise import emit_activation


def emit_aggregate(op: AggregateOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Gather, Mul and ScatterElements, or MatMul; then Add and the activation."""
    value = _scattered(op, builder) if _is_scattered(op, builder) else _product(op, builder)
    return (with_bias_and_activation(op, value, builder),)


def with_bias_and_activation(op: CombinesEdges | AttendsEdges, value: ir.Value, builder: NodeBuilder) -> ir.Value:
    """Return the nodes' sums over edges."""
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


def _scattered(op: AggregateOp, builder: NodeBuilder) -> ir.Value:
    *leading, targets, features = shape = shape_of(op.result)
    axis = len(shape) - 2
    weights, source, target = _edges(op.graph, builder)
    assert weights is not None
    messages = builder.node("Gather", builder.operand(op.x), source, axis=axis)
    index = builder.node("Unsqueeze", target, builder.integers([1]))
    edges = len(op.edges.values)
    spread = builder.node("Expand", index, builder.integers([*leading, edges, features]))
    start = builder.node("ConstantOfShape", builder.integers([*leading, targets, features]), value=fill_of(0.0))
    if op.maximum is None:
        messages = builder.node("Mul", weights, messages)
        return builder.node("ScatterElements", start, spread, messages, axis=axis, reduction="add")
    lowest = builder.node("ConstantOfShape", builder.integers([*leading, edges, features]), value=fill_of(LOWEST))
    start = builder.node("ScatterElements", start, spread, lowest, axis=axis, reduction="min")
    return builder.node("ScatterElements", start, spread, messages, axis=axis, reduction="max")


def emit_attend_edges(op: AttendEdgesOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """The softmax over edges by ScatterElements, then Gather, Mul and ScatterElements; Add and the activation.

    Raises:
        ValueError: the opset has no sums in ScatterElements.
    """
    return (attended(op, _edges(op.graph, builder), builder),)


def attended(op: AttendsEdges, edges: Edges, builder: NodeBuilder) -> ir.Value:
    """Return the nodes' values by attention over edges.

    Raises:
        ValueError: the opset has no sums in ScatterElements.
    """
    # runtimes compare as soon as they add: torch writes maxima in opset 17
    if builder.opset < SUMS_SINCE:
        raise ValueError(f"{op.name} has no form in opset {builder.opset}")
    x, scores = (builder.operand(value) for value in op.operands[:2])
    features, heads = shape_of(op.results[0])[1], op.softmax.heads
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
        filled = builder.node("ConstantOfShape", of_nodes, value=fill_of(start))
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
    start = builder.node("ConstantOfShape", builder.node("Shape", view), value=fill_of(0.0))
    sums = builder.node("ScatterElements", start, index, messages, axis=0, reduction="add")
    return with_bias_and_activation(op, builder.node("Reshape", sums, builder.integers([0, features])), builder)


def fill_of(number: float) -> ir.TensorProtocol:
    """Return the value of a ConstantOfShape."""
    return ir.tensor(np.array([number], np.float32))
