"""Fold batch norms with constant parameters into the linear layer before or behind them.

```mlir
%h = pebble.linear %x, %w bias %b : ...
%y = pebble.batch_norm %h scale %g bias %d mean %m variance %v epsilon 1.0e-05 : ...
// ->
%y = pebble.linear %x, %w_scaled bias %b_scaled : ...
```

Like onnxruntime, a batch norm is x * s + t for every index of axis 1, with s = scale / sqrt(variance + epsilon) and
t = bias - mean * s. The layer before takes it where it has no activation and no other reader, the layer behind where it
is the only reader; both need rank 2, where axis 1 holds the features. Elsewhere `pebble.mul` and `pebble.add` with
constants take its place, or it stays as it is with the option `keep`.
"""

from dataclasses import dataclass

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from ...dialect.ops.constants import ConstantOp
from ...dialect.ops.elementwise import AddOp, MulOp
from ...dialect.ops.layers import BatchNormOp, LinearOp
from ...dialect.provenance import origin_of, set_provenance
from ...dialect.tensors import shape_of
from ..analysis.per_feature_constants import Affine, affine_of_batch_norm
from ..rewriting.erase_unused import erase_unused
from ..rewriting.parameters import (
    absorb_before,
    absorb_behind,
    has_constant_parameters,
)
from ..rewriting.replacing import absorb, replace


@dataclass(frozen=True)
class FoldBatchNorm(ModulePass):
    """Fold batch norms into linear layers, or into a product and a sum."""

    name = "pebble-fold-batch-norm"

    keep: bool = False
    """Leave a batch norm that no layer takes as it is."""
    into_layers: bool = True
    """Let layers take them; else each becomes a product and a sum, and weights stay what they are."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for candidate in list(op.walk()):
            if not isinstance(candidate, BatchNormOp):
                continue
            affine = affine_of_batch_norm(candidate)
            if affine is None or (self.into_layers and _folded_into_layer(candidate, affine)) or self.keep:
                continue
            _replace_by_product_and_sum(candidate, affine)
        erase_unused(op.body)


def _folded_into_layer(op: BatchNormOp, affine: Affine) -> bool:
    if len(shape_of(op.x)) != 2:
        return False
    before = op.x.owner
    if (
        isinstance(before, LinearOp)
        and before.activation is None
        and op.x.has_one_use()
        and has_constant_parameters(before)
        and absorb_behind(before, affine)
    ):
        absorb(op, before)
        return True
    behind = op.result.get_user_of_unique_use()
    if not isinstance(behind, LinearOp) or behind.x is not op.result or not has_constant_parameters(behind):
        return False
    if not absorb_before(affine, behind):
        return False
    Rewriter.erase_op(op)
    return True


def _replace_by_product_and_sum(op: BatchNormOp, affine: Affine) -> None:
    shape = (-1,) + (1,) * (len(shape_of(op.x)) - 2)
    with np.errstate(over="ignore"):
        scale = ConstantOp(affine.scale.astype(np.float32).reshape(shape))
        shift = ConstantOp(affine.shift.astype(np.float32).reshape(shape))
    product = MulOp(op.x, scale.result)
    total = AddOp(product.result, shift.result)
    set_provenance(product, origin_of(op), [])
    replace(op, scale, shift, product, total)
