"""Search an order in which the connections of each network run, for a fast memory of given size and policy.

```mlir
%y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> ...
// ->
%y = pebble.network %x ... order dense<[0, 1, 2]> : tensor<3xi64> transfers <memory = 100, policy = min,
  weight_reads = 3, bias_reads = 2, row_reads = 2, row_writes = 1, order = "..."> ...
```

The same options give the same order. The search: `redpebble.theory.pebbling.search.search`.
"""

from dataclasses import dataclass

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from ...dialect.ops.network import NetworkOp
from ...theory.pebbling.machine import TransferCount
from ...theory.pebbling.search.search import SearchRequest, search_order


@dataclass(frozen=True)
class ScheduleConnections(ModulePass):
    """Write an order and its transfers on every network."""

    name = "pebble-schedule-connections"

    memory: int = 100
    """Values, or rows of a batch tile, that fast memory holds."""
    policy: str = "min"
    seed: int = 0
    proposals: int = 100_000
    """Moves that the search proposes; 0 takes the best of the orders that need no search."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for network in op.walk():
            if isinstance(network, NetworkOp):
                self._schedule(network)

    def _schedule(self, op: NetworkOp) -> None:
        if self.policy not in ("min", "lru"):
            raise PassFailedException(f"{self.name}: expected a policy of min, lru, got {self.policy!r}")
        try:
            request = SearchRequest(self.memory, self.policy, proposals=self.proposals)
        except ValueError as error:
            raise PassFailedException(f"{self.name}: {error}") from error
        found = search_order(op.graph, request, np.random.default_rng(self.seed))
        op.set_order(found.order, self.memory, self.policy, counts_of(found.counts))


def counts_of(count: TransferCount) -> tuple[int, int, int, int]:
    """Return the theory's counts in the order of `TransferCountAttr.COUNTS`."""
    return count.weight_reads, count.bias_reads, count.row_reads, count.row_writes
