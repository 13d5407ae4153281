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
operand is a part of the layer if it has the rows in their order, and of each the same outputs. Free sizes are two
primes, at which rows that are moved do not come to lie where they were.
"""

from typing import Final

import numpy as np
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.attention import AttentionOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.movement import ReshapeOp, SplitOp, TransposeOp
from ...dialect.semantics.interpreter import evaluate
from ...dialect.tensors import DYNAMIC, shape_of
from ..analysis.weights import Indices, constant_for, outputs_at
from .parameters import place_constant, set_bias
from .units import Layer

Movement = ReshapeOp | TransposeOp | SplitOp

FREE: Final = (3, 7)
"""Sizes of free axes, the first of them, and all others."""

MOST_LABELS: Final = 1 << 24
"""Values of a joint result that are looked at: layers over more tokens than that stay as they are."""


def take_apart(op: AttentionOp) -> bool:
    """Let three layers make queries, keys and values where one does; return whether one did."""
    linear = _source(op.q)
    if linear is None or {_source(value) for value in (op.k, op.v)} != {linear} or not Layer(linear).is_known:
        return False
    if linear.activation is not None or linear.times is not None or linear.precision is not None:
        return False
    parts = list[Indices]()
    for value in (op.q, op.k, op.v):
        outputs = _outputs_of(value, linear)
        if outputs is None or shape_of(value)[:-1] != shape_of(linear.result)[:-1]:
            return False
        parts.append(outputs)
    for index, outputs in enumerate(parts):
        op.operands[index] = _part(linear, outputs).result
    return True


def _part(linear: LinearOp, outputs: Indices) -> LinearOp:
    """Place a layer that makes some outputs of another one before it."""
    whole = Layer(linear)
    weight = place_constant(constant_for(outputs_at(whole.weight, outputs)), linear, None)
    made = LinearOp(linear.x, weight)
    assert linear.parent is not None
    linear.parent.insert_op_before(made, linear)
    set_bias(made, whole.bias[outputs])
    return made


def _source(value: SSAValue) -> LinearOp | None:
    """Return the layer whose result is moved to where a value is, if nothing else is done to it."""
    while isinstance(value.owner, Movement):
        value = value.owner.operands[0]
    return value.owner if isinstance(value.owner, LinearOp) else None


def _outputs_of(value: SSAValue, linear: LinearOp) -> Indices | None:
    """Return the outputs of a layer that a value has, None where its rows are others, or each has others."""
    path = list[tuple[Operation, int]]()
    while isinstance(value.owner, Movement):
        path.append((value.owner, [one is value for one in value.owner.results].index(True)))
        value = value.owner.operands[0]
    shape, free = list[int](), iter(FREE)
    for size in shape_of(linear.result):
        shape.append(next(free, FREE[-1]) if size == DYNAMIC else size)
    if np.prod(shape) > MOST_LABELS:
        return None
    labels = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    for op, result in reversed(path):
        labels = evaluate(op, [labels], np.float64)[result]
    rows = labels.reshape(-1, labels.shape[-1])
    outputs = rows[0].astype(np.int64)
    whole = np.arange(len(rows))[:, None] * shape[-1] + outputs
    is_part = (
        len(rows) * shape[-1] == np.prod(shape) and len(set(outputs)) == len(outputs) and outputs.max() < shape[-1]
    )
    return outputs if is_part and np.array_equal(rows, whole) else None
