"""Keys and values as exporters hand them to a product: appended to those of the past, swapped, repeated for heads.

```
present_key   = Concat(past_key, own_key)       [B, heads, P + T, features], along the length
present_value = Concat(past_value, own_value)   [B, heads, P + T, features]
keys          = Transpose(present_key)          [B, heads, features, P + T]; or Reshape, Transpose, Reshape
```

Attention reads both parts where they are. The Concats stay for the next step, which is all that needs them. Keys and
values that several heads of queries share are repeated before these read them:

```
one    = Unsqueeze(keys, 2)      [B, kv_heads, 1, T, features]
copies = Expand(one, shape)      [B, kv_heads, copies, T, features]
result = Reshape(copies, shape)  [B, kv_heads copies, T, features]
```

or, as we write it, `Gather(keys, {0, 0, 1, 1}, axis 1)` for two heads with two copies each.
"""

from typing import Final, NamedTuple

import numpy as np
import onnx_ir

from ....dialect.attributes.activations import ActivationAttr
from ....dialect.symbolic_sizes import ONE, SymbolicShape
from ...folding.known_sizes import is_known
from ..conversion import Conversion, NotCovered
from ..patterns import ANY, Hole, matched, op
from ..row_steps import Rounding

RANK = 4
ROWS_RANK = 3
"""Axes of rows, [B, S, heads features]."""

LENGTH = 2
"""The axis of keys, in [B, heads, keys, features]."""

APPENDED: Final = op.Concat(Hole("past"), Hole("own"), axis=[LENGTH, LENGTH - RANK])

# [B, heads, T, features] -> [B heads, T, features] -> [B heads, features, T] -> [B, heads, features, T]
ROWS: Final = Hole("rows", op.Reshape(Hole("keys"), ANY))
SWAPPED_ROWS: Final = op.Reshape(
    Rounding("last", op.Transpose(Rounding("first", ROWS, readers=None), perm=(0, 2, 1)), readers=None), ANY
)
SWAPPED: Final = op.Transpose(Hole("keys"), perm=(0, 1, 3, 2)) | SWAPPED_ROWS

TAKEN: Final = op.Gather(Hole("value"), Hole("places"), axis=1)
REPEATED: Final = op.Reshape(Hole("copies", op.Expand(Hole("one", op.Unsqueeze(Hole("value"), ANY)), ANY)), ANY)


class Appended(NamedTuple):
    """Keys or values [B, heads, keys, features] in two parts."""

    past: onnx_ir.Value
    own: onnx_ir.Value


def appended(conversion: Conversion, values: onnx_ir.Value) -> Appended | None:
    """Return the parts of keys or values [B, heads, T, features]; None where they are in one."""
    match = matched(conversion, APPENDED, values)
    return None if match is None else Appended(match.value("past"), match.value("own"))


class BeforeSwap(NamedTuple):
    """Keys [B, heads, T, features], the nodes that swap their last two axes, and what is rounded between these."""

    value: onnx_ir.Value
    nodes: tuple[onnx_ir.Node, ...]
    roundings: tuple[ActivationAttr, ...] = ()


def before_swap(conversion: Conversion, keys: onnx_ir.Value) -> BeforeSwap | None:
    """Return the value whose last two axes were swapped, and the nodes that did so."""
    match = matched(conversion, SWAPPED, keys)
    if match is None:
        return None
    value = match.value("keys")
    if "rows" in match.holes:
        chain = (value, match.value("rows"), keys)
        before, inside, after = (sizes_of_value(conversion, step) for step in chain)
        if len(before) != RANK or inside[1:] != before[2:] or after != (*before[:2], before[3], before[2]):
            return None
    roundings = (*match.items("first", ActivationAttr), *match.items("last", ActivationAttr))
    return BeforeSwap(value, tuple(match.nodes), roundings)


class Shared(NamedTuple):
    """Keys or values [B, kv_heads, T, features], how many heads of queries share each, and the nodes behind them."""

    value: onnx_ir.Value
    copies: int = 1
    nodes: tuple[onnx_ir.Node, ...] = ()


def shared_heads(conversion: Conversion, value: onnx_ir.Value) -> Shared:
    """Return what keys or values [B, heads, T, features] repeat: themselves where they repeat nothing."""
    match = matched(conversion, TAKEN | REPEATED, value)
    source = value if match is None else match.value("value")
    before = sizes_of_value(conversion, source)
    if match is None or len(before) != RANK:
        return Shared(value)
    if "places" in match.holes:
        # one head after the other, each as often
        places, heads = match.constant(match.value("places")), before[1].constant
        if places is None or not heads or places.ndim != 1 or not places.size or places.size % heads:
            return Shared(value)
        copies = places.size // heads
        is_repeated = np.array_equal(places, np.arange(heads).repeat(copies))
    else:
        chain = (match.value("one"), match.value("copies"), value)
        one, more, after = (sizes_of_value(conversion, step) for step in chain)
        if one != (*before[:2], ONE, *before[2:]) or len(more) != RANK + 1 or not is_known(more[2]):
            return Shared(value)
        copies, is_wide = int(more[2].coefficient), more == (*before[:2], more[2], *before[2:])
        is_repeated = is_wide and after == (before[0], before[1] * more[2], *before[2:])
    return Shared(source, copies, tuple(match.nodes)) if is_repeated else Shared(value)


def sizes_of_value(conversion: Conversion, value: onnx_ir.Value) -> SymbolicShape:
    """Return the sizes of a float value of the graph, none where they are not known."""
    try:
        return conversion.sizes(conversion.tensor_of(value))
    except NotCovered:
        return ()
