"""Write on each linear layer how few transfers between slow and fast memory any order of its connections needs.

```mlir
%y = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
// ->
%y = pebble.linear %x, %w io_bounds <reads = 5 to 5, writes = 1 to 1> : ...
```

For W connections between I inputs and S outputs, N = I + S (inputs without a connection do not move): at least W + N
reads and S writes; neuron by neuron at most 2 W + N - I reads and N - I writes. See `redpebble.theory.bounds`.
"""

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from redpebble.dialect.decisions import IoBoundsAttr
from redpebble.dialect.layers import LinearOp
from redpebble.dialect.tensors import CscMatrix
from redpebble.passes.weights import Weight, weight_of
from redpebble.theory.bounds import lower_bound, pull_bound
from redpebble.theory.network import Network


class AnnotateIoBounds(ModulePass):
    """Write the I/O bounds of each linear layer with a constant weight."""

    name = "pebble-annotate-io-bounds"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for linear in op.walk():
            weight = weight_of(linear.weight) if isinstance(linear, LinearOp) else None
            if isinstance(linear, LinearOp) and weight is not None:
                linear.io_bounds = bounds_of(weight)


def bounds_of(weight: Weight) -> IoBoundsAttr:
    """Return the bounds of the layer that `weight` is, in values for a batch of one."""
    network = network_of(weight)
    lower, upper = lower_bound(network), pull_bound(network)
    return IoBoundsAttr.of((lower.reads, upper.reads), (lower.writes, upper.writes))


def network_of(weight: Weight) -> Network:
    """Return the network of one layer: inputs are the first neurons, outputs those behind them."""
    matrix = weight if isinstance(weight, CscMatrix) else CscMatrix.from_dense(weight)
    inputs, outputs = matrix.shape
    return Network(
        neuron_count=inputs + outputs,
        sources=matrix.rows.astype(np.int64),
        targets=matrix.columns + inputs,
        inputs=np.arange(inputs, dtype=np.int64),
        outputs=np.arange(inputs, inputs + outputs, dtype=np.int64),
    )
