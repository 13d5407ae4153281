"""The facts about a sparse weight: what the searches of `theory` and the graph of its neurons say, as attributes."""

from collections.abc import Iterator

import numpy as np

from redpebble.dialect.structure import FactAttr
from redpebble.passes.connectivity import Connectivity
from redpebble.theory.n_of_m import n_of_m
from redpebble.theory.row_groups import alike_inputs, row_groups, usual_height
from redpebble.theory.row_lists import Rows
from redpebble.theory.similar_rows import first_alike
from redpebble.theory.strides import strides_of

FEWEST: int = 16
"""Connections below which there is nothing to be found."""


def facts_of(rows: Rows, rng: np.random.Generator) -> list[FactAttr]:
    """Return what is remarkable about a pattern."""
    if len(rows.inputs) < FEWEST:
        return []
    return [*_repeats(rows, rng), *_counts(rows), *_strides(rows), *_connectivity(rows)]


def _repeats(rows: Rows, rng: np.random.Generator) -> Iterator[FactAttr]:
    """Yield blocks, groups, and how many inputs and outputs are dead or like others."""
    read, filled = np.unique(rows.inputs), np.flatnonzero(rows.lengths)
    inputs, outputs = alike_inputs(rows), first_alike(rows)
    height, width = usual_height(outputs, filled), usual_height(inputs, read)
    in_blocks = height > 1 or width > 1
    if in_blocks:
        yield FactAttr.of("blocks", outputs=height, inputs=width)
    if height == 1 and (groups := row_groups(rows, rng)) is not None:
        yield FactAttr.of("groups", outputs=groups.height, percent=round(100 * groups.fill))
    alike = [int(np.count_nonzero(first[some] != some)) for first, some in ((inputs, read), (outputs, filled))]
    dead = rows.input_count - len(read), rows.row_count - len(filled)
    if any(dead):
        yield FactAttr.of("dead", inputs=dead[0], outputs=dead[1])
    if any(alike) and not in_blocks:
        yield FactAttr.of("alike", inputs=alike[0], outputs=alike[1])


def _counts(rows: Rows) -> Iterator[FactAttr]:
    found = n_of_m(rows)
    if found is not None:
        yield FactAttr.of("shuffled_n_of_m" if found.is_shuffled else "n_of_m", kept=found.kept, of=found.of)


def _strides(rows: Rows) -> Iterator[FactAttr]:
    found = strides_of(rows)
    if found is not None and found.kind == "exchange":
        yield FactAttr.of("exchange", stride=found.stride)
    elif found is not None:
        numbers = {"period": found.period, "start": found.start, "stride": found.stride, "radix": found.radix}
        yield FactAttr.of("circulant", **numbers)


def _connectivity(rows: Rows) -> Iterator[FactAttr]:
    graph = Connectivity(rows)
    components, band = graph.components(), graph.band()
    if components.parts > 1:
        yield FactAttr.of("components", count=components.parts, percent=round(100 * components.largest))
    if band is not None:
        yield FactAttr.of("band", before=band.before, after=band.after)
