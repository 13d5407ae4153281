"""Find the structure of sparse weights: outputs that read the same inputs, wherever they stand, and other facts.

```mlir
%w = pebble.sparse_constant ... : tensor<4x2xf32, #pebble.sparsity<nonzeros = 4>>
// -> both columns have entries in the same rows
%w = pebble.sparse_constant ... panels <[2 by 1], 1.00 shared, dense<[0, 1]>> facts [#pebble.fact<...>]
    : tensor<4x2xf32, ...>
```

Weights pruned in blocks, panels or groups have outputs with the same inputs, or nearly the same, also when the neurons
were shuffled afterwards. Kernels use that: `panels` where outputs share connections, `strips` where they only read from
the same inputs. Facts are for reports and for later passes: n of m, hidden blocks, dead and repeated neurons, bands,
separate parts, strides. Inputs that came shuffled in their groups of m are read in the order in which they lie: in the
order of their groups `strips` would have equally many connections in all blocks, but columns that are scattered in the
first-level cache, and is no faster. Random masks have no structure, which a sample of their rows shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.passes import ModulePass

from ...dialect.attributes.row_panels import PanelsAttr
from ...dialect.ops.constants import SparseConstantOp
from ...dialect.ops.graphs.attend_edges import OVER_EDGES
from ...sparse.csr import CsrPattern
from ...sparse.patterns.row_overlap import OverlapSample
from ...sparse.patterns.similar_rows import Panel, first_alike, panels_of, panels_of_groups
from ..analysis.structure_facts import facts_of


@dataclass(frozen=True)
class DiscoverStructure(ModulePass):
    """Write on every sparse weight its panels, where they share at least half of the connections, and its facts.

    Groups of outputs that read from the same inputs without reading the same ones, as in V:N:M, are panels, too.
    """

    name = "pebble-discover-structure"
    seed: int = 0

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for constant in op.walk():
            # along the edges of a graph whole nodes are read: structure would gain nothing
            if isinstance(constant, SparseConstantOp) and not _is_graph(constant):
                weight = constant.weight
                rows = weight.pattern
                alike, sample = first_alike(rows), OverlapSample.of(rows, np.random.default_rng(self.seed))
                facts, groups = facts_of(rows, alike, sample, np.random.default_rng(self.seed))
                panels = panels_of(rows, alike, sample, np.random.default_rng(self.seed))
                if _shared(rows, panels) < LEAST_SHARED:
                    panels = panels_of_groups(rows, groups.labels) if groups is not None else []
                outputs = [panel.rows for panel in panels]
                constant.panels = PanelsAttr.of(outputs, _shared(rows, panels)) if panels else None
                constant.facts = ArrayAttr(facts) if facts else None


def _is_graph(constant: SparseConstantOp) -> bool:
    readers = [use.operation for use in constant.result.uses]
    return bool(readers) and all(isinstance(reader, OVER_EDGES) for reader in readers)


def _shared(rows: CsrPattern, panels: Sequence[Panel]) -> float:
    """Return the share of the connections that go to inputs which a whole panel reads."""
    return sum(len(panel.rows) * panel.shared for panel in panels) / max(1, len(rows.indices))


LEAST_SHARED = 0.5
"""Share of a weight's connections below which panels are no faster than rows by themselves."""
