"""Keys and values that several heads of queries share, as exporters repeat them for a plain product.

```
one    = Unsqueeze(keys, 2)      [B, kv_heads, 1, T, features]
copies = Expand(one, shape)      [B, kv_heads, copies, T, features]
result = Reshape(copies, shape)  [B, kv_heads copies, T, features]
```

or, as we write it, `Gather(keys, {0, 0, 1, 1}, axis 1)` for two heads with two copies each.

Attention reads the keys where they are.
"""

from typing import NamedTuple

import numpy as np
import onnx_ir

from ....dialect.symbolic_sizes import ONE
from ...folding.known_sizes import is_known
from ..conversion import Conversion
from .past_keys import RANK, producer_of, sizes_of_value


class Shared(NamedTuple):
    """Keys or values [B, kv_heads, T, features], how many heads of queries share each, and the nodes behind them."""

    value: onnx_ir.Value
    copies: int = 1
    nodes: tuple[onnx_ir.Node, ...] = ()


def shared_heads(conversion: Conversion, value: onnx_ir.Value) -> Shared:
    """Return what keys or values [B, heads, T, features] repeat: themselves where they repeat nothing."""
    gathered = producer_of(value, "Gather")
    if gathered is not None:
        return _gathered(conversion, gathered) or Shared(value)
    joined = producer_of(value, "Reshape")
    expanded = None if joined is None else producer_of(joined.inputs[0], "Expand")
    apart = None if expanded is None else producer_of(expanded.inputs[0], "Unsqueeze")
    source = None if apart is None else apart.inputs[0]
    if joined is None or expanded is None or apart is None or source is None:
        return Shared(value)
    chain = (source, apart.outputs[0], expanded.outputs[0], value)
    before, one, more, after = (sizes_of_value(conversion, step) for step in chain)
    if len(before) != RANK or one != (*before[:2], ONE, *before[2:]) or len(more) != RANK + 1 or not is_known(more[2]):
        return Shared(value)
    repeated = more == (*before[:2], more[2], *before[2:]) and after == (before[0], before[1] * more[2], *before[2:])
    return Shared(source, int(more[2].coefficient), (apart, expanded, joined)) if repeated else Shared(value)


def _gathered(conversion: Conversion, node: onnx_ir.Node) -> Shared | None:
    """Return what a Gather takes one head after the other of, each as often; None where it takes anything else."""
    source, index = node.inputs
    places = None if index is None else conversion.scope.constant_of(index)
    if source is None or places is None or places.ndim != 1 or node.attributes.get_int("axis", 0) != 1:
        return None
    before = sizes_of_value(conversion, source)
    heads = before[1].constant if len(before) == RANK else None
    if not heads or places.size == 0 or places.size % heads:
        return None
    copies = places.size // heads
    return Shared(source, copies, (node,)) if np.array_equal(places, np.arange(heads).repeat(copies)) else None
