"""Predicted time of sums over the edges of a graph: `sqrt(core^2 + far^2)`, as for layers with weights.

Each edge reads the features of its source, wherever that lies. Core is the time where all nodes are in the second-level
cache; far is that of lines which come from farther away, one line after the other rather than as a stream.
"""

from math import hypot
from typing import Final, NamedTuple

from redpebble.kernels.machine import Machine

EDGE_NS: Final = 1.0
"""Time of an edge beside its features."""

VECTOR_NS: Final = 1.6
"""Time of a vector of features of an edge, for vectors of 16 floats."""

SCATTERED: Final = 1.3
"""Time of lines here and there over that of as many one behind the other."""

FEATURE_BYTES: Final = 4
EDGE_BYTES: Final = 8
WIDEST_LANES: Final = 16


class GraphWork(NamedTuple):
    """Sums over edges from some nodes to others, for each of the features."""

    sources: int
    targets: int
    edges: int
    features: int


def aggregate_us(work: GraphWork, machine: Machine) -> float:
    """Return the microseconds of the sums on one thread."""
    vectors = -(-work.features // machine.lanes)
    vector_ns = VECTOR_NS * (machine.lanes / WIDEST_LANES) ** 0.5
    core = work.edges * (EDGE_NS + vectors * vector_ns)
    node_bytes = float(FEATURE_BYTES * work.features)
    values = node_bytes * work.sources
    far = SCATTERED * machine.far_ns(work.edges * node_bytes, values)
    far += machine.far_ns(EDGE_BYTES * work.edges + node_bytes * work.targets, values + EDGE_BYTES * work.edges)
    return hypot(core, far) / 1000
