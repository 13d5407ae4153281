"""Operators that are attention by themselves: Attention of ONNX, MultiHeadAttention and Attention of com.microsoft."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from xdsl.ir import SSAValue

from redpebble.dialect.ops.attention import AttentionOp, Heads, Weighting
from redpebble.dialect.ops.elementwise import AddOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.movement import SplitOp
from redpebble.dialect.symbolic_sizes import Size
from redpebble.dialect.tensors import DYNAMIC, shape_of
from redpebble.frontend.folding.known_sizes import shape_words
from redpebble.frontend.operators.attention import HEADS_LAST, mask_of
from redpebble.frontend.operators.conversion import Conversion, Converter, NotCovered
from redpebble.frontend.operators.movement import refuse_further_outputs
from redpebble.frontend.operators.past_keys import RANK

ATTENTION_SINCE: Final = 23
"""The opset of the operator that can say what products and a softmax cannot: causal attention, and grouped queries."""

ROWS_RANK: Final = 3

Operands = tuple[SSAValue, SSAValue, SSAValue]


def _convert_attention(conversion: Conversion) -> Sequence[SSAValue]:
    """ONNX: heads side by side, or apart as [B, heads, S, features]."""
    _refuse_inputs(conversion, range(4, 7))
    if conversion.number("softcap", 0.0) != 0.0:
        raise NotCovered(f"attribute softcap={conversion.number('softcap', 0.0)}, accepted is 0")
    q, k, v = (conversion.tensor(index) for index in range(3))
    if len(conversion.sizes(q)) == ROWS_RANK:
        heads = Heads(conversion.integer("q_num_heads", 0), conversion.integer("kv_num_heads", 0))
        return [_attention(conversion, (q, k, v), heads, 3, causal=_flag(conversion, "is_causal"))]
    heads = Heads(*(_known(conversion, value, 1) for value in (q, k)))
    rows = tuple(_side_by_side(conversion, value) for value in (q, k, v))
    q, k, v = rows
    result = _attention(conversion, (q, k, v), heads, 3, causal=_flag(conversion, "is_causal"))
    *leading, features = conversion.sizes(result)
    count = Size.known(heads.queries)
    return [conversion.transpose(conversion.reshape(result, (*leading, count, features / count)), HEADS_LAST)]


def _convert_multi_head(conversion: Conversion) -> Sequence[SSAValue]:
    """com.microsoft: rows of queries, keys and values, a bias for all three."""
    _refuse_inputs(conversion, (4, *range(6, len(conversion.node.inputs))))
    q, k, v = (conversion.tensor(index) for index in range(3))
    if conversion.has_input(3):
        bias = conversion.constant(3)
        if bias is None:
            raise NotCovered("the bias is no constant, accepted is one of floats")
        ends = np.cumsum([shape_of(value)[-1] for value in (q, k, v)])
        parts = np.split(bias, ends[:-1])
        biased = zip((q, k, v), parts, strict=True)
        q, k, v = (conversion.emit(AddOp(x, conversion.emit_constant(part, ""))).result for x, part in biased)
    count = conversion.integer("num_heads", 0)
    causal = _flag(conversion, "unidirectional")
    return [_attention(conversion, (q, k, v), Heads(count, count), 5, causal=causal)]


def _convert_with_weights(conversion: Conversion) -> Sequence[SSAValue]:
    """com.microsoft: the projections to queries, keys and values are part of the node."""
    _refuse_inputs(conversion, (3, 4, *range(6, len(conversion.node.inputs))))
    if conversion.integer("do_rotary", 0):
        raise NotCovered("attribute do_rotary=1, accepted is 0")
    x, weight = conversion.tensor(0), conversion.tensor(1)
    bias = conversion.tensor(2) if conversion.has_input(2) else None
    rows = conversion.emit(LinearOp(x, weight, bias)).result
    features = shape_of(rows)[-1]
    sizes = conversion.integer_list("qkv_hidden_sizes") or (features // 3,) * 3
    q, k, v = conversion.emit(SplitOp(rows, len(shape_of(rows)) - 1, sizes)).parts
    count = conversion.integer("num_heads", 0)
    causal = _flag(conversion, "unidirectional")
    return [_attention(conversion, (q, k, v), Heads(count, count), 5, causal=causal)]


def _attention(conversion: Conversion, operands: Operands, heads: Heads, mask: int, *, causal: bool) -> SSAValue:
    """Return the attention of rows, with the mask that is input `mask` of the node."""
    refuse_further_outputs(conversion)
    q, k, v = operands
    queries, keys, values = (conversion.sizes(value) for value in operands)
    fit = len(queries) == len(keys) == len(values) == ROWS_RANK and queries[0] == keys[0] and keys[:2] == values[:2]
    if not fit or heads.queries < 1 or heads.keys < 1:
        shapes = ", ".join(map(shape_words, (queries, keys, values)))
        raise NotCovered(f"queries, keys and values are {shapes}, accepted are rows of the same samples, with heads")
    if causal and queries[1] != keys[1]:
        raise NotCovered(f"causal attention of {queries[1]} queries to {keys[1]} keys, accepted are as many")
    standard = conversion.scope.writes_opset
    if (causal or heads.queries != heads.keys) and standard < ATTENTION_SINCE:
        raise NotCovered(f"opset {standard} has no causal or grouped attention, accepted is {ATTENTION_SINCE}")
    added = conversion.tensor(mask) if conversion.has_input(mask) else None
    if added is not None and conversion.sizes(added)[-1:] != keys[1:2]:
        raise NotCovered(f"the mask is {shape_words(conversion.sizes(added))}, accepted are {keys[1]} keys")
    size = shape_of(q)[2] // heads.queries if shape_of(q)[2] != DYNAMIC else 1
    scale = conversion.number("scale", 0.0) or size**-0.5
    weighting = Weighting(scale, causal=causal)
    rows = None if added is None else mask_of(conversion, added)
    return conversion.emit(AttentionOp((q, k, v), rows, heads, weighting)).result


def _refuse_inputs(conversion: Conversion, indices: Sequence[int]) -> None:
    for index in indices:
        if conversion.has_input(index):
            raise NotCovered(f"input {index} is given, accepted are queries, keys, values and what is added to scores")


def _flag(conversion: Conversion, name: str) -> bool:
    return conversion.integer(name, 0) != 0


def _known(conversion: Conversion, value: SSAValue, axis: int) -> int:
    sizes = conversion.sizes(value)
    if len(sizes) != RANK or sizes[axis].constant is None:
        raise NotCovered(f"an operand is {shape_words(sizes)}, accepted is a known number of heads")
    return int(sizes[axis].coefficient)


def _side_by_side(conversion: Conversion, value: SSAValue) -> SSAValue:
    """Return heads [B, heads, S, features] as rows [B, S, heads features]."""
    samples, heads, rows, features = conversion.sizes(value)
    return conversion.reshape(conversion.transpose(value, HEADS_LAST), (samples, rows, heads * features))


FUSED_ATTENTION_CONVERTERS: Final = MappingProxyType[tuple[str, str], Converter](
    {
        ("", "Attention"): _convert_attention,
        ("com.microsoft", "Attention"): _convert_with_weights,
        ("com.microsoft", "MultiHeadAttention"): _convert_multi_head,
    }
)
"""(domain, operator) -> converter."""
