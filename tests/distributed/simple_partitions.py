"""Partitions that need no search: contiguous slices of every level, and contiguous groups of layers."""

import numpy as np

from redpebble.distributed.graph.ownership import weight_for
from redpebble.distributed.graph.row_graph import RowGraph
from redpebble.passes.analysis.weights import connection_count
from redpebble.theory.partition.partition import Partition, slices


def contiguous_rows(graph: RowGraph, part_count: int) -> Partition:
    """Return the partition that cuts every level into slices of neighbours."""
    return Partition(part_count, tuple(slices(width, part_count) for width in graph.level_widths))


def layer_groups(graph: RowGraph, part_count: int) -> Partition:
    """Return the partition into groups of layers that follow each other, with about as many connections each.

    A part owns all neurons of its layers; the first one owns the inputs.
    """
    counts = np.array([connection_count(weight_for(layer)) for layer in graph.layers], dtype=np.float64)
    # a layer belongs to the part in whose share of all connections its middle lies
    middles = np.cumsum(counts) - counts / 2
    parts = np.minimum(middles * part_count / max(counts.sum(), 1.0), part_count - 1).astype(np.int32)
    owners = (np.full(width, part, dtype=np.int32) for width, part in zip(graph.level_widths[1:], parts, strict=True))
    return Partition(part_count, (np.zeros(graph.level_widths[0], dtype=np.int32), *owners))
