"""Drop channels that no connection of a convolution leaves or enters.

```mlir
%h = pebble.conv2d %x, %w bias %b window <[3, 3] ...> activation <relu> : (tensor<?x4x8x8xf32>, tensor<36x3xf32>) -> ...
%y = pebble.conv2d %h, %v window <[1, 1] ...> : (tensor<?x3x8x8xf32>, tensor<3x2xf32>) -> ...
// -> row 0 of %v and column 1 of %w are zero, and relu(%b[1]) is
%h = pebble.conv2d %x, %w_2 bias %b_2 window <[3, 3] ...> activation <relu> : (..., tensor<36x1xf32>) -> ...
%y = pebble.conv2d %h, %v_2 window <[1, 1] ...> : (tensor<?x1x8x8xf32>, tensor<1x2xf32>) -> ...
```

A channel whose rows are zero in all convolutions that read it is dropped; activations, poolings, resizing and depthwise
convolutions may stand between. A channel without incoming connections has one value everywhere: it is dropped where
that is zero, or where activations alone stand between and no reader has pads, whose zeros would differ from it: then it
goes into the readers' biases. Dropping may leave other channels dead, so this is repeated until nothing changes. At
least one channel stays. A channel that touches NaN or inf stays.
"""

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ...dialect.attributes.activations import ActivationAttr, activate
from ...dialect.ops.elementwise import ActivateOp
from ...dialect.ops.images import Conv2dOp, Depthwise2dOp, Resample2dOp
from ..analysis.weights import Doubles, Mask, has_incoming, has_outgoing, product_with, without_inputs
from ..rewriting.erase_unused import erase_unused
from .channel_edits import (
    Channels,
    by_channel,
    channels_of,
    convolutions_with_channels,
    finite_channels,
    keep_channels,
    kernel_of,
    offsets_of,
    rows_of,
    set_kernel,
    set_offsets,
    taps_of,
)


class DropDeadChannels(ModulePass):
    """Drop channels without outgoing or incoming connections."""

    name = "pebble-drop-dead-channels"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        # a convolution that gets a bias is another op, so they are looked for in each round
        while sum(_drop_dead(conv) for conv in reversed(convolutions_with_channels(op)) if conv.parent is not None):
            pass
        erase_unused(op.body)


def _drop_dead(conv: Conv2dOp) -> bool:
    """Drop the dead channels of a convolution; return whether there were any."""
    channels = channels_of(conv)
    if channels is None:
        return False
    read = [by_channel(reader, has_outgoing(kernel_of(reader))).any(axis=1) for reader in channels.readers]
    unread = ~np.logical_or.reduce(read)
    constant = ~has_incoming(kernel_of(conv)) & ~unread
    values = _values(channels)
    dropped = (unread | (constant & np.isfinite(values))) & finite_channels(channels)
    if dropped.all() and len(dropped):
        dropped[0] = False
    if not dropped.any():
        return False
    added = np.where(constant & dropped, values, 0.0)
    biases = [offsets_of(reader) + _product(added, reader) for reader in channels.readers]
    if not all(np.isfinite(bias.astype(np.float32)).all() for bias in biases):
        return False
    _drop(channels, dropped, biases)
    return True


def _drop(channels: Channels, dropped: Mask, biases: list[Doubles]) -> None:
    kept = np.flatnonzero(~dropped)
    keep_channels(channels, kept)
    for reader, bias in zip(channels.readers, biases, strict=True):
        set_kernel(reader, without_inputs(kernel_of(reader), rows_of(reader, kept)))
        if not np.array_equal(bias, offsets_of(reader)):
            set_offsets(reader, bias)


def _product(values: Doubles, reader: Conv2dOp) -> Doubles:
    """Return what channels that have the same value everywhere add to each output, [outputs]."""
    with np.errstate(all="ignore"):
        return np.asarray(product_with(np.repeat(values, taps_of(reader)), kernel_of(reader)))


def _values(channels: Channels) -> Doubles:
    """Return the value that each channel has for readers where no connection enters it, NaN where it may differ."""
    conv = channels.conv
    values = _activated(conv.activation, offsets_of(conv))
    constant = values.copy()
    activations = [step.activation for step in channels.steps if isinstance(step, ActivateOp)]
    has_pads = any(any(reader.window.pad_sizes) for reader in channels.readers)
    # of several activations each reader may see another one
    if len(activations) == len(channels.steps) <= 1 and not has_pads:
        last = channels.steps[0].result if channels.steps else conv.result
        if all(reader.x is last for reader in channels.readers):
            return _activated(activations[0], values) if activations else values
    stays_zero = values == 0
    for step in channels.steps:
        match step:
            case ActivateOp():
                stays_zero &= _activated(step.activation, np.zeros(1)) == 0
            case Depthwise2dOp():
                stays_zero &= _activated(step.activation, offsets_of(step)) == 0
            case Resample2dOp():
                stays_zero &= step.fill.value.data == 0
            case _:
                pass
    constant[:] = np.nan
    constant[stays_zero] = 0.0
    return constant


def _activated(activation: ActivationAttr | None, values: Doubles) -> Doubles:
    return values if activation is None else np.asarray(activate(activation, values), np.float64)
