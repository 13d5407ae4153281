"""Predicted time of sums over the edges of a graph: `sqrt(core^2 + far^2)`, as for layers with weights.

Each edge reads the features of its source, wherever that lies. Core is the time where all nodes are in the second-level
cache; far is that of lines which come from farther away, one line after the other rather than as a stream.
"""

from collections.abc import Mapping
from math import hypot
from types import MappingProxyType
from typing import Final, NamedTuple

from ..machine import DEFAULT_PRICES, Machine


class SumPrices(NamedTuple):
    """Nanoseconds of sums over edges on a machine."""

    edge: float
    """Time of an edge beside its features."""
    vector: float
    """Time of a vector of features of an edge, for vectors of 16 floats."""
    scattered: float
    """Time of lines here and there over that of as many one behind the other."""


SUM_PRICES: Final[Mapping[str, SumPrices]] = MappingProxyType(
    {
        "cascade_lake": SumPrices(1.0, 1.6, 1.3),
        "emerald_rapids": SumPrices(1.1, 0.65, 1.0),
        "zen5": SumPrices(0.35, 0.4, 1.0),
    }
)
"""Prices by the names of `kernels/prices.py`: fitted to sums of 16 to 256 features over 1000 to 100 000 nodes."""

NODES_OF_CALL: Final = 10_000
EDGES_OF_NODE: Final = 8
"""Size of the graph that stands for those of calls: the better order depends on it little."""

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
    prices = SUM_PRICES.get(machine.prices, SUM_PRICES[DEFAULT_PRICES])
    vectors = -(-work.features // machine.lanes)
    vector_ns = prices.vector * (machine.lanes / WIDEST_LANES) ** 0.5
    core = work.edges * (prices.edge + vectors * vector_ns)
    node_bytes = float(FEATURE_BYTES * work.features)
    values = node_bytes * work.sources
    far = prices.scattered * machine.far_ns(work.edges * node_bytes, values)
    far += machine.far_ns(EDGE_BYTES * work.edges + node_bytes * work.targets, values + EDGE_BYTES * work.edges)
    return hypot(core, far) / 1000


def work_of_call(features: int) -> GraphWork:
    """Return sums over edges that calls bring: what is priced is one of `NODES_OF_CALL` nodes."""
    return GraphWork(NODES_OF_CALL, NODES_OF_CALL, EDGES_OF_NODE * NODES_OF_CALL, features)
