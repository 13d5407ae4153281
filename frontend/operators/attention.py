"""Attention as exporters write it: what stands between the product of queries with keys and that with values.

```
scores  = MatMul(queries, keys)              [B, heads, S, T]; Mul or Div by a number on any of the three
hidden  = Where(seen, scores, -inf)          -inf or another number that hides; may be left out
weights = Softmax(Add(hidden, mask))         the mask may be left out; also Where after Add
weights = Where(IsNaN(weights), 0, weights)  written for masks that hide every key; may be left out
result  = MatMul(weights, values)            [B, heads, S, features]
```

The last product becomes `pebble.attention` on heads that lie side by side. The transposes around it undo those of the
exporter, and canonicalization drops both.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.dialect.ops.attention import MASK_RANK, AttentionOp, Heads, PastAttentionOp, Weighting
from redpebble.dialect.ops.elementwise import AddOp
from redpebble.dialect.symbolic_sizes import ONE, Size, SymbolicShape
from redpebble.frontend.folding.known_sizes import is_known, shape_words
from redpebble.frontend.folding.score_masks import HiddenScores, hidden_scores, mask_of_constant
from redpebble.frontend.operators.conversion import Conversion, NotCovered
from redpebble.frontend.operators.past_keys import RANK, appended, before_swap
from redpebble.frontend.operators.shared_heads import Shared, shared_heads

HEADS_LAST = (0, 2, 1, 3)
"""[B, heads, S, features] to [B, S, heads, features], and back."""
KEYS_LAST = (0, 1, 3, 2)
"""[B, heads, T, features] to [B, heads, features, T]."""
KEYS_HEADS_LAST = (0, 3, 1, 2)
"""[B, heads, features, T] to [B, T, heads, features]."""


MOST_STEPS: Final = 8
"""Operators one behind the other that a scale is computed by: each may read two others."""

COMPARED_SINCE: Final = 12
"""Opset from which nodes can say which keys come later than a query: LessOrEqual takes int64."""

MOST_MASKS: Final = 3
"""Masks behind each other that are added up."""

_Mask = onnx_ir.Value | NDArray[np.float32]


@dataclass
class _Scores:
    """The nodes behind the weights of a product with values."""

    scale: float = 1.0
    masks: tuple[_Mask, ...] = ()
    nan_as_zero: bool = False
    queries: onnx_ir.Value | None = None
    keys: onnx_ir.Value | None = None
    nodes: list[onnx_ir.Node] = field(default_factory=list[onnx_ir.Node])
    """The nodes that the attention stands for, beside the last product."""


def attention_of(conversion: Conversion) -> Sequence[SSAValue] | None:
    """Return what a MatMul yields whose first operand are the weights of an attention; None for any other MatMul.

    Raises:
        NotCovered: it is an attention, on operands of other shapes.
    """
    weights, values = conversion.input(0), conversion.input(1)
    scores = None if weights is None else _Reader(conversion).scores_of(weights)
    if scores is None or scores.queries is None or scores.keys is None or values is None:
        return None
    operands = _operands(conversion, scores.queries, scores.keys, values)
    q, k, v = operands.q, operands.k, operands.v
    heads = _heads(*(conversion.sizes(value) for value in (q, k, v)), sharing=operands.sharing)
    samples, _, queries, key_size = conversion.sizes(q)
    keys, value_size = conversion.sizes(v)[2:]
    of_queries, of_keys = (Size.known(count) for count in heads)
    rows = (
        conversion.reshape(conversion.transpose(q, HEADS_LAST), (samples, queries, of_queries * key_size)),
        conversion.reshape(conversion.transpose(k, KEYS_HEADS_LAST), (samples, keys, of_keys * key_size)),
        conversion.reshape(conversion.transpose(v, HEADS_LAST), (samples, keys, of_keys * value_size)),
    )
    mask = _sum_of_masks(conversion, scores.masks)
    weighting = Weighting(scores.scale, nan_as_zero=scores.nan_as_zero)
    form = PastAttentionOp if operands.past else AttentionOp
    op = form(rows, mask, heads, weighting, operands.past)
    split = conversion.reshape(conversion.emit(op).result, (samples, queries, of_queries, value_size))
    conversion.replaces([*scores.nodes, *operands.nodes])
    return [conversion.transpose(split, HEADS_LAST)]


class _Operands(NamedTuple):
    """Queries and values [B, heads, length, features], keys [B, heads, features, length], keys and values of a past."""

    q: SSAValue
    k: SSAValue
    v: SSAValue
    past: tuple[SSAValue, ...] = ()
    nodes: tuple[onnx_ir.Node, ...] = ()
    """Nodes that the attention stands for as well."""
    sharing: int = 1
    """Heads of queries that share a head of keys and of values."""


def _operands(conversion: Conversion, queries: onnx_ir.Value, keys: onnx_ir.Value, values: onnx_ir.Value) -> _Operands:
    """Return the operands of an attention: what heads share once, those of the past apart."""
    swapped = before_swap(conversion, keys)
    if swapped is None:
        q, k, v = (conversion.tensor_of(value) for value in (queries, keys, values))
        return _Operands(q, k, v)
    shared = [Shared(value) for value in (swapped.value, values)]
    if conversion.scope.writes_opset >= COMPARED_SINCE:
        found = [shared_heads(conversion, one.value) for one in shared]
        shared = found if found[0].copies == found[1].copies else shared
    nodes = (*swapped.nodes, *shared[0].nodes, *shared[1].nodes)
    parts = [appended(one.value) for one in shared]
    past = [conversion.tensor_of(part.past) for part in parts if part is not None]
    if len(past) == len(parts):
        own = [part.own for part in parts if part is not None]
    elif shared[0].copies == 1:
        q, k, v = (conversion.tensor_of(value) for value in (queries, keys, values))
        return _Operands(q, k, v)
    else:
        past, own = [], [one.value for one in shared]
    q, k, v = (conversion.tensor_of(value) for value in (queries, *own))
    return _Operands(q, conversion.transpose(k, KEYS_LAST), v, tuple(past), nodes, shared[0].copies)


def _sum_of_masks(conversion: Conversion, masks: Sequence[_Mask]) -> SSAValue | None:
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
        raise NotCovered(f"queries, keys and values are {shapes}, accepted are samples of equal heads")
    if not all(is_known(size) and size.coefficient > 0 for size in (keys[1], queries[3], values[3])):
        raise NotCovered(f"queries are {shape_words(queries)}, accepted are known sizes of heads and features")
    return Heads(int(queries[1].coefficient), int(keys[1].coefficient))


def mask_of(conversion: Conversion, mask: SSAValue) -> SSAValue:
    """Return a mask with four axes.

    Raises:
        NotCovered: For a mask without axes, or with more than scores have.
    """
    sizes = conversion.sizes(mask)
    if not 0 < len(sizes) <= MASK_RANK:
        raise NotCovered(f"the mask is {shape_words(sizes)}, accepted are one to four axes")
    missing = MASK_RANK - len(sizes)
    return conversion.reshape(mask, (ONE,) * missing + sizes) if missing else mask


@dataclass(frozen=True)
class _Reader:
    """Facts of the nodes before the one that is converted."""

    conversion: Conversion

    def scores_of(self, weights: onnx_ir.Value) -> _Scores | None:
        """Return what the weights of an attention are made of; None where they are no such."""
        found = _Scores()
        weights = self._uncast(self._without_guard(self._uncast(weights, found), found), found)
        softmax = self._producer(weights, "Softmax", found, uses=2 if found.nan_as_zero else 1)
        if softmax is None or not self._is_last_axis(softmax) or softmax.inputs[0] is None:
            return None
        masked = self._masked(softmax.inputs[0], MOST_MASKS)
        if masked is None:
            return None
        found.masks = masked.masks
        found.nodes += masked.nodes
        product = self._producer(self._unscaled(masked.scores, found), "MatMul", found)
        if product is None or None in product.inputs:
            return None
        queries, keys = product.inputs
        assert queries is not None
        assert keys is not None
        found.queries, found.keys = self._unscaled_operand(queries, found), self._unscaled_operand(keys, found)
        return found

    def _producer(self, value: onnx_ir.Value, operator: str, found: _Scores, uses: int = 1) -> onnx_ir.Node | None:
        """Return the node that yields a value, if it has that operator and nothing else reads it."""
        node = value.producer()
        if node is None or node.domain != "" or node.op_type != operator:
            return None
        if len(value.uses()) != uses or value.is_graph_output():
            return None
        found.nodes.append(node)
        return node

    def _uncast(self, value: onnx_ir.Value, found: _Scores) -> onnx_ir.Value:
        """Return a value before casts to float, which it is already, as what it is made of is."""
        while (cast := value.producer()) is not None and cast.op_type == "Cast" and cast.inputs[0] is not None:
            to_float = cast.attributes.get_int("to", 0) == onnx_ir.DataType.FLOAT
            if not to_float or self._producer(value, "Cast", found) is None:
                return value
            value = cast.inputs[0]
        return value

    def _without_guard(self, weights: onnx_ir.Value, found: _Scores) -> onnx_ir.Value:
        """Return the weights before `Where(IsNaN(weights), 0, weights)`."""
        where = weights.producer()
        if where is None or where.op_type != "Where" or None in where.inputs:
            return weights
        condition, zero, kept = where.inputs
        assert condition is not None
        assert zero is not None
        assert kept is not None
        test = condition.producer()
        if test is None or test.op_type != "IsNaN" or test.inputs[0] is not kept or self._number(zero) != 0.0:
            return weights
        if self._producer(weights, "Where", found) is None or self._producer(condition, "IsNaN", found) is None:
            return weights
        found.nan_as_zero = True
        return kept

    def _is_last_axis(self, softmax: onnx_ir.Node) -> bool:
        default = -1 if self.conversion.opset >= 13 else 1
        axis = softmax.attributes.get("axis")
        return (default if axis is None else axis.as_int()) in (-1, RANK - 1)

    def _masked(self, scores: onnx_ir.Value, most: int) -> "_Masked | None":
        """Return the product that at most so many masks hide; None where there is none."""
        if self._producer(self._unscaled(scores, trial := _Scores()), "MatMul", trial) is not None:
            return _Masked(scores, (), ())
        node = scores.producer()
        if node is None or most == 0 or self._producer(scores, node.op_type, _Scores()) is None:
            return None
        for before, mask in self._masks(node):
            masked = self._masked(before, most - 1)
            if masked is not None:
                return _Masked(masked.scores, (*masked.masks, mask), (*masked.nodes, node))
        return None

    def _masks(self, node: onnx_ir.Node) -> Iterator[tuple[onnx_ir.Value, _Mask]]:
        """Yield the inputs of a node that may be scores and a mask."""
        version = self.conversion.scope.ir_version
        hidden = hidden_scores(node, version)
        if hidden is not None and (scores := node.inputs[hidden.scores]) is not None:
            mask = self._mask_of_where(node, hidden)
            if mask is not None:
                yield scores, mask
        if node.op_type == "Add" and len(node.inputs) == 2:
            for one, other in (node.inputs, node.inputs[::-1]):
                if one is not None and other is not None:
                    yield one, other

    def _mask_of_where(self, where: onnx_ir.Node, hidden: HiddenScores) -> _Mask | None:
        """Return the mask that may be added instead of a Where: a value of the graph, or numbers."""
        condition = where.inputs[0]
        seen = None if condition is None else self.conversion.scope.constant_of(condition)
        return self.conversion.scope.score_masks.get(where) if seen is None else mask_of_constant(seen, hidden)

    def _unscaled(self, value: onnx_ir.Value, found: _Scores) -> onnx_ir.Value:
        """Return a value before it is multiplied with numbers or divided by them, which nothing else reads."""
        while True:
            scaled = self._scaled(value)
            if scaled is None or self._producer(value, scaled.operator, found) is None:
                return value
            found.scale *= scaled.factor
            value = scaled.before

    def _unscaled_operand(self, value: onnx_ir.Value, found: _Scores) -> onnx_ir.Value:
        """Return a value before it is multiplied with numbers or divided by them."""
        while (scaled := self._scaled(value)) is not None:
            found.scale *= scaled.factor
            value = scaled.before
        return value

    def _scaled(self, value: onnx_ir.Value) -> "_Scaled | None":
        node = value.producer()
        if node is None or node.domain != "" or node.op_type not in ("Mul", "Div") or None in node.inputs:
            return None
        left, right = node.inputs
        assert left is not None
        assert right is not None
        number = self._number(right)
        if number is not None and node.op_type == "Div":
            return _Scaled("Div", left, 1.0 / number) if number else None
        if number is not None:
            return _Scaled("Mul", left, number)
        number = self._number(left)
        return _Scaled("Mul", right, number) if number is not None and node.op_type == "Mul" else None

    def _number(self, value: onnx_ir.Value, most: int = MOST_STEPS) -> float | None:
        """Return the only number of a float constant that widens nothing, or one that follows from sizes, else None."""
        array = self.conversion.scope.constant_of(value)
        if array is not None:
            single = array.dtype == np.float32 and array.size == 1 and array.ndim <= 1
            return float(array.reshape(-1)[0]) if single else None
        node = value.producer()
        if node is None or node.domain != "" or None in node.inputs or most == 0:
            return None
        operands = [operand for operand in node.inputs if operand is not None]
        if node.op_type == "Cast":
            to_float = node.attributes.get_int("to", 0) == onnx_ir.DataType.FLOAT
            return (self._size(operands[0]) or self._number(operands[0], most - 1)) if to_float else None
        numbers = [self._number(operand, most - 1) for operand in operands] if node.op_type in ("Sqrt", "Div") else []
        match numbers:
            case [float() as number] if number >= 0.0:
                return math.sqrt(number)
            case [float() as number, float() as divisor] if divisor != 0.0:
                return number / divisor
            case _:
                return None

    def _size(self, value: onnx_ir.Value) -> float | None:
        """Return an integer that follows from sizes and is the same in every call, else None."""
        known = self.conversion.scope.shape_value_of(value)
        if known is None or len(known.sizes) != 1 or not is_known(known.sizes[0]):
            return None
        return float(known.sizes[0].coefficient)


class _Masked(NamedTuple):
    """Scores, the masks that are added to them, and the nodes that do so."""

    scores: onnx_ir.Value
    masks: tuple[_Mask, ...]
    nodes: tuple[onnx_ir.Node, ...]


@dataclass(frozen=True)
class _Scaled:
    """A value times a number, and the node that says so."""

    operator: str
    before: onnx_ir.Value
    factor: float
