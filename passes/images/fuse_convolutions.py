"""Let convolutions take what follows them: batch norms, constants of channels, sums with an earlier value, activations.

```mlir
%a = pebble.conv2d %x, %w window <...> : ...
%b = pebble.batch_norm %a scale %g bias %d mean %m variance %v epsilon 1.0e-05 : ...
%c = pebble.add %b, %x : ...
%y = pebble.activate <relu> %c : ...
// ->
%y = pebble.conv2d %x, %w_scaled bias %b_scaled residual %x window <...> activation <relu> : ...
```

So do those whose channels become pixels, of what stands behind these.
What is taken has no other reader. A depthwise convolution takes no sum. Parameters that would overflow are not taken.
A convolution on codes takes an activation, and then the codes that it is rounded to, which may end where a clip does.
What has been rounded to codes, or will be by all that read it from elsewhere, is not rounded to the same ones again.
"""

from typing import TypeVar

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.attributes.codes import CodesAttr
from ...dialect.ops.constants import ConstantOp, constant_array, is_constant
from ...dialect.ops.elementwise import ActivateOp, AddOp, BinaryOp
from ...dialect.ops.foreign import ForeignOp
from ...dialect.ops.images import Conv2dOp, Depthwise2dOp, Interleave2dOp, Pool2dOp, QuantizedConv2dOp, spreads_of
from ...dialect.ops.layers import BatchNormOp
from ...dialect.provenance import keep_value_name
from ..analysis.per_feature_constants import Affine, affine_of_batch_norm, affine_of_channels
from ..analysis.weights import constant_for, entries_of, scaled_outputs, weight_of
from ..rewriting.erase_unused import erase_unused
from ..rewriting.parameters import place_constant
from ..rewriting.replacing import absorb, replace


class FuseConvolutions(ModulePass):
    """Fold batch norms, sums and activations into convolutions."""

    name = "pebble-fuse-convolutions"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for found in [found for found in op.walk() if isinstance(found, Conv2dOp | Depthwise2dOp)]:
            conv: Conv2dOp | Depthwise2dOp | None = found
            while conv is not None:
                conv = _with_reader(conv)
        for found in [found for found in op.walk() if isinstance(found, QuantizedConv2dOp)]:
            while _takes_reader(found):
                pass
        for found in [found for found in op.walk() if isinstance(found, ActivateOp)]:
            if _rounded(found.x) == found.activation or _is_repeated(found):
                keep_value_name(found.result, found.x)
                Rewriter.replace_op(found, [], [found.x])
        erase_unused(op.body)


def _takes_reader(conv: QuantizedConv2dOp) -> bool:
    """Let a convolution on codes apply its reader's activation, or round to its codes; return whether it does."""
    reader = conv.result.get_user_of_unique_use()
    if isinstance(reader, AddOp) and conv.codes.is_dynamic and conv.activation is None:
        return _takes_addend(conv, reader)
    if not isinstance(reader, ActivateOp) or conv.output is not None:
        return False
    if reader.activation.kind == "quantize":
        if conv.codes.is_dynamic:
            return False
        scale, zero = reader.activation.values
        conv.output = CodesAttr("u8", scale, int(zero))
        if conv.activation is not None and _ends_at_codes(conv.activation, conv.output):
            del conv.properties["activation"]
    elif conv.activation is None:
        conv.activation = reader.activation
    else:
        return False
    absorb(reader, conv)
    return True


def _ends_at_codes(activation: ActivationAttr, codes: CodesAttr) -> bool:
    """Return whether an activation cuts what has the first or the last code anyway, and leaves all else."""
    if activation.kind != "clip":
        return False
    ends = np.array(activation.values, np.float32) / np.float32(codes.scale)
    return [int(step) + codes.zero for step in codes.steps(ends)] == [codes.least, codes.greatest]


def _takes_addend(conv: QuantizedConv2dOp, reader: AddOp) -> bool:
    """Let a convolution whose codes are found at each call add a constant for each channel; return whether it does."""
    added = constant_array(reader.right if reader.left is conv.result else reader.left)
    bias = constant_array(conv.bias)
    # after a second sum, results are rounded twice
    if added is None or bias is None or np.any(bias) or spreads_of(reader) is None:
        return False
    entries = np.broadcast_to(added.reshape(-1), bias.shape).astype(np.float32)
    conv.operands[list(conv.operands).index(conv.bias)] = place_constant(ConstantOp(entries), conv, conv.bias)
    absorb(reader, conv)
    return True


def _is_repeated(op: ActivateOp) -> bool:
    """Return whether all that reads what an op rounds, of values from elsewhere, rounds it to the same codes."""
    if op.activation.kind != "quantize" or not isinstance(op.x.owner, Block | ForeignOp):
        return False
    readers = [use.operation for use in op.result.uses]
    return bool(readers) and all(
        isinstance(reader, QuantizedConv2dOp) and not reader.codes.is_dynamic and reader.codes.rounding == op.activation
        for reader in readers
    )


def _rounded(value: SSAValue) -> ActivationAttr | None:
    """Return the activation that has rounded a value, None for none."""
    match value.owner:
        case ActivateOp() as op if op.activation.kind == "quantize":
            return op.activation
        case QuantizedConv2dOp(output=CodesAttr() as output):
            return output.rounding
        case Pool2dOp() as op if op.kind.data == "max":
            return _rounded(op.x)
        case _:
            return None


def _with_reader(conv: Conv2dOp | Depthwise2dOp) -> Conv2dOp | Depthwise2dOp | None:
    """Return a convolution that computes what its only reader did; None where it cannot."""
    if conv.activation is not None:
        return None
    reader, between = conv.result.get_user_of_unique_use(), None
    if isinstance(reader, Interleave2dOp):
        between, reader = reader, reader.result.get_user_of_unique_use()
    made = None
    match reader:
        case ActivateOp():
            conv.activation = reader.activation
            made = conv
        case BatchNormOp():
            made = _with_affine(conv, _spread(affine_of_batch_norm(reader), conv, between))
        case BinaryOp():
            made = _with_affine(conv, _spread(affine_of_channels(reader), conv, between))
            if made is None and between is None and isinstance(reader, AddOp) and isinstance(conv, Conv2dOp):
                made = _with_sum(conv, reader)
        case _:
            return None
    if made is not None:
        absorb(reader, made if between is None else between)
    return made


def _spread(affine: Affine | None, conv: Conv2dOp | Depthwise2dOp, between: Interleave2dOp | None) -> Affine | None:
    """Return the map of a convolution's own channels, where they become pixels before it."""
    if affine is None or between is None or affine.source is not between.result:
        return affine
    parts = between.channels_of_parts()
    scale, shift = (
        np.repeat(array, len(parts)) if between.is_together else np.tile(array, len(parts)) for array in affine[1:]
    )
    return Affine(conv.result, scale, shift)


def _with_affine(conv: Conv2dOp | Depthwise2dOp, affine: Affine | None) -> Conv2dOp | Depthwise2dOp | None:
    """Return a convolution whose channels are scaled and shifted; with a residual they can only be shifted."""
    weight, bias = weight_of(conv.weight), np.zeros(1) if conv.bias is None else constant_array(conv.bias)
    if affine is None or affine.source is not conv.result or weight is None or bias is None:
        return None
    is_shift = bool(np.all(affine.scale == 1.0))
    if isinstance(conv, Conv2dOp) and conv.residual is not None and not is_shift:
        return None
    with np.errstate(all="ignore"):
        scaled = weight if is_shift else scaled_outputs(weight, affine.scale)
        shift = (bias * affine.scale + affine.shift).astype(np.float32)
    if not (np.isfinite(entries_of(scaled)).all() and np.isfinite(shift).all()):
        return None
    matrix = conv.weight if is_shift else place_constant(constant_for(scaled), conv, conv.weight)
    added = place_constant(ConstantOp(shift), conv, conv.bias)
    if isinstance(conv, Depthwise2dOp):
        return _replaced(conv, Depthwise2dOp(conv.x, matrix, added, conv.window))
    return _replaced(conv, Conv2dOp(conv.x, matrix, added, conv.window, conv.residual))


def _with_sum(conv: Conv2dOp, reader: AddOp) -> Conv2dOp | None:
    residual = reader.right if reader.left is conv.result else reader.left
    if conv.residual is not None or residual.type != conv.result.type or is_constant(residual):
        return None
    owner = residual.owner
    if isinstance(owner, Operation) and (owner.parent is not conv.parent or not owner.is_before_in_block(conv)):
        return None  # the later one of two convolutions takes the sum
    return _replaced(conv, Conv2dOp(conv.x, conv.weight, conv.bias, conv.window, residual))


ConvOp = TypeVar("ConvOp", bound=Conv2dOp | Depthwise2dOp)


def _replaced(conv: ConvOp, made: ConvOp) -> ConvOp:
    """Return `made`, which stands where `conv` stood."""
    replace(conv, made)
    return made
