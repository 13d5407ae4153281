"""Keys and values of the past, as the step of a decoder gets them: `present = Concat(past, own)`, along the length.

```
present_key   = Concat(past_key, own_key)       [B, heads, P + T, features]
keys          = Transpose(present_key)          [B, heads, features, P + T]; or Reshape, Transpose, Reshape
present_value = Concat(past_value, own_value)   [B, heads, P + T, features]
```

Attention reads both parts where they are. The Concats stay for the next step, which is all that needs them.
"""

from typing import NamedTuple

import onnx_ir

from ....dialect.attributes.activations import ActivationAttr
from ....dialect.symbolic_sizes import SymbolicShape
from ..conversion import Conversion, NotCovered
from ..row_steps import rounded

RANK = 4
LENGTH = 2
"""The axis of keys, in [B, heads, keys, features]."""


class Appended(NamedTuple):
    """Keys or values [B, heads, keys, features] in two parts."""

    past: onnx_ir.Value
    own: onnx_ir.Value


def appended(values: onnx_ir.Value) -> Appended | None:
    """Return the parts of keys or values [B, heads, T, features]; None where they are in one."""
    concat = producer_of(values, "Concat")
    if concat is None or len(concat.inputs) != 2 or concat.attributes.get_int("axis", 0) not in (LENGTH, LENGTH - RANK):
        return None
    past, own = concat.inputs
    return None if past is None or own is None else Appended(past, own)


class BeforeSwap(NamedTuple):
    """Keys [B, heads, T, features], the nodes that swap their last two axes, and what is rounded between these."""

    value: onnx_ir.Value
    nodes: tuple[onnx_ir.Node, ...]
    roundings: tuple[ActivationAttr, ...] = ()


def before_swap(conversion: Conversion, keys: onnx_ir.Value) -> BeforeSwap | None:
    """Return the value whose last two axes were swapped, and the nodes that did so."""
    transpose = producer_of(keys, "Transpose")
    if transpose is not None and transpose.inputs[0] is not None:
        return BeforeSwap(transpose.inputs[0], (transpose,)) if _axes(transpose) == (0, 1, 3, 2) else None
    heads_apart = producer_of(keys, "Reshape")
    swapped_rows, last = _unrounded(conversion, heads_apart)
    rows = producer_of(swapped_rows, "Transpose")
    joined_rows, first = _unrounded(conversion, rows)
    joined = producer_of(joined_rows, "Reshape")
    if heads_apart is None or rows is None or joined is None or joined.inputs[0] is None or _axes(rows) != (0, 2, 1):
        return None
    before, inside, after = (
        sizes_of_value(conversion, value) for value in (joined.inputs[0], joined.outputs[0], heads_apart.outputs[0])
    )
    # [B, heads, T, features] -> [B heads, T, features] -> [B heads, features, T] -> [B, heads, features, T]
    swapped = len(before) == RANK and inside[1:] == before[2:] and after == (*before[:2], before[3], before[2])
    return BeforeSwap(joined.inputs[0], (joined, rows, heads_apart), (*first, *last)) if swapped else None


def _unrounded(
    conversion: Conversion, node: onnx_ir.Node | None
) -> tuple[onnx_ir.Value | None, tuple[ActivationAttr, ...]]:
    """Return the input of a node before it is rounded to codes, and to which."""
    if node is None or node.inputs[0] is None:
        return None, ()
    found = rounded(conversion, node.inputs[0])
    return (node.inputs[0], ()) if found is None else (found.before, (found.rounding,))


def _axes(transpose: onnx_ir.Node) -> tuple[int, ...]:
    attribute = transpose.attributes.get("perm")
    return () if attribute is None else tuple(attribute.as_ints())


def sizes_of_value(conversion: Conversion, value: onnx_ir.Value) -> SymbolicShape:
    """Return the sizes of a float value of the graph, none where they are not known."""
    try:
        return conversion.sizes(conversion.tensor_of(value))
    except NotCovered:
        return ()


def producer_of(value: onnx_ir.Value | None, operator: str) -> onnx_ir.Node | None:
    """Return the node that yields a value where it has that operator of ONNX, else None."""
    node = None if value is None else value.producer()
    return node if node is not None and node.domain == "" and node.op_type == operator else None
