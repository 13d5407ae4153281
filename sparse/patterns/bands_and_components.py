"""Connectivity of the neurons of a layer: parts without connections between them, and hidden bands.

In a band, outputs that have an input in common are no farther apart than twice its width: random masks, in which most
pairs of outputs have one, have no band. Sparse ones are graphs of inputs and outputs; where w steps reach s of them
from somewhere, some neighbours are s / 2 w apart in any order, which one search through the graph finds out. For others
reverse Cuthill-McKee looks for an order.

Source: Cuthill and McKee, Reducing the bandwidth of sparse symmetric matrices; scipy's implementation.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, reverse_cuthill_mckee

from ..csr import CsrPattern, Indices
from .row_overlap import OverlapSample

WIDEST_BAND: Final = 8
"""A band is none when it reaches further than one part in so many of the inputs to either side."""


MOST_TOUCHING: Final = 0.7
"""Share of all pairs of a sample of outputs: in a band, twice four eighths of its width is half of all at most."""

FEW_CONNECTIONS: Final = 64
FEWER_CONNECTIONS: Final = 8
"""Connections of an output that show how near the neurons of random masks are, and that these hang together."""


class Components(NamedTuple):
    """Parts without connections between them, and the share of the connections that the largest one has."""

    parts: int
    largest: float


class Band(NamedTuple):
    """Largest distance of the inputs of an output from its own place: as they stand, and in the order found."""

    before: int
    after: int


class Connectivity:
    """The graph of inputs, numbered first, and outputs; most questions need some connections of each output only."""

    def __init__(self, rows: CsrPattern, sample: OverlapSample) -> None:
        """Take a pattern and a sample of its rows; graphs are built when they are needed."""
        self._rows, self._sample = rows, sample

    def components(self) -> Components:
        """Return the parts that have connections."""
        filled = np.flatnonzero(self._rows.lengths)
        _, thin = connected_components(_lists_of(self._rows.thinned(FEWER_CONNECTIONS)), directed=False)
        if len(np.unique(thin[self._rows.column_count + filled])) <= 1:
            return Components(min(1, len(filled)), float(min(1, len(filled))))  # more connections part nothing
        count, labels = connected_components(_lists_of(self._rows), directed=False)
        connections = np.bincount(labels[self._rows.indices], minlength=count)
        return Components(int(np.count_nonzero(connections)), float(connections.max()) / len(self._rows.indices))

    def band(self) -> Band | None:
        """Return the band that an order of the inputs and one of the outputs makes, where it is narrow."""
        if self._is_hopeless():
            return None
        order = reverse_cuthill_mckee(_graph_of(self._rows), symmetric_mode=True)
        band = Band(self._reach(np.arange(len(order))), self._reach(np.argsort(order)))
        return band if band.after * WIDEST_BAND <= self._rows.column_count else None

    def _is_hopeless(self) -> bool:
        """Return whether all neurons that can be reached are so near that no order is a narrow band.

        What few connections reach in some steps, all of them reach in no more.
        """
        rows = self._rows
        if len(rows.indices) == 0 or rows.lengths.max() * WIDEST_BAND > 2 * rows.column_count:
            return True
        filled = int(np.count_nonzero(rows.lengths))
        if self._sample.touching * filled > MOST_TOUCHING * rows.row_count:
            return True
        start = rows.column_count + int(rows.lengths.argmax())
        reached, before = breadth_first_order(_lists_of(self._rows.thinned(FEW_CONNECTIONS)), start, directed=False)
        steps, neuron = 0, int(reached[-1])
        while neuron != start:
            neuron = int(before[neuron])
            steps += 1
        # in a band of b, so many steps reach 2 b + 1 inputs each, and as many outputs in proportion
        return (len(reached) - 1) * WIDEST_BAND > 2 * max(1, steps) * (rows.column_count + rows.row_count)

    def _reach(self, positions: NDArray[np.int64]) -> int:
        """Return how far connections reach at these places of neurons; outputs are spread as wide as inputs."""
        ranks = _ranks(positions[: self._rows.column_count]), _ranks(positions[self._rows.column_count :])
        scaled = ranks[1] * (self._rows.column_count / max(1, self._rows.row_count))
        apart = np.abs(ranks[0][self._rows.indices] - np.repeat(scaled, self._rows.lengths))
        return int(np.ceil(apart.max(initial=0)))


def _lists_of(rows: CsrPattern) -> csr_array:
    """Return the graph of a pattern, from outputs to inputs only."""
    pointers = np.concatenate((np.zeros(rows.column_count, dtype=np.int64), rows.pointers))
    size = rows.column_count + rows.row_count
    # scipy 1.18 refuses a column of numpy's `nonzero`, which is not contiguous
    indices = np.ascontiguousarray(rows.indices)
    return csr_array((np.ones(len(indices), dtype=np.int8), indices, pointers), shape=(size, size))


def _graph_of(rows: CsrPattern) -> csr_array:
    """Return the graph of a pattern, both ways."""
    outputs = rows.column_count + rows.rows
    size = rows.column_count + rows.row_count
    ends = np.concatenate([rows.indices, outputs]), np.concatenate([outputs, rows.indices])
    return csr_array((np.ones(2 * len(rows.indices), dtype=np.int8), ends), shape=(size, size))


def _ranks(positions: Indices) -> Indices:
    ranks = np.empty(len(positions), dtype=np.int64)
    ranks[np.argsort(positions, kind="stable")] = np.arange(len(positions))
    return ranks
