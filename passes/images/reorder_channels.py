"""Put the channels that most connections leave first.

```mlir
%h = pebble.conv2d %x, %w bias %b window <[3, 3] ...> : (tensor<?x4x8x8xf32>, tensor<36x3xf32>, tensor<3xf32>) -> ...
%y = pebble.conv2d %h, %v window <[1, 1] ...> : (tensor<?x3x8x8xf32>, tensor<3x2xf32>) -> ...
// -> most connections leave channel 2, fewest 0: columns of %w, entries of %b and rows of %v in the order 2, 1, 0
```

Kernels read the windows of some channels at once: where connections are uneven, as those of trained networks, channels
that are read often share cache lines and pages. Channels that something else relies on stay, as they do where
connections are about as even as those of a random mask. The function stays what it is, up to the rounding of sums.
"""

from typing import Final

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ...dialect.ops.images import Conv2dOp
from ...sparse.csr import CscMatrix
from ..analysis.weights import Indices
from ..rewriting.erase_unused import erase_unused
from ..rewriting.units import Layer, Units, layers_with_units, units_of

UNEVEN: Final = 2.0
"""Variance of the connections that leave a channel, over their mean, from which on it pays: random masks have 0.9."""


class ReorderChannels(ModulePass):
    """Order channels by the connections that leave them."""

    name = "pebble-reorder-channels"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        layers = [layer for layer in layers_with_units(op) if isinstance(layer.op, Conv2dOp)]
        if sum(_reorder(layer) for layer in layers):
            erase_unused(op.body)


def _reorder(conv: Layer) -> bool:
    """Order the channels of a convolution; return whether that changed them."""
    channels = units_of(conv)
    if channels is None or _has_shared_weights(channels):
        return False
    counts = np.sum([_connections(reader) for reader in channels.readers], axis=0)
    order: Indices = np.argsort(-counts, kind="stable")
    if counts.var() < UNEVEN * counts.mean() or np.array_equal(order, np.arange(len(order))):
        return False
    channels.take(order)
    return True


def _has_shared_weights(channels: Units) -> bool:
    """Return whether a weight is that of another convolution, too: in two orders it would be there twice."""
    layers = (channels.layer, *channels.readers)
    return any(layer.op.weight.uses.get_length() > 1 for layer in layers)


def _connections(reader: Layer) -> Indices:
    """Return how many connections leave each channel, [channels]."""
    weight = reader.weight
    rows = weight.rows if isinstance(weight, CscMatrix) else np.nonzero(weight)[0]
    return np.bincount(rows // reader.taps, minlength=weight.shape[0] // reader.taps)
