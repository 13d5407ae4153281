"""Order in which a sum over the edges of a graph takes its targets, so that sources that were read are in the cache.

A walk through the targets in reverse Cuthill-McKee order meets neighbours of a node soon after one another. Sources,
targets and results stay where they are: only the walk changes, and each sum keeps the order of its terms.
"""

import numpy as np
from numpy.typing import NDArray

from ...sparse.csr import CscMatrix
from .graph_orders import bandwidth_numbers

Indices = NDArray[np.int64]


def near_walk(graph: CscMatrix) -> Indices:
    """Return the targets [T] of a graph in reverse Cuthill-McKee order.

    Target t is the node that is source t, too; edges from sources behind those do not count.
    """
    inside = graph.rows < graph.shape[1]
    sources, targets = graph.rows[inside].astype(np.int64), graph.columns[inside].astype(np.int64)
    numbers = bandwidth_numbers(sources, targets, graph.shape[1])
    return np.argsort(numbers)


def walked(graph: CscMatrix, walk: Indices) -> CscMatrix:
    """Return the graph [sources, targets] with its targets in the order of a walk."""
    counts = np.diff(graph.pointers)[walk]
    pointers = np.append(0, np.cumsum(counts))
    edges = np.repeat(graph.pointers[:-1][walk] - pointers[:-1], counts) + np.arange(len(graph.rows))
    return CscMatrix(graph.shape, pointers, graph.rows[edges], graph.values[edges])


def distinct_share(graph: CscMatrix, edges_at_once: int) -> float:
    """Return how many sources are read anew for each edge: those that differ among so many edges in a row, of all."""
    count = len(graph.rows)
    if not count:
        return 0.0
    groups = np.arange(count) // max(1, edges_at_once)
    keys = np.sort(groups * np.int64(graph.shape[0]) + graph.rows)
    return float(1 + np.count_nonzero(np.diff(keys))) / count
