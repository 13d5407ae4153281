"""A layer that makes queries, keys and values at once, taken apart into three that make a part of its outputs each.

```mlir
%j = pebble.linear %x, %w : (tensor<?x5x8xf32>, tensor<8x24xf32>) -> tensor<?x5x24xf32>
...  // reshaped, transposed, split
%y = pebble.attention %q, %k, %v heads 2 kv_heads 2 ...
// ->
%q = pebble.linear %x, %w_q : (tensor<?x5x8xf32>, tensor<8x8xf32>) -> tensor<?x5x8xf32>
...
```

What moves values on the way is run on numbers: each output of the layer is told by its number, each row by its own. An
operand is a part of the layer if it has the rows in their order, and of each the same outputs; rows [tokens, samples]
may come to be [samples, tokens], as in the attention that torch has: then the parts read a transposed x. Free sizes are
two primes, at which rows that are moved do not come to lie where they were.
"""

from typing import Final, NamedTuple

import numpy as np
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.attention import AttentionOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.movement import ReshapeOp, SplitOp, TransposeOp
from ...dialect.semantics.interpreter import evaluate
from ...dialect.tensors import DYNAMIC, shape_of
from ..analysis.weights import Indices, constant_for, has_outgoing, outputs_at
from .parameters import place_constant, set_bias
from .units import Layer

Movement = ReshapeOp | TransposeOp | SplitOp

FREE: Final = (3, 7)
"""Sizes of free axes, the first of them, and all others."""

TURNED: Final = (1, 0, 2)
"""Axes of rows [samples, tokens] that were [tokens, samples], or the other way round."""

MOST_LABELS: Final = 1 << 24
"""Values of a joint result that are looked at: layers over more tokens than that stay as they are."""


def take_apart(op: AttentionOp) -> bool:
    """Let three layers make queries, keys and values where one does; return whether one did."""
    linear = _source(op.q)
    if linear is None or {_source(value) for value in (op.k, op.v)} != {linear} or not Layer(linear).is_known:
        return False
    if linear.activation is not None or linear.times is not None or linear.precision is not None:
        return False
    parts = list[_Moved]()
    for value in (op.q, op.k, op.v):
        if (part := _moved(value, linear.result)) is None:
            return False
        parts.append(part)
    turned = linear.x
    if any(part.is_turned for part in parts):
        transpose = TransposeOp(linear.x, TURNED)
        _insert_before(linear, transpose)
        turned = transpose.result
    for index, part in enumerate(parts):
        x = turned if part.is_turned else linear.x
        op.operands[index] = _part(linear, x, part.features).result
    return True


def read_directly(op: AttentionOp) -> None:
    """Let layers that leave heads unread, and read results [tokens, samples], read them as they are: theirs are turned.

    ```mlir
    %y = pebble.attention %q, %k, %v heads 2 kv_heads 2 ... -> tensor<?x?x8xf32>
    ...  // reshaped, transposed
    %z = pebble.linear %t, %w : (tensor<?x?x8xf32>, tensor<8x4xf32>) -> tensor<?x?x4xf32>
    // ->
    %y_2 = pebble.linear %y, %w : (tensor<?x?x8xf32>, tensor<8x4xf32>) -> tensor<?x?x4xf32>
    %z = pebble.transpose %y_2 axes [1, 0, 2] : (tensor<?x?x4xf32>) -> tensor<?x?x4xf32>
    ```
    """
    linear = _reader(op.result)
    if linear is None or not Layer(linear).is_known or linear.times is not None or linear.precision is not None:
        return
    moved, read = _moved(linear.x, op.result), has_outgoing(Layer(linear).weight)
    if moved is None or not moved.is_turned or not np.array_equal(moved.features, np.arange(len(read))):
        return
    if read.reshape(op.head_counts.keys, -1).any(axis=1).all():
        return
    made = LinearOp(op.result, linear.weight, linear.bias, linear.activation)
    back = TransposeOp(made.result, TURNED)
    _insert_before(linear, made)
    _insert_before(linear, back)
    unused: Operation = linear
    linear.result.replace_all_uses_with(back.result)
    while not any(one.first_use for one in unused.results) and unused is not op:
        (before, *_) = unused.operands
        assert unused.parent is not None
        unused.parent.erase_op(unused)
        assert isinstance(before.owner, Operation)
        unused = before.owner


def _insert_before(place: Operation, op: Operation) -> None:
    assert place.parent is not None
    place.parent.insert_op_before(op, place)


def _part(linear: LinearOp, x: SSAValue, outputs: Indices) -> LinearOp:
    """Place a layer that makes some outputs of another one before it."""
    whole = Layer(linear)
    weight = place_constant(constant_for(outputs_at(whole.weight, outputs)), linear, None)
    made = LinearOp(x, weight)
    _insert_before(linear, made)
    set_bias(made, whole.bias[outputs])
    return made


def _reader(value: SSAValue) -> LinearOp | None:
    """Return the one layer that reads what a value becomes by movement alone, None where anything else does."""
    while (use := value.get_user_of_unique_use()) is not None:
        if isinstance(use, LinearOp):
            return use if use.x is value else None
        if not isinstance(use, ReshapeOp | TransposeOp):
            return None
        value = use.result
    return None


def _source(value: SSAValue) -> LinearOp | None:
    """Return the layer whose result is moved to where a value is, if nothing else is done to it."""
    while isinstance(value.owner, Movement):
        value = value.owner.operands[0]
    return value.owner if isinstance(value.owner, LinearOp) else None


class _Moved(NamedTuple):
    """Features that a value has of another one, in all rows, whose two axes may be exchanged."""

    features: Indices
    is_turned: bool


def _moved(value: SSAValue, source: SSAValue) -> _Moved | None:
    """Return what a value has of the one that it comes from, None where rows are others, or each has others."""
    found_shape, source_shape = shape_of(value), shape_of(source)
    path = list[tuple[Operation, int]]()
    while value is not source and isinstance(value.owner, Movement):
        path.append((value.owner, [one is value for one in value.owner.results].index(True)))
        value = value.owner.operands[0]
    shape, free = list[int](), iter(FREE)
    for size in source_shape:
        shape.append(next(free, FREE[-1]) if size == DYNAMIC else size)
    if np.prod(shape) > MOST_LABELS:
        return None
    labels = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    for op, result in reversed(path):
        labels = evaluate(op, [labels], np.float64)[result]
    rows = labels.reshape(-1, labels.shape[-1])
    outputs, numbers = rows[0].astype(np.int64), np.arange(len(rows))
    if len(rows) * shape[-1] != np.prod(shape) or len(set(outputs)) < len(outputs) or outputs.max() >= shape[-1]:
        return None
    if found_shape[:-1] == source_shape[:-1] and np.array_equal(rows, numbers[:, None] * shape[-1] + outputs):
        return _Moved(outputs, False)
    if len(shape) != len(TURNED) or found_shape[:-1] != source_shape[-2::-1]:
        return None
    numbers = numbers.reshape(shape[:-1]).T.reshape(-1)
    return _Moved(outputs, True) if np.array_equal(rows, numbers[:, None] * shape[-1] + outputs) else None
