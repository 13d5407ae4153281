"""Write on each linear layer how few transfers between slow and fast memory any order of its connections needs.

```mlir
%y = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
// ->
%y = pebble.linear %x, %w io_bounds <reads = 5 to 5, writes = 1 to 1> : ...
```

For W connections between I inputs and S outputs, N = I + S (inputs without a connection do not move): at least W + N
reads and S writes; neuron by neuron at most 2 W + N - I reads and N - I writes. With the option `memory` a layer or
`pebble.network` also gets the best certified bound for a fast memory of that size, and the argument it rests on:

```mlir
%y = pebble.linear %x, %w ... bound <memory = 3, batch_tile = 1, policy = min, transfers = 6 to 6, by "...">
```

A convolution is a linear layer of a window of pixels: its bounds are those of one pixel.

See `redpebble.theory.pebbling.bounds.bounds`.
"""

from dataclasses import dataclass

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from ...dialect.attributes.io_bounds import IoBoundsAttr
from ...dialect.attributes.transfers import POLICIES, InstanceBoundAttr
from ...dialect.ops.images import Conv2dOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.network import NetworkOp
from ...dialect.record import Bounds
from ...sparse.csr import CscMatrix
from ...sparse.neuron_graph import NeuronGraph, chain_graph
from ...theory.pebbling.bounds.bounds import instance_bound
from ...theory.pebbling.machine import Memory
from ...theory.pebbling.orders.simple_orders import pull_order
from ..analysis.weights import Weight, connection_count, has_outgoing, weight_of


@dataclass(frozen=True)
class AnnotateIoBounds(ModulePass):
    """Write the I/O bounds of each linear layer with a constant weight, and of each network."""

    name = "pebble-annotate-io-bounds"

    memory: int | None = None
    """Rows that fast memory holds; without it only the bounds that hold for any memory are written."""
    batch_tile: int = 1
    """Columns of a row, in values."""
    policy: str = "min"
    """Under which the transfers of the pull order are counted; the lower bound holds under any."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for found in op.walk():
            weight = weight_of(found.weight) if isinstance(found, LinearOp | Conv2dOp) else None
            if isinstance(found, LinearOp | Conv2dOp) and weight is not None:
                found.io_bounds = bounds_of(weight)
                if self.memory is not None and isinstance(found, LinearOp):
                    found.bound = self._instance_bound(network_of(weight), self.memory)
            elif isinstance(found, NetworkOp) and self.memory is not None:
                found.bound = self._instance_bound(found.graph, self.memory)

    def _instance_bound(self, network: NeuronGraph, memory: int) -> InstanceBoundAttr:
        # loads a compiler, which nothing else here needs
        from ...theory.pebbling.machine_compiled import count_transfers

        if self.policy not in POLICIES:
            raise PassFailedException(f"{self.name}: expected a policy of {', '.join(POLICIES)}, got {self.policy!r}")
        if self.batch_tile < 1:
            raise PassFailedException(f"{self.name}: expected a batch tile of 1 or more, got {self.batch_tile}")
        try:
            least = instance_bound(network, memory)
            pull = count_transfers(network, pull_order(network), Memory(memory, self.policy))
        except ValueError as error:
            raise PassFailedException(f"{self.name}: {error}") from error
        batch = self.batch_tile
        transfers = Bounds(least.batched_total(batch), pull.batched_reads(batch) + pull.batched_writes(batch))
        return InstanceBoundAttr(memory, batch, self.policy, transfers, least.argument)


def bounds_of(weight: Weight) -> IoBoundsAttr:
    """Return the bounds of the layer that `weight` is, in values for a batch of one."""
    outputs = weight.shape[1]
    if isinstance(weight, CscMatrix):
        count, has_connection = len(weight.rows), np.bincount(weight.rows, minlength=weight.shape[0]) > 0
    else:
        count, has_connection = connection_count(weight), has_outgoing(weight)
    # `lower_bound` and `pull_bound` of a graph, which would take far longer to make
    reads = Bounds(count + outputs + int(np.count_nonzero(has_connection)), 2 * count + outputs)
    return IoBoundsAttr(reads, Bounds(outputs, outputs))


def network_of(weight: Weight) -> NeuronGraph:
    """Return the network of one layer: inputs are the first neurons, outputs those behind them."""
    matrix = weight if isinstance(weight, CscMatrix) else CscMatrix.from_dense(weight)
    return chain_graph([matrix.pattern])
