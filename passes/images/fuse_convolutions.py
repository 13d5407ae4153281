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
Of an activation that an affine block of two numbers follows both are one: see `scaled_activation`.
What is taken has no other reader. A depthwise convolution takes no sum. Parameters that would overflow are not taken.
Codes are integers of eight bits that stand for values: value = scale * (code - zero). They pass between convolutions,
and through poolings of the largest, as they are: what floats of codes are rounded to again they have been.
"""

from typing import TypeVar

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from ...dialect.attributes.activations import ActivationAttr, scaled_activation
from ...dialect.ops.constants import ConstantOp, constant_array, is_constant
from ...dialect.ops.elementwise import ActivateOp, AddOp, BinaryOp, ConvertOp, rounds_to_codes
from ...dialect.ops.images import Conv2dOp, Depthwise2dOp, Interleave2dOp, Pool2dOp, is_largest_of_pixels
from ...dialect.ops.layers import BatchNormOp
from ...dialect.provenance import VALUES, copy_provenance, keep_value_name
from ..analysis.per_feature_constants import Affine, affine_of_batch_norm, affine_of_channels
from ..analysis.weights import constant_for, entries_of, scaled_outputs, weight_of
from ..rewriting.erase_unused import erase_unused
from ..rewriting.parameters import place_constant
from ..rewriting.replacing import absorb, replace, take_names


class FuseConvolutions(ModulePass):
    """Fold batch norms, sums and activations into convolutions."""

    name = "pebble-fuse-convolutions"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        codes_between(op)
        for found in [found for found in op.walk() if isinstance(found, Conv2dOp | Depthwise2dOp)]:
            conv: Conv2dOp | Depthwise2dOp | None = found
            while conv is not None:
                conv = _with_reader(conv)
        erase_unused(op.body)


def codes_between(region: Operation) -> None:
    """Let codes of images pass from what yields them to convolutions and poolings as they are."""
    known: dict[tuple[SSAValue, Attribute], ConvertOp] = {}
    for op in list(region.walk()):
        match op:
            case ActivateOp() if rounds_to_codes(op):
                _pass_rounding(op)
            case Pool2dOp() if is_largest_of_pixels(op):
                _pool_codes(op)
            case ConvertOp() if op.rounds and isinstance(op.x.owner, ConvertOp) and op.x.owner.x.type == op.result.type:
                Rewriter.replace_op(op, [], [op.x.owner.x])
            case ConvertOp() if op.rounds and is_of_images(op):
                first = known.setdefault((op.x, op.result.type), op)
                if first is not op and first.parent is op.parent:
                    Rewriter.replace_op(op, [], [first.result])
            case _:
                pass


def _pass_rounding(op: ActivateOp) -> None:
    """Let floats that become codes be rounded to these, once; those of the same codes are rounded already."""
    before = op.x.owner
    if isinstance(before, ConvertOp) and before.codes.rounding == op.activation:
        keep_value_name(op.result, op.x)
        Rewriter.replace_op(op, [], [op.x])
        return
    readers = [use.operation for use in op.result.uses]
    converts = [one for one in readers if isinstance(one, ConvertOp) and one.codes.rounding == op.activation]
    if not any(is_of_images(one) for one in converts):
        return
    rounding = ConvertOp(op.x, converts[0].codes)
    back = ConvertOp(rounding.result)
    take_names(back, op)
    Rewriter.replace_op(op, [rounding, back])


def is_of_images(op: ConvertOp) -> bool:
    """Return whether convolutions or poolings read codes."""
    return any(isinstance(use.operation, Conv2dOp | Pool2dOp) for use in op.result.uses)


def _pool_codes(op: Pool2dOp) -> None:
    """Let a pooling of the largest of floats of codes be one of the codes."""
    before = op.x.owner
    if isinstance(before, ConvertOp) and not before.rounds:
        pooled = Pool2dOp(before.x, "max", op.window)
        back = ConvertOp(pooled.result)
        copy_provenance(op, pooled)
        pooled.attributes.pop(VALUES, None)
        take_names(back, op)
        Rewriter.replace_op(op, [pooled, back])


def _with_reader(conv: Conv2dOp | Depthwise2dOp) -> Conv2dOp | Depthwise2dOp | None:
    """Return a convolution that computes what its only reader did; None where it cannot."""
    if isinstance(conv, Conv2dOp) and conv.times is not None:
        return None
    reader, between = conv.result.get_user_of_unique_use(), None
    if conv.activation is not None:
        return _with_scaled_activation(conv, conv.activation, reader)
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


def _with_scaled_activation(
    conv: Conv2dOp | Depthwise2dOp, activation: ActivationAttr, reader: Operation | None
) -> Conv2dOp | Depthwise2dOp | None:
    """Return a convolution whose activation takes a product or a sum with one number behind it."""
    affine = affine_of_channels(reader) if isinstance(reader, BinaryOp) else None
    if reader is None or affine is None or affine.source is not conv.result:
        return None
    if any(np.any(array != array[:1]) for array in affine[1:]):
        return None
    scaled = scaled_activation(activation, float(affine.scale[0]), float(affine.shift[0]))
    with np.errstate(all="ignore"):
        if scaled is None or not np.isfinite(np.array(scaled.values, np.float32)).all():
            return None
    conv.activation = scaled
    absorb(reader, conv)
    return conv


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
    """Return a convolution whose channels are scaled and shifted.

    With a residual, or a weight that is rounded, they can only be shifted.
    """
    weight, bias = weight_of(conv.weight), np.zeros(1) if conv.bias is None else constant_array(conv.bias)
    if affine is None or affine.source is not conv.result or weight is None or bias is None:
        return None
    is_shift = bool(np.all(affine.scale == 1.0))
    if isinstance(conv, Conv2dOp) and (conv.residual is not None or conv.is_rounded) and not is_shift:
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
    if isinstance(conv, Conv2dOp) and isinstance(made, Conv2dOp):
        made.precision = conv.precision
    replace(conv, made)
    return made
