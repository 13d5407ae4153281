"""Let sums over the edges of a fixed graph take targets in an order in which neighbours follow each other.

```mlir
%y = pebble.aggregate %x, %a : (tensor<100000x64xf32>, tensor<100000x100000xf32, ...>) -> ...
// ->
%y = pebble.aggregate %x, %a walk <near, anew = 1.2e-01, otherwise = 9.5e-01> : ...
```

Where the values of all nodes leave the second-level cache, an edge whose source was read long ago waits for memory.
The walk is reverse Cuthill-McKee; it stands where markedly fewer sources are read anew than in the order of the
numbers, as in meshes, roads and grids whose nodes came shuffled. Nothing is permuted: results are the same bits.
"""

from dataclasses import dataclass
from typing import Final

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from ...dialect.attributes.target_walk import TargetWalkAttr
from ...dialect.ops.graphs import OverEdges
from ...dialect.tensors import shape_of
from ...kernels.graphs.aggregate_cost import FEATURE_BYTES
from ...kernels.machine import Machine
from ...sparse.csr import CscMatrix
from ...theory.neuron_order.target_walks import distinct_share, near_walk, walked

MARKEDLY_FEWER: Final = 0.9
"""Share of the sources read anew without a walk below which the walk takes place."""


@dataclass(frozen=True)
class OrderTargets(ModulePass):
    """Give sums over edges a walk where it pays."""

    name = "pebble-order-targets"

    l2_bytes: int = Machine.l2_bytes
    """Bytes of the second-level cache."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        known: dict[tuple[SSAValue, int], TargetWalkAttr | None] = {}
        for sums in (found for found in op.walk() if isinstance(found, OverEdges) and not found.of_call):
            nodes, features = shape_of(sums.x)[-2:]
            if sums.edges.shape[0] != sums.edges.shape[1] or nodes * features * FEATURE_BYTES <= self.l2_bytes:
                continue
            # half of the cache: results and edges pass through it, too
            at_once = self.l2_bytes // (2 * features * FEATURE_BYTES)
            key = (sums.graph, at_once)
            if key not in known:
                known[key] = _walk_of(sums.edges, at_once)
            sums.target_walk = known[key]


def _walk_of(graph: CscMatrix, at_once: int) -> TargetWalkAttr | None:
    otherwise = distinct_share(graph, at_once)
    anew = distinct_share(walked(graph, near_walk(graph)), at_once)
    return TargetWalkAttr(anew, otherwise) if anew < MARKEDLY_FEWER * otherwise else None
