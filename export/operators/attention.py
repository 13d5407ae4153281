"""Attention in the operators that every opset has: heads apart, two products, Softmax between them."""

import onnx_ir as ir
from xdsl.ir import SSAValue

from redpebble.dialect.ops.attention import Attention
from redpebble.dialect.tensors import shape_of
from redpebble.export.operators.normalization import SOFTMAX_OF_ONE_AXIS
from redpebble.export.writing.node_builder import NodeBuilder

ATTENTION = 23

HEADS_FIRST = (0, 2, 1, 3)
KEYS_LAST = (0, 2, 3, 1)
ROWS_LAST = (0, 1, 3, 2)
SCORES_RANK = 4


def emit_attention(op: Attention, builder: NodeBuilder) -> tuple[ir.Value]:
    """Reshape and Transpose for each operand, MatMul, Add, Softmax, Where, MatMul, Transpose and Reshape."""
    heads, weighting = op.head_counts, op.weighting
    if weighting.causal or heads.queries != heads.keys:
        return (_by_operator(op, builder),)
    queries = builder.node("Mul", _heads(op.q, heads.queries, HEADS_FIRST, builder), builder.scalar(weighting.scale))
    keys, values = _keys_and_values(op, builder)
    scores = builder.node("MatMul", queries, keys)
    if op.mask is not None:
        scores = builder.node("Add", scores, builder.operand(op.mask))
    axis = -1 if builder.opset >= SOFTMAX_OF_ONE_AXIS else SCORES_RANK - 1
    weights = builder.node("Softmax", scores, axis=axis)
    if weighting.nan_as_zero:
        weights = builder.node("Where", builder.node("IsNaN", weights), builder.scalar(0.0), weights)
    result = builder.node("MatMul", weights, values)
    rows = builder.node("Transpose", result, perm=HEADS_FIRST)
    return (builder.node("Reshape", rows, builder.integers([0, 0, heads.queries * op.value_size])),)


def _keys_and_values(op: Attention, builder: NodeBuilder) -> tuple[ir.Value, ir.Value]:
    """Return keys [B, heads, features, T] and values [B, heads, T, features], behind those of the past."""
    heads, values = op.head_counts.keys, _heads(op.v, op.head_counts.keys, HEADS_FIRST, builder)
    if not op.past:
        return _heads(op.k, heads, KEYS_LAST, builder), values
    past_keys, past_values = map(builder.operand, op.past)
    keys = builder.node("Concat", past_keys, _heads(op.k, heads, HEADS_FIRST, builder), axis=2)
    return builder.node("Transpose", keys, perm=ROWS_LAST), builder.node("Concat", past_values, values, axis=2)


def _by_operator(op: Attention, builder: NodeBuilder) -> ir.Value:
    """Return what the operator of opset 23 yields; nothing older is causal, or has queries that share keys."""
    if builder.opset < ATTENTION or op.weighting.nan_as_zero:
        raise ValueError(f"{op.name} is causal or grouped, which opset {builder.opset} has no form for")
    heads, weighting = op.head_counts, op.weighting
    mask = None if op.mask is None else builder.operand(op.mask)
    inputs = [*(builder.operand(value) for value in (op.q, op.k, op.v)), mask, *map(builder.operand, op.past)]
    # onnxruntime appends to a past only where it is asked for both parts
    return builder.parts(
        "Attention",
        inputs,
        3 if op.past else 1,
        q_num_heads=heads.queries,
        kv_num_heads=heads.keys,
        scale=weighting.scale,
        is_causal=int(weighting.causal),
    )[0]


def _heads(value: SSAValue, heads: int, axes: tuple[int, ...], builder: NodeBuilder) -> ir.Value:
    """Return the heads of an operand apart."""
    features = builder.integers([0, 0, heads, shape_of(value)[-1] // heads])
    return builder.node("Transpose", builder.node("Reshape", builder.operand(value), features), perm=axes)
