"""Find outputs of sparse weights that read the same inputs, or nearly the same, wherever they stand.

```mlir
%w = pebble.sparse_constant ... : tensor<4x2xf32, #pebble.sparsity<csc, nonzeros = 4>>
// -> both columns have entries in the same rows
%w = pebble.sparse_constant ... panels <[2 by 1], 1.00 shared, dense<[0, 1]>> : tensor<4x2xf32, ...>
```

Weights pruned in blocks, panels or groups have such outputs, also when the neurons were shuffled afterwards; random
masks have none, which is found out quickly.
"""

from dataclasses import dataclass

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from redpebble.dialect.constants import SparseConstantOp
from redpebble.dialect.panels import PanelsAttr
from redpebble.theory.similar_rows import Rows, panels_of


@dataclass(frozen=True)
class DiscoverStructure(ModulePass):
    """Write the panels of every sparse weight in which they hold at least half of the connections."""

    name = "pebble-discover-structure"
    seed: int = 0

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for constant in op.walk():
            if isinstance(constant, SparseConstantOp):
                constant.panels = self._panels(constant)

    def _panels(self, constant: SparseConstantOp) -> PanelsAttr | None:
        weight = constant.weight
        rows = Rows(weight.pointers, weight.rows, weight.shape[0])
        panels = panels_of(rows, np.random.default_rng(self.seed))
        shared = sum(len(panel.rows) * panel.shared for panel in panels) / max(1, len(rows.inputs))
        return PanelsAttr.of([panel.rows for panel in panels], shared) if shared >= LEAST_SHARED else None


LEAST_SHARED = 0.5
"""Share of a weight's connections below which panels are no faster than rows by themselves."""
