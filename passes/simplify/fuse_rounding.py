"""Let linear layers and convolutions round their inputs, where their weights are rounded to bfloat16 already.

```mlir
%r = pebble.activate <bfloat16> %x : ...
%y = pebble.linear %r, %w : ...
// ->
%y = pebble.linear %x, %w precision "bf16" : ...
```

So a model says that a layer may compute with bfloat16: by two casts, there and back. Where a weight has more bits, or
none are known, values are rounded as written.
"""

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from ...dialect.ops.elementwise import ActivateOp
from ...dialect.ops.images import Conv2dOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.quantized_layers import BFLOAT
from ...foundation.bfloat import rounded_to_bfloat
from ...sparse.csr import CscMatrix
from ..analysis.weights import weight_of
from ..rewriting.erase_unused import erase_unused


class FuseRounding(ModulePass):
    """Let layers of rounded weights round what they read."""

    name = "pebble-fuse-rounding"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for layer in [one for one in op.walk() if isinstance(one, LinearOp | Conv2dOp)]:
            source = layer.x.owner
            if isinstance(source, ActivateOp) and source.activation.kind == "bfloat16" and _is_rounded(layer.weight):
                layer.operands[0] = source.x
                layer.precision = StringAttr(BFLOAT)
        erase_unused(op.body)


def _is_rounded(value: SSAValue) -> bool:
    weight = weight_of(value)
    if weight is None:
        return False
    entries = weight.values if isinstance(weight, CscMatrix) else weight
    return bool(np.array_equal(rounded_to_bfloat(entries), entries, equal_nan=True))
