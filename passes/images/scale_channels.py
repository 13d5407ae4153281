"""Turn batch norms on images, and activations behind them, into convolutions of each channel by one pixel.

```mlir
%a = pebble.batch_norm %x scale %g bias %d mean %m variance %v epsilon 1.0e-05 : (tensor<?x4x8x8xf32>, ...) -> ...
%y = pebble.activate <relu> %a : ...
// ->
%y = pebble.depthwise2d %x, %w bias %b window <[1, 1] ...> activation <relu> : ...
```

They are those that no convolution took. Parameters that would overflow are left.
"""

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ...dialect.attributes.window import WindowAttr
from ...dialect.ops.constants import ConstantOp
from ...dialect.ops.elementwise import ActivateOp
from ...dialect.ops.images import Depthwise2dOp, ImageLayerOp, is_image_rank
from ...dialect.ops.layers import BatchNormOp
from ...dialect.tensors import DYNAMIC, shape_of
from ..analysis.per_feature_constants import affine_of_batch_norm
from ..rewriting.erase_unused import erase_unused
from ..rewriting.replacing import absorb, replace


class ScaleChannels(ModulePass):
    """Turn batch norms on images into convolutions."""

    name = "pebble-scale-channels"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not any(isinstance(found, ImageLayerOp) for found in op.walk()):
            return
        for found in [found for found in op.walk() if isinstance(found, BatchNormOp)]:
            shape = shape_of(found.x)
            if is_image_rank(len(shape)) and DYNAMIC not in shape[1:]:
                _replace(found)
        erase_unused(op.body)


def _replace(op: BatchNormOp) -> None:
    affine = affine_of_batch_norm(op)
    if affine is None:
        return
    with np.errstate(all="ignore"):
        scale, shift = affine.scale.astype(np.float32), affine.shift.astype(np.float32)
    if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        return
    weight, bias = ConstantOp(scale[None]), ConstantOp(shift)
    made = Depthwise2dOp(op.x, weight.result, bias.result, WindowAttr((1, 1)))
    reader = op.result.get_user_of_unique_use()
    replace(op, weight, bias, made)
    if isinstance(reader, ActivateOp):
        made.activation = reader.activation
        absorb(reader, made)
