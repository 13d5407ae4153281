"""Lists of edges, and the sparse matrix of a graph."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .csr import CscMatrix, Indices


class EdgeList(NamedTuple):
    """Edges in any order, some maybe several times: sources, targets, and weights, 1 where there are none."""

    sources: Indices
    targets: Indices
    weights: NDArray[np.float32] | None = None

    def matrix(self, counts: tuple[int, int], *, unique: bool = False) -> CscMatrix:
        """Return the matrix [sources, targets] of graphs with so many of both; weights of equal edges are added up.

        With `unique` an edge counts once.
        """
        order = np.lexsort((self.sources, self.targets))
        sources, targets = self.sources[order], self.targets[order]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = (np.diff(sources) != 0) | (np.diff(targets) != 0)
        starts = np.flatnonzero(is_first)
        weights = np.ones(len(order)) if self.weights is None or unique else self.weights[order].astype(np.float64)
        sums = np.add.reduceat(weights, starts) if len(starts) else np.zeros(0)
        values = np.ones(len(starts), np.float32) if unique else sums.astype(np.float32)
        ends = np.cumsum(np.bincount(targets[starts], minlength=counts[1]))
        return CscMatrix(counts, np.append(0, ends).astype(np.int64), sources[starts], values)
