"""Edges as code reads them: target by target, and the targets in blocks of about equal work, which threads share."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from redpebble.dialect.ops.constants import SparseConstantOp
from redpebble.sparse.csr import CscMatrix, Indices

AHEAD: Final = 16
"""Edges by which the values of a source are fetched ahead of their use."""

BLOCK_WORK: Final = 4096
"""Edges and nodes of a block: enough that to begin one costs nothing, few enough that threads end together."""


def block_borders(graph: CscMatrix) -> Indices:
    """Return the first target of each block, and the number of targets: at least one block."""
    work: Indices = graph.pointers + np.arange(len(graph.pointers))
    count = max(1, -(-int(work[-1]) // BLOCK_WORK))
    wanted = np.arange(count + 1) * int(work[-1]) // count
    borders = np.searchsorted(work, wanted)
    borders[-1] = graph.shape[1]
    return np.unique(borders)


def block_count(graph: CscMatrix) -> int:
    """Return the number of blocks."""
    return max(1, len(block_borders(graph)) - 1)


def pack_edges(op: Operation | None) -> list[NDArray[np.generic]]:
    """Return borders of blocks, the first edge of each target, and the source and weight of each edge.

    Behind the last edge stand more, whose sources are fetched and never used.
    """
    assert isinstance(op, SparseConstantOp)
    graph = op.weight
    borders = block_borders(graph)
    return [
        (np.zeros(2, np.int64) if len(borders) < 2 else borders),
        graph.pointers,
        np.pad(graph.rows.astype(np.int32), (0, AHEAD)),
        np.pad(graph.values, (0, AHEAD)),
    ]
