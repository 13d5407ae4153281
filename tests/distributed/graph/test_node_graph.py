"""Graph networks cut by nodes: who owns, needs and sends what, and what no plan takes."""

import numpy as np
import onnx.parser
import pytest
from scipy.sparse import csr_array

from redpebble.distributed.graph.node_graph import NodeGraph, NodeOwners
from redpebble.distributed.plans.plans import PlanRequest, plan
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.models.zoo import build
from redpebble.pipeline import build as build_module

WITH_ROWS_OF_ITS_OWN = """
<ir_version: 10, opset_import: ["" : 21]>
graph (float[3, 2] x, float[1, 2] z) => (float[3, 2] y)
<float[3, 3] a = {0, 1, 0, 0, 0, 0, 0, 0, 0}>
{ h = MatMul (a, x) y = Add (h, z) }
"""


def test_parts_need_the_sources_of_their_edges_and_send_what_others_need() -> None:
    module = build_module(build("graph_network(nodes=60, degree=4, widths=(3, 5, 2))"))
    graph = NodeGraph.of(module)
    owners = np.random.default_rng(0).integers(0, 3, 60).astype(np.int32)
    cut = NodeOwners(graph, 3, owners)
    edges = graph.over_edges[0].edges
    reads = csr_array((np.ones(len(edges.rows)), (edges.columns, edges.rows)), shape=(60, 60)).toarray() > 0
    for part in range(3):
        wanted = reads[owners == part].any(axis=0) & (owners != part)
        assert np.concatenate([*cut.needed(part).values()]).tolist() == sorted(
            np.flatnonzero(wanted), key=lambda node: (owners[node], node)
        )
        for other, nodes in cut.wanted_of(part).items():
            assert cut.needed(other)[part].tolist() == nodes.tolist()
    volume = sum(len(nodes) for part in range(3) for nodes in cut.needed(part).values())
    assert sum(int(share.sent.sum()) for share in cut.shares()) == volume * (5 + 2)


@pytest.mark.slow
def test_the_planner_cuts_a_grid_along_a_line() -> None:
    module = build_module(build("graph_network(graph='grid', nodes=100, degree=4, widths=(3, 2))"))
    found = plan(module, PlanRequest(2))
    assert (found.kind, found.lines[-1]) == ("nodes", "chosen: nodes, the only one possible")
    assert found.partition is not None
    cut = NodeOwners(NodeGraph.of(module), 2, found.partition.owners[0])
    # a cut through a grid of 10 x 10 has 10 edges
    assert sum(len(nodes) for part in range(2) for nodes in cut.needed(part).values()) <= 24


def test_a_value_with_other_rows_is_refused_by_name() -> None:
    module = build_module(onnx.parser.parse_model(WITH_ROWS_OF_ITS_OWN))
    with pytest.raises(UnsupportedModelError, match="add is over other nodes, the plan nodes expects sums"):
        plan(module, PlanRequest(2, "nodes"))


def test_more_parts_than_nodes_are_refused() -> None:
    module = build_module(build("graph_network(nodes=3, widths=(3, 2))"))
    with pytest.raises(UnsupportedModelError, match="4 parts of 3 nodes"):
        plan(module, PlanRequest(4, "nodes"))
