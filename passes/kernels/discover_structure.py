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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.passes import ModulePass

from ...dialect.attributes.row_panels import PanelsAttr
from ...dialect.attributes.structure_facts import FactAttr
from ...dialect.ops.constants import SparseConstantOp
from ...dialect.ops.graphs import OverEdgesOp
from ...dialect.ops.layers import LinearOp
from ...foundation.recent_results import RecentResults
from ...sparse.csr import CsrPattern, Indices
from ...sparse.patterns.bands_and_components import Connectivity
from ...sparse.patterns.hidden_blocks import Groups, alike_inputs, row_groups, usual_height
from ...sparse.patterns.n_of_m import n_of_m
from ...sparse.patterns.row_overlap import OverlapSample
from ...sparse.patterns.similar_rows import Panel, first_alike, panels_of, panels_of_groups, shared_connections
from ...sparse.patterns.strides import strides_of

# The facts about a sparse weight: what the searches of `theory` and the graph of its neurons say, as attributes.

FEWEST: int = 16
"""Connections below which there is nothing to be found."""

LOOKED_AT: int = 1 << 16
"""Connections that are looked at together."""


Structure = tuple[PanelsAttr | None, ArrayAttr[FactAttr] | None]
"""Panels and facts of a weight."""


class Found(NamedTuple):
    """Remarkable facts of a pattern, and the groups of its outputs that have inputs in common."""

    facts: list[FactAttr]
    groups: Groups | None


def facts_of(rows: CsrPattern, alike: Indices, sample: OverlapSample, rng: np.random.Generator) -> Found:
    """Return what is remarkable about a pattern; `alike` says which rows are, and `sample` how rows overlap."""
    if len(rows.indices) < FEWEST:
        return Found([], None)
    height = usual_height(alike, np.flatnonzero(rows.lengths))
    groups = row_groups(rows, sample, rng) if height == 1 else None
    facts = (*_repeats(rows, alike, groups), *_counts(rows), *_strides(rows), *_connectivity(rows, sample))
    return Found(list(facts), groups)


def _repeats(rows: CsrPattern, outputs: Indices, groups: Groups | None) -> Iterator[FactAttr]:
    """Yield blocks, groups, and how many inputs and outputs are dead or like others; `outputs` are the first alike."""
    read, filled = np.flatnonzero(_is_read(rows)), np.flatnonzero(rows.lengths)
    inputs = alike_inputs(rows)
    height, width = usual_height(outputs, filled), usual_height(inputs, read)
    in_blocks = height > 1 or width > 1
    if in_blocks:
        yield FactAttr.of("blocks", outputs=height, inputs=width)
    if groups is not None:
        yield FactAttr.of("groups", outputs=groups.height, percent=round(100 * groups.fill))
    alike = [int(np.count_nonzero(first[some] != some)) for first, some in ((inputs, read), (outputs, filled))]
    dead = rows.column_count - len(read), rows.row_count - len(filled)
    if any(dead):
        yield FactAttr.of("dead", inputs=dead[0], outputs=dead[1])
    if any(alike) and not in_blocks:
        yield FactAttr.of("alike", inputs=alike[0], outputs=alike[1])


def _is_read(rows: CsrPattern) -> NDArray[np.bool_]:
    """Return which inputs any row reads; in most patterns some of the connections show that all are."""
    found = np.zeros(rows.column_count, dtype=np.bool_)
    for start in range(0, len(rows.indices), LOOKED_AT):
        found[rows.indices[start : start + LOOKED_AT]] = True
        if found.all():
            break
    return found


def _counts(rows: CsrPattern) -> Iterator[FactAttr]:
    found = n_of_m(rows)
    if found is not None:
        yield FactAttr.of("shuffled_n_of_m" if found.is_shuffled else "n_of_m", kept=found.kept, of=found.of)


def _strides(rows: CsrPattern) -> Iterator[FactAttr]:
    found = strides_of(rows)
    if found is not None and found.kind == "exchange":
        yield FactAttr.of("exchange", stride=found.stride)
    elif found is not None:
        numbers = {"period": found.period, "start": found.start, "stride": found.stride, "radix": found.radix}
        yield FactAttr.of("circulant", **numbers)


def _connectivity(rows: CsrPattern, sample: OverlapSample) -> Iterator[FactAttr]:
    graph = Connectivity(rows, sample)
    components, band = graph.components(), graph.band()
    if components.parts > 1:
        yield FactAttr.of("components", count=components.parts, percent=round(100 * components.largest))
    if band is not None:
        yield FactAttr.of("band", before=band.before, after=band.after)


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
                constant.panels, constant.facts = self._structure(constant.weight.pattern, _is_of_codes(constant))

    def _structure(self, rows: CsrPattern, of_codes: bool) -> Structure:
        return _structures().of((rows.digest, of_codes, self.seed), lambda: self._found(rows, of_codes))

    def _found(self, rows: CsrPattern, of_codes: bool) -> Structure:
        """Return the panels and the facts of a pattern; of one of codes there are facts alone."""
        alike, sample = first_alike(rows), OverlapSample.of(rows, np.random.default_rng(self.seed))
        facts, groups = facts_of(rows, alike, sample, np.random.default_rng(self.seed))
        attribute = ArrayAttr(facts) if facts else None
        if of_codes:
            return None, attribute
        panels = panels_of(rows, alike, sample, np.random.default_rng(self.seed), least=LEAST_SHARED)
        if not panels and groups is not None:
            panels = panels_of_groups(rows, groups.labels)
        outputs = [panel.rows for panel in panels]
        return PanelsAttr.of(outputs, _shared(rows, panels)) if panels else None, attribute


@cache
def _structures() -> RecentResults[tuple[bytes, bool, int], Structure]:
    """Return the structures found before: a model is often read twice, and with sizes of calls once for each."""
    return RecentResults()


def _is_graph(constant: SparseConstantOp) -> bool:
    readers = [use.operation for use in constant.result.uses]
    return bool(readers) and all(isinstance(reader, OverEdgesOp) for reader in readers)


def _is_of_codes(constant: SparseConstantOp) -> bool:
    """Return whether only layers on codes read a weight, whose kernels find outputs that share inputs themselves."""
    readers = [use.operation for use in constant.result.uses]
    return bool(readers) and all(isinstance(one, LinearOp) and one.times is not None for one in readers)


def _shared(rows: CsrPattern, panels: Sequence[Panel]) -> float:
    """Return the share of the connections that go to inputs which a whole panel reads."""
    return shared_connections(panels) / max(1, len(rows.indices))


LEAST_SHARED = 0.5
"""Share of a weight's connections below which panels are no faster than rows by themselves."""
