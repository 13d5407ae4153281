"""Aggregations in standard operators: Gather, Mul, ScatterElements over edges that are stored as values and gaps.

What has batch axes of unknown size, or an opset without sums in ScatterElements, is a product with the dense matrix.
"""

import numpy as np
import onnx_ir as ir

from redpebble.dialect.ops.graphs.aggregate import AggregateOp
from redpebble.dialect.tensors import DYNAMIC, shape_of
from redpebble.export.operators.elementwise import emit_activation
from redpebble.export.writing.node_builder import NodeBuilder

SUMS_SINCE = 16
"""The opset from which ScatterElements adds."""

MAXIMA_SINCE = 18
"""The opset from which ScatterElements compares."""

LOWEST = float(np.finfo(np.float32).min)


def emit_aggregate(op: AggregateOp, builder: NodeBuilder) -> tuple[ir.Value]:
    """Gather, Mul and ScatterElements, or MatMul; then Add and the activation."""
    value = _scattered(op, builder) if _is_scattered(op, builder) else _product(op, builder)
    if op.bias is not None:
        value = builder.node("Add", value, builder.bias(op.bias))
    if op.activation is not None:
        value = emit_activation(op.activation, value, builder)
    return (value,)


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


def _scattered(op: AggregateOp, builder: NodeBuilder) -> ir.Value:
    *leading, targets, features = shape = shape_of(op.result)
    sources, axis = shape_of(op.graph)[0], len(shape) - 2
    weights, gaps = builder.initializers.edges(op.graph)
    wide = builder.node("Cast", gaps, to=int(ir.DataType.INT64))
    positions = builder.node("CumSum", wide, builder.initializers.literal(np.array(0, np.int64)))
    count = builder.initializers.literal(np.array(sources, np.int64))
    source, target = (builder.node(operator, positions, count) for operator in ("Mod", "Div"))
    messages = builder.node("Gather", builder.operand(op.x), source, axis=axis)
    index = builder.node("Unsqueeze", target, builder.integers([1]))
    edges = len(op.edges.values)
    spread = builder.node("Expand", index, builder.integers([*leading, edges, features]))
    start = builder.node("ConstantOfShape", builder.integers([*leading, targets, features]), value=_filled(0.0))
    if op.maximum is None:
        messages = builder.node("Mul", weights, messages)
        return builder.node("ScatterElements", start, spread, messages, axis=axis, reduction="add")
    lowest = builder.node("ConstantOfShape", builder.integers([*leading, edges, features]), value=_filled(LOWEST))
    start = builder.node("ScatterElements", start, spread, lowest, axis=axis, reduction="min")
    return builder.node("ScatterElements", start, spread, messages, axis=axis, reduction="max")


def _filled(number: float) -> ir.TensorProtocol:
    return ir.tensor(np.array([number], np.float32))
