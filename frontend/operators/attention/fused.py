"""Operators that are attention by themselves: Attention of ONNX, and three of com.microsoft.

Keys and values of the past may be inputs; the outputs hold them with those of the node behind them.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from xdsl.ir import SSAValue

from ....dialect.ops.attention import AttentionOp, Heads, PastAttentionOp, Weighting
from ....dialect.ops.elementwise import AddOp
from ....dialect.ops.layers import LinearOp
from ....dialect.ops.movement import ConcatOp, SplitOp
from ....dialect.symbolic_sizes import ONE, Size, parts_of_sum, sum_of
from ....dialect.tensors import DYNAMIC, shape_of
from ...folding.known_sizes import is_known, shape_words
from ..conversion import Conversion, Converter, NotCovered
from .operands import LENGTH, RANK, ROWS_RANK
from .products import COMPARED_SINCE, HEADS_LAST, mask_of

Pair = tuple[SSAValue, SSAValue]


class PastInputs(NamedTuple):
    """Inputs that hold keys and values of the past, [B, kv_heads, P, features] each; one input where both are in it."""

    indices: tuple[int, ...]

    def of(self, conversion: Conversion) -> tuple[SSAValue, ...]:
        """Return keys and values, or nothing where the node has no past.

        Raises:
            NotCovered: one of the two is left out, or they have other axes.
        """
        given = [index for index in self.indices if conversion.has_input(index)]
        if not given:
            return ()
        if len(given) < len(self.indices):
            raise NotCovered("expected keys and values of the past, or neither, got one of them")
        values = [conversion.tensor(index) for index in given]
        if len(values) == 1:
            values = _halves(conversion, values[0])
        for value in values:
            if len(conversion.sizes(value)) != RANK:
                raise NotCovered(f"expected a past of four axes, got {shape_words(conversion.sizes(value))}")
        return tuple(values)


def _halves(conversion: Conversion, both: SSAValue) -> list[SSAValue]:
    """Return keys and values of [2, B, heads, P, features]."""
    sizes = conversion.sizes(both)
    if len(sizes) != RANK + 1 or sizes[0] != Size.known(2):
        raise NotCovered(f"expected a past of 2 x samples x heads x keys x features, got {shape_words(sizes)}")
    parts = conversion.emit(SplitOp(both, 0, [1, 1])).parts
    return [conversion.reshape(part, sizes[1:]) for part in parts]


def present(conversion: Conversion, rows: Pair, past: Sequence[SSAValue], heads: Heads) -> list[SSAValue]:
    """Return keys and values [B, kv_heads, P + T, features] where the node is asked for them, else nothing.

    `rows` are the node's own ones, [B, T, kv_heads features].

    Raises:
        NotCovered: their features are not known.
    """
    if not any(output.uses() or output.is_graph_output() for output in conversion.node.outputs[1:]):
        return []
    found: list[SSAValue] = []
    for index, value in enumerate(rows):
        samples, length, features = conversion.sizes(value)
        if not is_known(features):
            raise NotCovered(f"expected a known number of features, got rows of {features}")
        count = Size.known(heads.keys)
        apart = conversion.reshape(value, (samples, length, count, features / count))
        own = conversion.transpose(apart, HEADS_LAST)
        found.append(conversion.emit(ConcatOp((past[index], own), LENGTH)).result if past else own)
    return found


def in_one(conversion: Conversion, parts: Sequence[SSAValue]) -> list[SSAValue]:
    """Return keys and values as one, [2, B, kv_heads, P + T, features]; nothing where there are none."""
    if not parts:
        return []
    lifted = [conversion.reshape(part, (ONE, *conversion.sizes(part))) for part in parts]
    return [conversion.emit(ConcatOp(lifted, 0)).result]


Operands = tuple[SSAValue, SSAValue, SSAValue]


def _convert_attention(conversion: Conversion) -> Sequence[SSAValue]:
    """ONNX: heads side by side, or apart as [B, heads, S, features]."""
    _refuse_inputs(conversion, (6,))
    _refuse_outputs(conversion, 3)
    q, k, v = (conversion.tensor(index) for index in range(3))
    node = _Node(3, PastInputs((4, 5)), causal=_flag(conversion, "is_causal"))
    if len(conversion.sizes(q)) == ROWS_RANK:
        heads = Heads(conversion.integer("q_num_heads", 0), conversion.integer("kv_num_heads", 0))
        return _attention(conversion, (q, k, v), heads, node)
    heads = Heads(*(_known(conversion, value, 1) for value in (q, k)))
    rows = tuple(_side_by_side(conversion, value) for value in (q, k, v))
    q, k, v = rows
    result, *kept = _attention(conversion, (q, k, v), heads, node)
    *leading, features = conversion.sizes(result)
    count = Size.known(heads.queries)
    return [conversion.transpose(conversion.reshape(result, (*leading, count, features / count)), HEADS_LAST), *kept]


def _convert_multi_head(conversion: Conversion) -> Sequence[SSAValue]:
    """com.microsoft: rows of queries, keys and values, a bias for all three."""
    _refuse_inputs(conversion, (4, *range(8, len(conversion.node.inputs))))
    _refuse_outputs(conversion, 3)
    q, k, v = (conversion.tensor(index) for index in range(3))
    if conversion.has_input(3):
        bias = conversion.constant(3)
        if bias is None:
            raise NotCovered("expected a constant bias of floats, got another value")
        ends = np.cumsum([shape_of(value)[-1] for value in (q, k, v)])
        parts = np.split(bias, ends[:-1])
        biased = zip((q, k, v), parts, strict=True)
        q, k, v = (conversion.emit(AddOp(x, conversion.emit_constant(part, ""))).result for x, part in biased)
    count = conversion.integer("num_heads", 0)
    node = _Node(5, PastInputs((6, 7)), causal=_flag(conversion, "unidirectional"))
    return _attention(conversion, (q, k, v), Heads(count, count), node)


def _convert_with_weights(conversion: Conversion) -> Sequence[SSAValue]:
    """com.microsoft: the projections to queries, keys and values are part of the node."""
    _refuse_inputs(conversion, (3, *range(6, len(conversion.node.inputs))))
    _refuse_outputs(conversion, 2)
    x, weight = conversion.tensor(0), conversion.tensor(1)
    bias = conversion.tensor(2) if conversion.has_input(2) else None
    rows = conversion.emit(LinearOp(x, weight, bias)).result
    features = shape_of(rows)[-1]
    sizes = conversion.integer_list("qkv_hidden_sizes") or (features // 3,) * 3
    q, k, v = conversion.emit(SplitOp(rows, len(shape_of(rows)) - 1, sizes)).parts
    count = conversion.integer("num_heads", 0)
    node = _Node(5, PastInputs((4,)), causal=_flag(conversion, "unidirectional"))
    result, *kept = _attention(conversion, (q, k, v), Heads(count, count), node)
    return [result, *in_one(conversion, kept)]


def _convert_grouped(conversion: Conversion) -> Sequence[SSAValue]:
    """com.microsoft: causal attention of texts, each of which may be shorter than the tensors are.

    A text that is as long as these is attention as it stands; where lengths are only known in a call, the node stays.
    """
    _refuse_inputs(conversion, range(7, len(conversion.node.inputs)))
    _refuse_outputs(conversion, 3)
    if conversion.integer("smooth_softmax", -1) > 0:
        raise NotCovered(f"expected smooth_softmax=-1 or 0, got {conversion.integer('smooth_softmax', -1)}")
    if not all(conversion.has_input(index) for index in range(3)):
        raise NotCovered("expected queries, keys and values as three inputs, got packed ones")
    q, k, v = (conversion.tensor(index) for index in range(3))
    past = PastInputs((3, 4))
    own = conversion.sizes(k)[1:2]
    lengths = sum_of([*own, *(conversion.sizes(value)[LENGTH] for value in past.of(conversion)[:1])])
    last, total = conversion.integers(5), conversion.integers(6)
    if last is None or total is None:
        raise NotCovered("expected whole texts, got lengths that a node computes")
    if Size.known(total[0]) != lengths or any(number != total[0] - 1 for number in last):
        raise NotCovered(f"expected whole texts of {lengths}, got ends at {list(last)}")
    heads = Heads(conversion.integer("num_heads", 0), conversion.integer("kv_num_heads", 0))
    return _attention(conversion, (q, k, v), heads, _Node(None, past, causal=True))


class _Node(NamedTuple):
    """The mask and the past among a node's inputs, and whether a query reads but the keys up to its own."""

    mask: int | None
    past: PastInputs
    causal: bool


def _attention(conversion: Conversion, operands: Operands, heads: Heads, node: _Node) -> list[SSAValue]:
    """Return the attention of rows, and behind it what the node is asked for of keys and values."""
    q, k, v = operands
    queries, keys, values = (conversion.sizes(value) for value in operands)
    fit = len(queries) == len(keys) == len(values) == ROWS_RANK and queries[0] == keys[0] and keys[:2] == values[:2]
    if not fit or heads.queries < 1 or heads.keys < 1:
        shapes = ", ".join(map(shape_words, (queries, keys, values)))
        raise NotCovered(f"expected rows of the same samples, with heads, got queries, keys and values {shapes}")
    # one query reads all keys, whatever comes later
    causal = node.causal and queries[1] != ONE
    if causal and queries[1] != keys[1]:
        raise NotCovered(
            f"expected as many keys as queries for causal attention, got {queries[1]} queries and {keys[1]} keys"
        )
    standard = conversion.scope.writes_opset
    if (causal or heads.queries != heads.keys) and standard < COMPARED_SINCE:
        raise NotCovered(f"expected opset {COMPARED_SINCE} for causal or grouped attention, got {standard}")
    past = node.past.of(conversion)
    scored = sum_of([keys[1], *(conversion.sizes(value)[LENGTH] for value in past[:1])])
    size = shape_of(q)[2] // heads.queries if shape_of(q)[2] != DYNAMIC else 1
    stated = conversion.attribute("scale")
    # operators of com.microsoft say 0 for the usual scale, that of ONNX leaves it out
    is_usual = stated is None or (conversion.node.domain != "" and stated.as_float() == 0.0)
    scale = size**-0.5 if stated is None or is_usual else stated.as_float()
    operation = PastAttentionOp if past else AttentionOp
    mask, weighting = _mask(conversion, node.mask, scored), Weighting(scale, causal=causal)
    result = conversion.emit(operation((q, k, v), mask, heads, weighting, past)).result
    return [result, *present(conversion, (k, v), past, heads)]


def _mask(conversion: Conversion, index: int | None, keys: Size) -> SSAValue | None:
    """Return what is added to the scores of so many keys; behind a past, a call finds out whether it is for as many."""
    if index is None or not conversion.has_input(index):
        return None
    added = conversion.tensor(index)
    sizes = conversion.sizes(added)
    is_open = sizes and not is_known(sizes[-1]) and bool(parts_of_sum(str(keys.powers[0][0])) if keys.powers else ())
    if sizes[-1:] != (keys,) and not is_open:
        raise NotCovered(f"expected a mask of {keys} keys, got {shape_words(sizes)}")
    return mask_of(conversion, added)


def _refuse_inputs(conversion: Conversion, indices: Sequence[int]) -> None:
    for index in indices:
        if conversion.has_input(index):
            raise NotCovered(f"expected queries, keys, values, a past, and what is added to scores, got input {index}")


def _refuse_outputs(conversion: Conversion, first: int) -> None:
    for index, output in enumerate(conversion.node.outputs[first:], start=first):
        if output.uses() or output.is_graph_output():
            raise NotCovered(
                f"expected only the result, keys and values to be used, got output {index} ({output.name})"
            )


def _flag(conversion: Conversion, name: str) -> bool:
    return conversion.integer(name, 0) == 1


def _known(conversion: Conversion, value: SSAValue, axis: int) -> int:
    sizes = conversion.sizes(value)
    if len(sizes) != RANK or sizes[axis].constant is None:
        raise NotCovered(f"expected a known number of heads, got an operand {shape_words(sizes)}")
    return int(sizes[axis].coefficient)


def _side_by_side(conversion: Conversion, value: SSAValue) -> SSAValue:
    """Return heads [B, heads, S, features] as rows [B, S, heads features]."""
    samples, heads, rows, features = conversion.sizes(value)
    return conversion.reshape(conversion.transpose(value, HEADS_LAST), (samples, rows, heads * features))


FUSED_ATTENTION_CONVERTERS: Final = MappingProxyType[tuple[str, str], Converter](
    {
        ("", "Attention"): _convert_attention,
        ("com.microsoft", "Attention"): _convert_with_weights,
        ("com.microsoft", "GroupQueryAttention"): _convert_grouped,
        ("com.microsoft", "MultiHeadAttention"): _convert_multi_head,
    }
)
"""(domain, operator) -> converter."""
