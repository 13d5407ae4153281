"""The facts about a sparse weight: what the searches of `theory` and the graph of its neurons say, as attributes."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...dialect.attributes.structure_facts import FactAttr
from ...sparse.csr import CsrPattern, Indices
from ...sparse.patterns.bands_and_components import Connectivity
from ...sparse.patterns.hidden_blocks import Groups, alike_inputs, row_groups, usual_height
from ...sparse.patterns.n_of_m import n_of_m
from ...sparse.patterns.row_overlap import OverlapSample
from ...sparse.patterns.strides import strides_of

FEWEST: int = 16
"""Connections below which there is nothing to be found."""

LOOKED_AT: int = 1 << 16
"""Connections that are looked at together."""


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
