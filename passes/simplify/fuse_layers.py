"""Let linear layers take the arithmetic around them: sums and products with constants, and the activation.

```mlir
%a = pebble.linear %x, %w : ...
%b = pebble.add %a, %c : ...
%d = pebble.mul %b, %s : ...
%y = pebble.activate <relu> %d : ...
// ->
%y = pebble.linear %x, %w_scaled bias %bias activation <relu> : ...
```

The same for constants in front of a layer, `linear (x * s + t)`. What is taken has one constant entry a feature (or one
for all) and no other reader; layers whose parameters would overflow or underflow take nothing. The layer keeps
the name of its node, and its result is called what the last op's result was called.
"""

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from ...dialect.ops.elementwise import ActivateOp, BinaryOp
from ...dialect.ops.layers import LinearOp, float_layers
from ..analysis.per_feature_constants import affine_of
from ..rewriting.erase_unused import erase_unused
from ..rewriting.parameters import (
    absorb_before,
    absorb_behind,
    has_constant_parameters,
)
from ..rewriting.replacing import absorb


class FuseLayers(ModulePass):
    """Fold constant arithmetic and activations into linear layers."""

    name = "pebble-fuse-layers"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        # in block order every layer first takes what is in front of it, then its followers one by one; what it leaves
        # is left for good, because only its own parameters decide
        for linear in [*float_layers(op.walk())]:
            while _takes_source(linear):
                pass
            while _takes_reader(linear):
                pass
        erase_unused(op.body)


def _takes_source(linear: LinearOp) -> bool:
    source = linear.x.owner
    if not isinstance(source, BinaryOp) or not linear.x.has_one_use() or not has_constant_parameters(linear):
        return False
    affine = affine_of(source)
    if affine is None or not absorb_before(affine, linear):
        return False
    Rewriter.erase_op(source)
    return True


def _takes_reader(linear: LinearOp) -> bool:
    if linear.activation is not None:
        return False
    reader = linear.result.get_user_of_unique_use()
    match reader:
        case ActivateOp():
            linear.activation = reader.activation
        case BinaryOp():
            affine = affine_of(reader)
            if affine is None or not has_constant_parameters(linear) or not absorb_behind(linear, affine):
                return False
        case _:
            return False
    absorb(reader, linear)
    return True
