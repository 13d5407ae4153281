import numpy as np
import onnx_ir
import onnxruntime
import pytest

import redpebble
from redpebble.dialect.ops.graphs import AggregateOp
from redpebble.frontend.import_model import import_model
from redpebble.models import zoo
from redpebble.models.graph_network import GraphNetwork


def agrees(network: GraphNetwork, seed: int) -> None:
    model = onnx_ir.to_proto(network.build(np.random.default_rng(seed)))
    x = np.random.default_rng(seed).standard_normal((network.nodes, network.widths[0]), dtype=np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    (y,) = redpebble.compile(model).run(None, {"x": x})
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "graph"),
    [("gcn", "power_law"), pytest.param("sage", "geometric", marks=pytest.mark.slow), ("gin", "road"), ("gat", "grid")],
)
def test_native_code_agrees_with_onnxruntime(kind: str, graph: str) -> None:
    agrees(GraphNetwork(kind, graph, 60, 5.0, (6, 9, 3)), 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gcn", "sage", "gin", "gat"])
@pytest.mark.parametrize("nodes", [1, 2, 37])
def test_nodes_without_edges_and_single_nodes_are_right(kind: str, nodes: int) -> None:
    for seed, (graph, degree) in enumerate([("power_law", 0.0), ("power_law", 2.0), ("grid", 4.0)]):
        agrees(GraphNetwork(kind, graph, nodes, degree, (5, 2, 17)), seed)


@pytest.mark.parametrize("graph", ["power_law", "geometric", "grid", "road"])
def test_edges_lead_both_ways_between_nodes(graph: str) -> None:
    network = GraphNetwork("gcn", graph, 400, 6.0)
    sources, targets = network.edges(np.random.default_rng(0))
    assert 0 <= min(sources.min(), targets.min()) <= max(sources.max(), targets.max()) < 400
    there, back = (np.sort(400 * first + second) for first, second in ((sources, targets), (targets, sources)))
    np.testing.assert_array_equal(there, back)
    assert 2 < len(sources) / 400 < 7


def test_a_written_graph_takes_a_few_bytes_an_edge() -> None:
    network = GraphNetwork("gcn", "power_law", 20_000, 6.0, (64, 64))
    optimized = redpebble.optimize(network.build(np.random.default_rng(0)))
    stored = sum(value.const_value.nbytes for value in optimized.model.graph.initializers.values() if value.const_value)
    assert stored < 9 * 140_000
    assert [node.domain for node in optimized.model.graph] == ["ai.redpebble"]


def test_two_layers_of_one_graph_share_it() -> None:
    model = zoo.build("graph_network(nodes=50, widths=(8, 8, 8))")
    graphs = [op.graph for op in import_model(model, foreign="refuse").module.walk() if isinstance(op, AggregateOp)]
    assert len(graphs) == 2
    assert graphs[0] is graphs[1]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("kind='mlp'", "kind: expected gcn, sage, gin, gat, got 'mlp'"),
        ("graph='tree'", "graph: expected power_law, uniform, geometric, grid, road, got 'tree'"),
        ("degree=-1.0", "degree: expected 0 or more, got -1.0"),
        ("widths=(3,)", "widths: expected two or more, each 1 or more, got (3,)"),
    ],
)
def test_other_parameters_are_refused(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        zoo.build(f"graph_network({spec})")
    assert message in str(caught.value)
