import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import redpebble
from redpebble.dialect.ops.graphs import AggregateOp
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.import_model import import_model
from redpebble.ort.any_model import session

NODES, FEATURES, EDGES = 11, 5, 30
INDICES = np.random.default_rng(3).integers(0, NODES, (2, EDGES))
WEIGHTS = np.random.default_rng(4).standard_normal((EDGES, 1), dtype=np.float32)
X = np.random.default_rng(5).standard_normal((NODES, FEATURES), dtype=np.float32)
SPREAD = np.repeat(INDICES[1][:, np.newaxis], FEATURES, axis=1)

Arrays = Mapping[str, NDArray[np.generic]]


def model(
    nodes: str, constants: Arrays, shape: Sequence[int] = (NODES, FEATURES), result: Sequence[int] = ()
) -> onnx.ModelProto:
    ports = f"(float{list(shape)} x) => (float{list(result or shape)} y)"
    graph = onnx.parser.parse_graph(f"g {ports} {{ {nodes} }}")
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


CONSTANTS: Arrays = {
    "s": INDICES[0],
    "sn": INDICES[0][:, np.newaxis],
    "se": np.repeat(INDICES[0][:, np.newaxis], FEATURES, axis=1),
    "t": INDICES[1],
    "tn": INDICES[1][:, np.newaxis],
    "te": SPREAD,
    "w": WEIGHTS,
    "z": np.zeros((NODES, FEATURES), np.float32),
    "shape": np.array([NODES, FEATURES]),
    "spread": np.array([EDGES, FEATURES]),
    "low": np.full((EDGES, FEATURES), np.finfo(np.float32).min),
    "negative": SPREAD - NODES,
}

FORMS = {
    "plain": "g = Gather <axis = 0> (x, s) y = ScatterElements <axis = 0, reduction = 'add'> (z, te, g)",
    "weighted": """g = Gather <axis = -2> (x, s) m = Mul (w, g) o = ConstantOfShape (shape)
        y = ScatterElements <axis = -2, reduction = 'add'> (o, te, m)""",
    "weights behind": """g = GatherND (x, sn) m = Mul (g, w) n = Mul (m, w) i = Expand (tn, spread)
        y = ScatterElements <axis = 0, reduction = 'add'> (z, i, n)""",
    "index of features": """g = GatherElements <axis = 0> (x, se)
        y = ScatterElements <axis = 0, reduction = 'add'> (z, negative, g)""",
    "ScatterND": "g = Gather <axis = 0> (x, s) m = Mul (w, g) y = ScatterND <reduction = 'add'> (z, tn, m)",
    "maximum": """g = Gather <axis = 0> (x, s) o = ScatterElements <axis = 0, reduction = 'min'> (z, te, low)
        y = ScatterElements <axis = 0, reduction = 'max'> (o, te, g)""",
}


def used(text: str) -> Arrays:
    words = text.replace(",", " ").replace("(", " ").replace(")", " ").split()
    return {name: array for name, array in CONSTANTS.items() if name in words}


def by_onnxruntime(proto: onnx.ModelProto, x: NDArray[np.float32] = X) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {session.get_inputs()[0].name: x})
    return np.asarray(y)


@pytest.mark.parametrize("form", FORMS)
def test_a_sum_over_edges_is_an_aggregation_in_every_form(form: str) -> None:
    text = FORMS[form].replace("'", '"')
    proto = model(text, used(text))
    wanted = by_onnxruntime(proto)
    aggregations = [op for op in import_model(proto, foreign="refuse").module.walk() if isinstance(op, AggregateOp)]
    assert len(aggregations) == 1
    (y,) = redpebble.compile(proto).run(None, {"x": X})
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)
    optimized = onnx_ir.to_proto(redpebble.optimize(proto).model)
    assert [node.domain for node in optimized.graph.node] == ["ai.redpebble"]
    np.testing.assert_allclose(by_onnxruntime(optimized), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "constants", "message"),
    [
        ("y = ScatterElements <axis = 0> (z, te, x)", {}, "expected reduction=add or max, got none"),
        (
            'g = Gather <axis = 0> (x, s) y = ScatterElements <axis = 0, reduction = "add"> (z, te, g)',
            {"s": INDICES[0] + NODES},
            f"expected indices of {NODES} nodes, {-NODES} to {NODES - 1}, got ",
        ),
        (
            'g = Gather <axis = 0> (x, s) y = ScatterElements <axis = 0, reduction = "add"> (z, te, g)',
            {"te": np.arange(EDGES * FEATURES).reshape(EDGES, FEATURES) % NODES},
            "expected a target for each edge that all features share, got int64[30, 5] te",
        ),
        (
            'g = Gather <axis = 0> (x, s) y = ScatterElements <axis = 0, reduction = "max"> (z, te, g)',
            {},
            "expected ScatterElements or the lowest float where an edge ends, else 0, got float32[11, 5] z",
        ),
        (
            'g = Relu (x) y = ScatterElements <axis = 0, reduction = "add"> (z, te, g)',
            {"te": SPREAD[:NODES]},
            "expected Gather or GatherND or GatherElements, got Relu g",
        ),
        (
            'g = GatherElements <axis = 0> (x, se) y = ScatterElements <axis = 0, reduction = "add"> (z, te, g)',
            {"se": CONSTANTS["se"][:, :3], "te": SPREAD[:, :3]},
            f"expected an index for all {FEATURES} features, got one for 3",
        ),
    ],
)
def test_what_is_no_sum_over_edges_is_refused(text: str, constants: Arrays, message: str) -> None:
    proto = model(text, {**used(text), **constants})
    assert any(message in reason for reason in import_model(proto, foreign="keep").reasons.values())
    with pytest.raises(UnsupportedModelError):
        import_model(proto, foreign="refuse")


def test_equal_edges_of_a_maximum_a_sum_and_a_larger_graph_are_three_matrices() -> None:
    text = """l = Gather <axis = 0> (x, s) m = ScatterElements <axis = 0, reduction = "max"> (low, te, l)
        g = Gather <axis = 0> (m, s) a = ScatterElements <axis = 0, reduction = "add"> (z, te, g)
        h = Gather <axis = 0> (a, s) y = ScatterElements <axis = 0, reduction = "add"> (larger, te, h)"""
    start = np.zeros((NODES, FEATURES), np.float32)
    start[INDICES[1]] = np.finfo(np.float32).min
    constants = {**used(text), "low": start, "larger": np.zeros((NODES + 4, FEATURES), np.float32)}
    proto = model(text, constants, (NODES, FEATURES), (NODES + 4, FEATURES))
    (y,) = redpebble.compile(proto).run(None, {"x": X})
    np.testing.assert_allclose(y, by_onnxruntime(proto), rtol=1e-5, atol=1e-5)


def test_a_sparse_constant_on_the_left_is_no_transpose() -> None:
    dense = np.where(np.random.default_rng(6).random((NODES, NODES)) < 0.15, 2.0, 0.0).astype(np.float32)
    proto = model("y = MatMul (a, x)", {"a": dense})
    text = str(import_model(proto, foreign="refuse").module)
    assert "pebble.aggregate" in text
    assert "pebble.transpose" not in text
    (y,) = redpebble.compile(proto).run(None, {"x": X})
    np.testing.assert_allclose(y, dense @ X, rtol=1e-5)


@pytest.mark.parametrize("flipped", [0, 1])
def test_a_sparse_tensor_times_a_dense_one(flipped: int) -> None:
    dense = np.zeros((NODES, NODES), np.float32)
    dense[INDICES[1], INDICES[0]] = WEIGHTS[:, 0]
    proto = model(f"y = com.microsoft.SparseToDenseMatMul <alpha = 0.5, transA = {flipped}> (a, x)", {})
    rows, columns = np.nonzero(dense)
    entries = numpy_helper.from_array(dense[rows, columns], "a")
    positions = numpy_helper.from_array(rows * NODES + columns, "positions")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(entries, positions, [NODES, NODES]))
    (y,) = redpebble.compile(proto).run(None, {"x": X})
    np.testing.assert_allclose(y, 0.5 * (dense.T if flipped else dense) @ X, rtol=1e-5, atol=1e-5)


EXPORTS = Path(__file__).parents[2] / "end_to_end" / "graph_exports"


@pytest.mark.parametrize(
    "name", ["gcn.fixed.dynamo", "sage.fixed.classic", "sagemax.fixed.dynamo", "gat.fixed.dynamo", "gat.fixed.classic"]
)
def test_layers_of_torch_geometric_are_aggregations_and_linear_layers(name: str) -> None:
    proto = onnx.ModelProto.FromString(gzip.decompress((EXPORTS / f"{name}.onnx.gz").read_bytes()))
    x = np.random.default_rng(0).standard_normal((30, 6), dtype=np.float32)
    wanted = by_onnxruntime(proto, x)
    (y,) = redpebble.compile(proto).run(None, {"x": x})
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)
    optimized = onnx_ir.to_proto(redpebble.optimize(proto).model)
    assert [node.domain for node in optimized.graph.node] == ["ai.redpebble"]
    np.testing.assert_allclose(by_onnxruntime(optimized, x), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXPORTS.glob("*.fixed.*")), ids=lambda path: path.name)
def test_a_session_of_any_export_agrees_with_onnxruntime(path: Path) -> None:
    proto = onnx.ModelProto.FromString(gzip.decompress(path.read_bytes()))
    x = np.random.default_rng(1).standard_normal((30, 6), dtype=np.float32)
    session = redpebble.session(proto)
    (y,) = session.run(None, {proto.graph.input[0].name: x})
    np.testing.assert_allclose(y, by_onnxruntime(proto, x), rtol=1e-5, atol=1e-5)


def test_sums_of_constant_features_over_a_graph_are_a_constant() -> None:
    rng = np.random.default_rng(0)
    graph = np.where(rng.random((30, 30)) < 0.1, rng.random((30, 30)), 0).astype(np.float32)
    features = rng.random((30, 5), dtype=np.float32)
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 21]> g (float[5,4] w) => (float[30,4] y) '
        "{ h = MatMul(graph, features) y = MatMul(h, w) }"
    )
    proto.graph.initializer.extend(
        numpy_helper.from_array(array, name) for array, name in ((graph, "graph"), (features, "features"))
    )
    folded = redpebble.optimize(proto, target="portable").proto
    assert [node.op_type for node in folded.graph.node] == ["MatMul"]
    (product,) = folded.graph.initializer
    np.testing.assert_allclose(numpy_helper.to_array(product), graph @ features, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1,), (5,), (1, 5), (30, 1), (30, 5)])
def test_a_sum_that_spreads_between_layers_agrees_with_onnxruntime(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    constants = {
        "a": np.where(rng.random((30, 30)) < 0.1, rng.random((30, 30)), 0),
        "w": rng.standard_normal((6, 5)),
        "c": rng.standard_normal(shape),
        "v": rng.standard_normal((5, 4)),
    }
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 21]> g (float[30,6] x) => (float[30,4] y) '
        "{ f = MatMul(a, x) g = MatMul(f, w) h = Add(c, g) i = Relu(h) j = MatMul(a, i) y = MatMul(j, v) }"
    )
    proto.graph.initializer.extend(
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()
    )
    x = rng.standard_normal((30, 6), dtype=np.float32)
    networks = redpebble.optimize(proto).networks
    assert sum(int(network.reason.split()[0]) for network in networks) == 2  # both products over the graph are ours
    for ours in (redpebble.compile(proto), redpebble.session(proto)):
        np.testing.assert_allclose(ours.run(None, {"x": x})[0], by_onnxruntime(proto, x), rtol=1e-4, atol=1e-5)


def test_an_optimized_product_over_a_graph_of_several_samples_loads() -> None:
    rng = np.random.default_rng(0)
    graph = np.where(rng.random((20, 30)) < 0.05, rng.random((20, 30)), 0).astype(np.float32)
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 21]> g (float[2,30,4] x) => (float[2,20,4] y) { y = MatMul(graph, x) }'
    )
    proto.graph.initializer.append(numpy_helper.from_array(graph, "graph"))
    optimized = redpebble.optimize(proto, target="ort")
    assert optimized.networks
    x = rng.random((2, 30, 4), dtype=np.float32)
    (found,) = session(optimized.model).run(None, {"x": x})
    np.testing.assert_allclose(found, graph @ x, atol=1e-5)
