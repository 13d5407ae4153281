"""Edges as code reads them: target by target, and the targets in blocks of about equal work, which threads share."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from ...dialect.ops.constants import SparseConstantOp
from ...sparse.csr import CscMatrix, Indices
from ...theory.neuron_order.target_walks import near_walk, walked

AHEAD: Final = 16
"""Edges by which the values of a source are fetched ahead of their use."""

BLOCK_WORK: Final = 4096
"""Edges and nodes of a block: enough that to begin one costs nothing, few enough that threads end together."""


def block_borders(graph: CscMatrix) -> Indices:
    """Return the first target of each block, and the number of targets; behind one of many edges blocks are empty."""
    work: Indices = graph.pointers + np.arange(len(graph.pointers))
    wanted = np.arange(block_count(graph) + 1) * int(work[-1]) // block_count(graph)
    borders = np.searchsorted(work, wanted)
    borders[-1] = graph.shape[1]
    return borders


def block_count(graph: CscMatrix) -> int:
    """Return the number of blocks, whatever the order of the targets: at least one."""
    return max(1, -(-(len(graph.rows) + graph.shape[1]) // BLOCK_WORK))


def pack_edges(op: Operation | None) -> list[NDArray[np.generic]]:
    """Return borders of blocks, the first edge of each target, and the source and weight of each edge.

    Behind the last edge stand more, whose sources are fetched and never used.
    """
    assert isinstance(op, SparseConstantOp)
    return _packed(op.weight)


def pack_walked_edges(op: Operation | None) -> list[NDArray[np.generic]]:
    """Return the same of targets in the order of a walk, and that order."""
    assert isinstance(op, SparseConstantOp)
    walk = near_walk(op.weight)
    return [*_packed(walked(op.weight, walk)), walk.astype(np.int32)]


def _packed(graph: CscMatrix) -> list[NDArray[np.generic]]:
    return [
        block_borders(graph),
        graph.pointers,
        np.pad(graph.rows.astype(np.int32), (0, AHEAD)),
        np.pad(graph.values, (0, AHEAD)),
    ]
