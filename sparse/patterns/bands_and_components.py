"""Connectivity of the neurons of a layer: parts without connections between them, and hidden bands.

In a band, outputs that have an input in common are no farther apart than twice its width: random masks, in which most
pairs of outputs have one, have no band. Sparse ones are graphs of inputs and outputs; where w steps reach s of them
from somewhere, some neighbours are s / 2 w apart in any order, which one search through the graph finds out. For others
reverse Cuthill-McKee looks for an order.

Source: Cuthill and McKee, Reducing the bandwidth of sparse symmetric matrices; scipy's implementation.
"""

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..csr import CsrPattern, Indices
from .row_overlap import OverlapSample

if TYPE_CHECKING:
    from scipy.sparse import csr_array

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
        # more connections part nothing
        if self._rows.thinned(FEWER_CONNECTIONS).hangs_together() or self._rows.hangs_together():
            filled = min(1, len(self._rows.indices))
            return Components(filled, float(filled))
        from scipy.sparse.csgraph import connected_components

        count, labels = connected_components(_lists_of(self._rows), directed=False)
        connections = np.bincount(labels[self._rows.indices], minlength=count)
        return Components(int(np.count_nonzero(connections)), float(connections.max()) / len(self._rows.indices))

    def band(self) -> Band | None:
        """Return the band that an order of the inputs and one of the outputs makes, where it is narrow."""
        if self._is_hopeless():
            return None
        from scipy.sparse.csgraph import reverse_cuthill_mckee

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
        near = rows.thinned(FEW_CONNECTIONS).reached(int(rows.lengths.argmax()))
        counts = [sum(int(np.count_nonzero(side)) for side in sides) for sides in islice(near, WIDEST_BAND // 2)]
        # steps through a band of b reach 2 b inputs each, beside the first one, and as many outputs in proportion
        neurons = rows.column_count + rows.row_count
        return any((count - 2) * WIDEST_BAND > 2 * steps * neurons for steps, count in enumerate(counts) if steps)

    def _reach(self, positions: NDArray[np.int64]) -> int:
        """Return how far connections reach at these places of neurons; outputs are spread as wide as inputs."""
        ranks = _ranks(positions[: self._rows.column_count]), _ranks(positions[self._rows.column_count :])
        scaled = ranks[1] * (self._rows.column_count / max(1, self._rows.row_count))
        apart = np.abs(ranks[0][self._rows.indices] - np.repeat(scaled, self._rows.lengths))
        return int(np.ceil(apart.max(initial=0)))


def _lists_of(rows: CsrPattern) -> "csr_array":
    """Return the graph of a pattern, from outputs to inputs only."""
    from scipy.sparse import csr_array

    pointers = np.concatenate((np.zeros(rows.column_count, dtype=np.int64), rows.pointers))
    size = rows.column_count + rows.row_count
    # scipy 1.18 refuses a column of numpy's `nonzero`, which is not contiguous
    indices = np.ascontiguousarray(rows.indices)
    return csr_array((np.ones(len(indices), dtype=np.int8), indices, pointers), shape=(size, size))


def _graph_of(rows: CsrPattern) -> "csr_array":
    """Return the graph of a pattern, both ways."""
    from scipy.sparse import csr_array

    outputs = rows.column_count + rows.rows
    size = rows.column_count + rows.row_count
    ends = np.concatenate([rows.indices, outputs]), np.concatenate([outputs, rows.indices])
    return csr_array((np.ones(2 * len(rows.indices), dtype=np.int8), ends), shape=(size, size))


def _ranks(positions: Indices) -> Indices:
    ranks = np.empty(len(positions), dtype=np.int64)
    ranks[np.argsort(positions, kind="stable")] = np.arange(len(positions))
    return ranks
