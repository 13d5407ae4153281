"""Attention in the operators that every opset has: heads apart, two products, Softmax between them."""

from collections.abc import Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Final

import onnx_ir as ir
from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.attention import Attention, AttentionOp, PastAttentionOp
from ...dialect.tensors import shape_of
from ..writing.node_builder import Emitter, NodeBuilder
from .elementwise import emit_activation
from .normalization import SOFTMAX_OF_ONE_AXIS

ATTENTION = 23

HEADS_FIRST = (0, 2, 1, 3)
KEYS_LAST = (0, 2, 3, 1)
ROWS_LAST = (0, 1, 3, 2)
SCORES_RANK = 4


def emit_attention(op: Attention, builder: NodeBuilder) -> tuple[ir.Value]:
    """Reshape and Transpose for each operand, MatMul, Add, Softmax, Where, MatMul, Transpose and Reshape."""
    heads, weighting = op.head_counts, op.weighting
    is_plain = not weighting.causal and heads.queries == heads.keys
    roundings = weighting.roundings
    if not is_plain and builder.opset >= ATTENTION and not weighting.nan_as_zero and not any(roundings):
        return (_by_operator(op, builder),)
    queries = builder.node("Mul", _heads(op.q, heads.queries, HEADS_FIRST, builder), builder.scalar(weighting.scale))
    keys, values = _keys_and_values(op, builder)
    scores = _rounded(builder.node("MatMul", queries, keys), roundings.products, builder)
    if op.mask is not None:
        scores = builder.node("Add", scores, builder.operand(op.mask))
    scores = _rounded(scores, roundings.scores, builder)
    if weighting.causal:
        scores = _without_later_keys(scores, builder)
    axis = -1 if builder.opset >= SOFTMAX_OF_ONE_AXIS else SCORES_RANK - 1
    weights = builder.node("Softmax", scores, axis=axis)
    if weighting.nan_as_zero:
        weights = builder.node("Where", builder.node("IsNaN", weights), builder.scalar(0.0), weights)
    result = builder.node("MatMul", _rounded(weights, roundings.weights, builder), values)
    rows = builder.node("Transpose", result, perm=HEADS_FIRST)
    return (builder.node("Reshape", rows, builder.integers([0, 0, heads.queries * op.value_size])),)


def _rounded(x: ir.Value, roundings: Sequence[ActivationAttr], builder: NodeBuilder) -> ir.Value:
    for one in roundings:
        x = emit_activation(one, x, builder)
    return x


def _keys_and_values(op: Attention, builder: NodeBuilder) -> tuple[ir.Value, ir.Value]:
    """Return keys [B, heads, features, T] and values [B, heads, T, features], behind those of the past.

    Those that several heads of queries share are repeated by a Gather, which no empty batch disturbs.
    """
    heads = op.head_counts
    if not op.past and heads.queries == heads.keys:
        return _heads(op.k, heads.keys, KEYS_LAST, builder), _heads(op.v, heads.keys, HEADS_FIRST, builder)
    found: list[ir.Value] = []
    for index, value in enumerate((op.k, op.v)):
        rows = _heads(value, heads.keys, HEADS_FIRST, builder)
        if op.past:
            rows = builder.node("Concat", builder.operand(op.past[index]), rows, axis=2)
        if heads.queries != heads.keys:
            copies = heads.queries // heads.keys
            shared = builder.integers([head // copies for head in range(heads.queries)])
            rows = builder.node("Gather", rows, shared, axis=1)
        found.append(rows)
    return builder.node("Transpose", found[0], perm=ROWS_LAST), found[1]


def _without_later_keys(scores: ir.Value, builder: NodeBuilder) -> ir.Value:
    """Return scores [B, heads, S, T] with -inf where query i would read a key behind number i + T - S."""
    shape = builder.node("Shape", scores)
    queries, keys = (builder.node("Gather", shape, builder.integer(axis), axis=0) for axis in (2, 3))
    zero, one = builder.integer(0), builder.integer(1)
    number, key = (builder.node("Range", zero, count, one) for count in (queries, keys))
    last = builder.node("Add", number, builder.node("Sub", keys, queries))
    reads = builder.node("LessOrEqual", key, builder.node("Reshape", last, builder.integers([-1, 1])))
    return builder.node("Where", reads, scores, builder.scalar(-inf))


def _by_operator(op: Attention, builder: NodeBuilder) -> ir.Value:
    """Return the result of the operator Attention of opset 23."""
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
    features = builder.integers([0, 0, heads, shape_of(value)[-1] // heads])
    return builder.node("Transpose", builder.node("Reshape", builder.operand(value), features), perm=axes)


ATTENTION_EMITTERS: Final[Mapping[type[Operation], Emitter]] = MappingProxyType(
    {
        AttentionOp: emit_attention,
        PastAttentionOp: emit_attention,
    }
)
