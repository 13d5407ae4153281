"""Let networks whose layers leave the cache run depth first: neuron by neuron, each right before it is needed.

```mlir
%y = pebble.network %x sources ... : (tensor<?x65536xf32>) -> tensor<?x65536xf32>
// ->
%y = pebble.network %x sources ... wavefront <runs dense<...>, order dense<...>, slots dense<...>> : ...
```

A value gives its slot to another one as soon as its last reader ran. Where neurons read others near them, wherever
these stand, few values are alive at a time and none leaves the cache. Random networks have no such order: theirs would
keep whole layers alive, and they are left as they are.
"""

from dataclasses import dataclass

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from redpebble.dialect.attributes.neuron_order import MOST_SLOTS, WavefrontAttr
from redpebble.dialect.ops.network import NetworkOp
from redpebble.passes.analysis.network_view import network_of_op
from redpebble.theory.depth_first.neuron_order import BLOCK, depth_first


@dataclass(frozen=True)
class ScheduleWavefronts(ModulePass):
    """Write a wavefront on every network that has one with at most `slots` values alive."""

    name = "pebble-schedule-wavefronts"

    slots: int = 4096
    """Rows of a tile of 64 columns that take half of a second-level cache of 2 MiB."""
    block: int = BLOCK
    """Outputs that are taken at a time."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for network in op.walk():
            if isinstance(network, NetworkOp):
                found = depth_first(network_of_op(network), self.block)
                fits = found.slot_count <= min(self.slots, MOST_SLOTS)
                network.wavefront = WavefrontAttr.of(found.order, found.slots, found.runs) if fits else None
