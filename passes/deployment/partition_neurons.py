"""Decide which of several parts owns each neuron, so that few values travel between them.

```mlir
%y = pebble.linear %x, %w : (tensor<?x4xf32>, ...) -> tensor<?x4xf32>
// ->
%y = pebble.linear %x, %w partition <2 parts, owners = dense<[0, 0, 1, 1]> : tensor<4xi32>, volume = 3, messages = 2,
  most_connections = 8> : ...
```

An input of the network belongs to a part that uses it in the first layer that reads it. A layer that reads something
else than the inputs or the layer before it needs that as a whole, so that every part gets all of it. The same options
give the same partition. The search: `redpebble.theory.partition.search`.
"""

from dataclasses import dataclass

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException, VerifyException

from ..analysis.partitioned_layers import partition_module, write_partition


@dataclass(frozen=True)
class PartitionNeurons(ModulePass):
    """Write a partition on every linear layer."""

    name = "pebble-partition-neurons"

    parts: int = 2
    imbalance: float = 0.03
    """Share by which a part may exceed the mean connections of a layer."""
    seed: int = 0
    proposals: int = 1000
    """Moves that the search proposes for each group of neurons; 0 takes the start."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        # loads a compiler, which nothing else here needs
        from ...theory.partition.search import PartitionRequest, find_partition

        try:
            request = PartitionRequest(self.parts, self.imbalance, self.seed, self.proposals)
            partition = partition_module(
                op, self.parts, lambda patterns, owners: find_partition(patterns, request, owners)
            )
            write_partition(op, partition)
        except (ValueError, VerifyException) as error:
            raise PassFailedException(f"{self.name}: {error}") from error
