"""Find the structure of sparse weights: outputs that read the same inputs, wherever they stand, and other facts.

```mlir
%w = pebble.sparse_constant ... : tensor<4x2xf32, #pebble.sparsity<csc, nonzeros = 4>>
// -> both columns have entries in the same rows
%w = pebble.sparse_constant ... panels <[2 by 1], 1.00 shared, dense<[0, 1]>> facts [#pebble.fact<...>]
    : tensor<4x2xf32, ...>
```

Weights pruned in blocks, panels or groups have outputs with the same inputs, or nearly the same, also when the neurons
were shuffled afterwards; kernels use that. Facts are for reports and for later passes: n of m, hidden blocks, dead and
repeated neurons, bands, separate parts, strides. Random masks have none, which is found out quickly.
"""

from dataclasses import dataclass

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.passes import ModulePass

from redpebble.dialect.constants import SparseConstantOp
from redpebble.dialect.panels import PanelsAttr
from redpebble.passes.structure_facts import facts_of
from redpebble.theory.row_lists import Rows
from redpebble.theory.similar_rows import panels_of


@dataclass(frozen=True)
class DiscoverStructure(ModulePass):
    """Write on every sparse weight its panels, where they hold at least half of the connections, and its facts."""

    name = "pebble-discover-structure"
    seed: int = 0

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for constant in op.walk():
            if isinstance(constant, SparseConstantOp):
                weight = constant.weight
                rows = Rows(weight.pointers, weight.rows, weight.shape[0])
                constant.panels = self._panels(rows)
                facts = facts_of(rows, np.random.default_rng(self.seed))
                constant.facts = ArrayAttr(facts) if facts else None

    def _panels(self, rows: Rows) -> PanelsAttr | None:
        panels = panels_of(rows, np.random.default_rng(self.seed))
        shared = sum(len(panel.rows) * panel.shared for panel in panels) / max(1, len(rows.inputs))
        return PanelsAttr.of([panel.rows for panel in panels], shared) if shared >= LEAST_SHARED else None


LEAST_SHARED = 0.5
"""Share of a weight's connections below which panels are no faster than rows by themselves."""
