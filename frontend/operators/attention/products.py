"""Attention as exporters write it: what stands between the product of queries with keys and that with values.

```
scores  = MatMul(queries, keys)              [B, heads, S, T]; Mul or Div by a number on any of the three
hidden  = Where(seen, scores, -inf)          -inf or another number that hides; may be left out
weights = Softmax(Add(hidden, mask))         the mask may be left out; also Where after Add
weights = Where(IsNaN(weights), 0, weights)  written for masks that hide every key; may be left out
result  = MatMul(weights, values)            [B, heads, S, features]
```

In a quantized network, QuantizeLinear and DequantizeLinear may stand behind each of these nodes, and before them: what
operands are rounded to is computed row by row, roundings of scores and of weights are part of the attention.

The last product becomes `pebble.attention` on heads that lie side by side. The transposes around it undo those of the
exporter, and canonicalization drops both.

Factors behind a rounding are moved before it: scores that are rounded to multiples of s, and then halved, are halved
and rounded to multiples of s / 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ....dialect.attributes.activations import ActivationAttr
from ....dialect.ops.attention import MASK_RANK, AttentionOp, Heads, PastAttentionOp, Roundings, Weighting
from ....dialect.ops.elementwise import AddOp
from ....dialect.symbolic_sizes import ONE, Size, SymbolicShape
from ...folding.known_sizes import is_known, shape_words
from ...folding.score_masks import hidden_scores, mask_of_constant
from ..conversion import Conversion, NotCovered
from ..patterns import Hole, Match, Once, Pattern, That, is_read, matched, op
from ..row_steps import Rounding, RowSteps, number_of_value, rounded, scaled
from .operands import RANK, Shared, appended, before_swap, shared_heads

MOST_MASKS: Final = 3
"""Masks behind each other that are added up."""

Mask = onnx_ir.Value | NDArray[np.float32]


class Scores(NamedTuple):
    """Parts that the weights of an attention are made of."""

    weighting: Weighting
    masks: tuple[Mask, ...]
    queries: RowSteps
    keys: RowSteps
    nodes: tuple[onnx_ir.Node, ...]
    """The nodes that the attention stands for, beside the last product."""


def scores_of(conversion: Conversion, weights: onnx_ir.Value) -> Scores | None:
    """Return what the weights of an attention are made of; None where they are no such."""
    match = matched(conversion, WEIGHTS, weights)
    if match is None:
        return None
    queries, keys = (RowSteps.of(conversion, match.value(name)) for name in ("queries", "keys"))
    scale = match.get("factor", float) * queries.factor * keys.factor
    of_product, of_scores, first, last = (
        match.items(name, ActivationAttr) for name in ("product", "scores", "softmax", "weights")
    )
    # what was rounded is a number
    roundings = Roundings(of_product, of_scores, (*first, *last))
    weighting = Weighting(scale, nan_as_zero="kept" in match.holes and not first, roundings=roundings)
    return Scores(weighting, _masks_of(match), queries, keys, tuple(match.nodes))


def _masks_of(match: Match) -> tuple[Mask, ...]:
    return cast("tuple[Mask, ...]", match.holes.get("masks", ()))


@dataclass(frozen=True)
class _Scaled(Pattern):
    """A value that numbers multiply one after the other, rounded to codes between them."""

    inside: Pattern

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        value, factor = match.behind(value), 1.0
        roundings: list[ActivationAttr] = []
        while True:
            if (found := rounded(match.conversion, value, 1)) is not None:
                scale, zero = found.rounding.values
                roundings.append(ActivationAttr("quantize", (float(np.float32(scale * factor)), zero)))
                match.nodes += found.nodes
                value = found.before
            elif (product := scaled(match.conversion, value)) is not None and is_read(value):
                match.nodes.append(product.node)
                value, factor = product.before, factor * product.factor
                # codes of values that change their sign are others
                if roundings and factor <= 0.0:
                    raise match.mismatch("a positive factor behind a rounding", value)
            else:
                break
        match.bind("factor", factor)
        match.bind("product", tuple(reversed(roundings)))
        Once(self.inside).meet(value, match)


@dataclass(frozen=True)
class _AnyMask(Pattern):
    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        match.holes["masks"] = (match.behind(value), *_masks_of(match))


@dataclass(frozen=True)
class _Hidden(Pattern):
    """Scores that a Where hides, as a mask that is added to them: a value of the graph, or numbers."""

    inside: Pattern

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        scope, node = match.conversion.scope, match.behind(value).producer()
        hidden = None if node is None else hidden_scores(node, scope.ir_version)
        if node is None or hidden is None:
            raise match.mismatch("Where with a number that hides", value)
        seen = match.constant(node.inputs[0])
        mask = scope.score_masks.get(node) if seen is None else mask_of_constant(seen, hidden)
        if mask is None:
            raise match.mismatch("Where with a mask", value)
        match.nodes.append(node)
        match.holes["masks"] = (mask, *_masks_of(match))
        self.inside.meet(node.inputs[hidden.scores], match)


@dataclass(frozen=True)
class _Uncast(Pattern):
    """A value before casts to float, which it is already, as what it is made of is."""

    inside: Pattern

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        uncast = Once(op.Cast(_Uncast(self.inside), to=int(onnx_ir.DataType.FLOAT)))
        made = match.behind(value).producer()
        (uncast if made is not None and made.op_type == "Cast" else self.inside).meet(value, match)


def _masked(most: int) -> Pattern:
    """Return the pattern of a product that at most so many masks hide."""
    product = _Scaled(op.MatMul(Hole("queries"), Hole("keys")))
    if not most:
        return product
    fewer = _masked(most - 1)
    masked = _Hidden(fewer) | op.Add(fewer, _AnyMask())
    # sums of several masks are rounded once, behind the last one
    return product | (Rounding("scores", masked) if most == MOST_MASKS else Once(masked))


SHARES: Final = op.Softmax(_masked(MOST_MASKS), axis=[-1, RANK - 1])
ZERO: Final = That("0", lambda conversion, value: number_of_value(conversion, value) == 0.0)
GUARDED: Final = op.Where(Once(op.IsNaN(Hole("kept"))), ZERO, Hole("kept", Rounding("softmax", SHARES, readers=2)))
WEIGHTS: Final = _Uncast(Rounding("weights", GUARDED | _Uncast(Rounding("softmax", SHARES))))

HEADS_LAST = (0, 2, 1, 3)
"""[B, heads, S, features] to [B, S, heads, features], and back."""
KEYS_LAST = (0, 1, 3, 2)
"""[B, heads, T, features] to [B, heads, features, T]."""
KEYS_HEADS_LAST = (0, 3, 1, 2)
"""[B, heads, features, T] to [B, T, heads, features]."""


COMPARED_SINCE: Final = 12
"""Opset from which nodes can say which keys come later than a query: LessOrEqual takes int64."""


def attention_of(conversion: Conversion) -> Sequence[SSAValue] | None:
    """Return what a MatMul yields whose first operand are the weights of an attention; None for any other MatMul.

    Raises:
        NotCovered: it is an attention, on operands of other shapes.
    """
    weights, values = conversion.input(0), conversion.input(1)
    scores = None if weights is None else scores_of(conversion, weights)
    if scores is None or values is None:
        return None
    operands = _operands(conversion, scores, RowSteps.of(conversion, values))
    q, k, v = operands.q, operands.k, operands.v
    heads = _heads(*(conversion.sizes(value) for value in (q, k, v)), sharing=operands.sharing)
    samples, _, queries, key_size = conversion.sizes(q)
    keys, value_size = conversion.sizes(v)[2:]
    of_queries, of_keys = (Size.known(count) for count in heads)
    unrounded = (
        conversion.reshape(conversion.transpose(q, HEADS_LAST), (samples, queries, of_queries * key_size)),
        conversion.reshape(conversion.transpose(k, KEYS_HEADS_LAST), (samples, keys, of_keys * key_size)),
        conversion.reshape(conversion.transpose(v, HEADS_LAST), (samples, keys, of_keys * value_size)),
    )
    q, k, v = (steps.on(conversion, x) for steps, x in zip(operands.steps, unrounded, strict=True))
    mask = _sum_of_masks(conversion, scores.masks)
    form = PastAttentionOp if operands.past else AttentionOp
    attention = form((q, k, v), mask, heads, scores.weighting, operands.past)
    split = conversion.reshape(conversion.emit(attention).result, (samples, queries, of_queries, value_size))
    conversion.replaces([*scores.nodes, *operands.nodes])
    return [conversion.transpose(split, HEADS_LAST)]


class _Operands(NamedTuple):
    """Queries and values [B, heads, length, features], keys [B, heads, features, length], keys and values of a past."""

    q: SSAValue
    k: SSAValue
    v: SSAValue
    steps: tuple[RowSteps, RowSteps, RowSteps]
    """Steps on the rows of each, one after the other."""
    past: tuple[SSAValue, ...] = ()
    nodes: tuple[onnx_ir.Node, ...] = ()
    """Nodes that the attention stands for as well."""
    sharing: int = 1
    """Heads of queries that share a head of keys and of values."""


def _operands(conversion: Conversion, scores: Scores, values: RowSteps) -> _Operands:
    """Return the operands of an attention: what heads share once, those of the past apart."""
    queries, keys = scores.queries, scores.keys
    swapped = before_swap(conversion, keys.value)

    def whole() -> _Operands:
        q, k, v = (conversion.tensor_of(one.value) for one in (queries, keys, values))
        return _Operands(q, k, v, (queries, keys, values))

    if swapped is None:
        return whole()
    steps = queries, RowSteps(swapped.value, (*swapped.roundings, *keys.steps)), values
    shared = [Shared(value) for value in (swapped.value, values.value)]
    if conversion.scope.writes_opset >= COMPARED_SINCE:
        found = [shared_heads(conversion, one.value) for one in shared]
        shared = found if found[0].copies == found[1].copies else shared
    nodes = (*swapped.nodes, *shared[0].nodes, *shared[1].nodes)
    parts = [appended(conversion, one.value) for one in shared]
    past = [conversion.tensor_of(part.past) for part in parts if part is not None]
    # what is rounded is the past, too
    if len(past) == len(parts) and not any(one.steps for one in steps[1:]):
        own = [part.own for part in parts if part is not None]
    elif shared[0].copies == 1 and not swapped.roundings:
        return whole()
    else:
        past, own = [], [one.value for one in shared]
    q, k, v = (conversion.tensor_of(value) for value in (queries.value, *own))
    return _Operands(q, conversion.transpose(k, KEYS_LAST), v, steps, tuple(past), nodes, shared[0].copies)


def _sum_of_masks(conversion: Conversion, masks: Sequence[Mask]) -> SSAValue | None:
    """Return what is added to the scores by all masks together."""
    total: SSAValue | None = None
    for mask in masks:
        is_value = isinstance(mask, onnx_ir.Value)
        tensor = conversion.tensor_of(mask) if is_value else conversion.emit_constant(mask, "")
        tensor = mask_of(conversion, tensor)
        total = tensor if total is None else conversion.emit(AddOp(total, tensor)).result
    return total


def _heads(queries: SymbolicShape, keys: SymbolicShape, values: SymbolicShape, *, sharing: int) -> Heads:
    """Return the numbers of heads, those of keys and values shared by so many of queries."""
    fit = (
        len(queries) == len(keys) == len(values) == RANK
        and queries[0] == keys[0]
        and keys[:2] == values[:2]
        and queries[1] == keys[1] * Size.known(sharing)
        and (queries[3], keys[3]) == (keys[2], values[2])
    )
    if not fit:
        shapes = ", ".join(map(shape_words, (queries, keys, values)))
        raise NotCovered(f"expected samples of equal heads, got queries, keys and values {shapes}")
    if not all(is_known(size) and size.coefficient > 0 for size in (keys[1], queries[3], values[3])):
        raise NotCovered(f"expected known sizes of heads and features, got queries {shape_words(queries)}")
    return Heads(int(queries[1].coefficient), int(keys[1].coefficient))


def mask_of(conversion: Conversion, mask: SSAValue) -> SSAValue:
    """Return a mask with four axes.

    Raises:
        NotCovered: For a mask without axes, or with more than scores have.
    """
    sizes = conversion.sizes(mask)
    if not 0 < len(sizes) <= MASK_RANK:
        raise NotCovered(f"expected a mask of one to four axes, got {shape_words(sizes)}")
    missing = MASK_RANK - len(sizes)
    return conversion.reshape(mask, (ONE,) * missing + sizes) if missing else mask
