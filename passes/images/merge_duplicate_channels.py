"""Merge channels of a convolution that always hold the same image.

```mlir
%h = pebble.conv2d %x, %w window <[3, 3] ...> : (tensor<?x4x8x8xf32>, tensor<36x2xf32>) -> tensor<?x2x8x8xf32>
%y = pebble.conv2d %h, %v window <[1, 1] ...> : (tensor<?x2x8x8xf32>, tensor<2x2xf32>) -> tensor<?x2x8x8xf32>
// -> both columns of %w are equal
%h = pebble.conv2d %x, %w_0 window <[3, 3] ...> : (tensor<?x4x8x8xf32>, tensor<36x1xf32>) -> tensor<?x1x8x8xf32>
%y = pebble.conv2d %h, %v_0_plus_v_1 window <[1, 1] ...> : (tensor<?x1x8x8xf32>, tensor<1x2xf32>) -> ...
```

Two channels are equal when their columns, their biases and what depthwise convolutions behind them have for them are,
to the last bit. Their rows are added, tap by tap. A merge may make channels of the next convolution equal, so this is
repeated until nothing changes. Channels that touch NaN or inf are left alone.
"""

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ...dialect.ops.images import Conv2dOp
from ..analysis.weights import Indices, entries_of, with_inputs_added
from ..rewriting.erase_unused import erase_unused
from ..simplify.merge_duplicate_neurons import first_equal_outputs
from .channel_edits import (
    channels_of,
    constants_of,
    convolutions_with_channels,
    finite_channels,
    keep_channels,
    kernel_of,
    offsets_of,
    rows_of,
    set_kernel,
)


class MergeDuplicateChannels(ModulePass):
    """Merge channels with equal incoming connections."""

    name = "pebble-merge-duplicate-channels"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        convolutions = convolutions_with_channels(op)
        while sum(_merge(conv) for conv in convolutions) > 0:
            pass
        erase_unused(op.body)


def _merge(conv: Conv2dOp) -> bool:
    """Merge the equal channels of a convolution; return whether there were any."""
    channels = channels_of(conv)
    if channels is None:
        return False
    constants = [row.astype(np.float32) for row in (offsets_of(conv), *constants_of(channels))]
    first = first_equal_outputs(kernel_of(conv), constants, np.flatnonzero(finite_channels(channels)))
    kept = np.flatnonzero(first == np.arange(len(first)))
    if len(kept) == len(first):
        return False
    position: Indices = np.searchsorted(kept, first)
    readers = tuple(dict.fromkeys(channels.readers))
    merged = [
        with_inputs_added(kernel_of(reader), rows := rows_of(reader, position), len(rows) * len(kept) // len(first))
        for reader in readers
    ]
    for reader, weight in zip(readers, merged, strict=True):
        if np.isfinite(entries_of(kernel_of(reader))).all() and not np.isfinite(entries_of(weight)).all():
            return False
    keep_channels(channels, kept)
    for reader, weight in zip(readers, merged, strict=True):
        set_kernel(reader, weight)
    return True
