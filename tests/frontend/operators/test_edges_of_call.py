import gzip
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import redpebble
from redpebble.dialect.ops.graphs import AggregateOp, SortEdgesOp
from redpebble.driver.native_build import native_build
from redpebble.frontend.import_model import import_model
from redpebble.options import Options
from tests.lowering.graphs.test_sorted_edges import MAXIMUM, SUM, model

EXPORTS = Path(__file__).parents[2] / "end_to_end" / "graph_exports"

INPUTS = sorted(EXPORTS.glob("*.input.*"))


def read(path: Path) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(gzip.decompress(path.read_bytes()))


def agrees(path: Path) -> None:
    proto = read(path)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    network, names = redpebble.compile(proto, cache=False), [value.name for value in proto.graph.input]
    for nodes, edges in ((30, 70), (1, 3), (7, 1), (200, 3000)):
        rng = np.random.default_rng(edges)
        x, ends = rng.standard_normal((nodes, 6), dtype=np.float32), rng.integers(0, nodes, (2, edges))
        feeds = dict(zip(names, (x, ends), strict=True))
        (wanted,) = session.run(None, feeds)
        np.testing.assert_allclose(network.run(None, feeds)[0], wanted, rtol=1e-4, atol=1e-4)
    ends[1, 0] = nodes
    with pytest.raises(ValueError, match=f"(size|got) {nodes}$"):
        network.run(None, dict(zip(names, (x, ends), strict=True)))


@pytest.mark.parametrize("name", ["gcn.input.dynamo", pytest.param("gin.input.classic", marks=pytest.mark.slow)])
def test_layers_of_torch_geometric_take_edges_as_an_input(name: str) -> None:
    agrees(EXPORTS / f"{name}.onnx.gz")


@pytest.mark.slow
@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name)
def test_every_export_with_edges_as_an_input_agrees_with_onnxruntime(path: Path) -> None:
    agrees(path)


def test_layers_of_one_graph_sort_its_edges_once() -> None:
    ops = list(native_build(read(EXPORTS / "gcn.input.dynamo.onnx.gz"), Options()).module.walk())
    assert len([op for op in ops if isinstance(op, SortEdgesOp)]) == 1
    assert len([op for op in ops if isinstance(op, AggregateOp)]) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SUM.replace("ConstantOfShape (xs)", "Identity (x)"), "expected zeros, got Identity z"),
        (
            SUM.replace("Expand (u, of)", "Identity (rows)").replace("u = U", "rows = Expand (r, of) v = U"),
            "expected a target for each edge that all features share",
        ),
        (SUM.replace("Mul (w, g)", "Div (g, w)"), "expected Gather or GatherND or GatherElements, got Div m"),
        (
            MAXIMUM.replace("m = Gather", "o = Gather").replace("u = U", "m = Mul (o, w) u = U"),
            "expected a maximum of edges without weights",
        ),
        (MAXIMUM.replace('"min"', '"max"'), "expected ScatterElements with reduction=min, got max"),
    ],
)
def test_other_sums_are_none_over_edges_of_a_call(text: str, message: str) -> None:
    proto = model(6, text)
    proto.graph.initializer.append(numpy_helper.from_array(np.arange(6).reshape(1, 6), "r"))
    assert message in " ".join(import_model(proto, foreign="prologue").reasons.values())


def test_a_portable_model_keeps_the_names_of_its_edges() -> None:
    proto = model(6, SUM)
    graph = redpebble.optimize(proto, target="portable").model.graph
    assert [value.name for value in graph.inputs] == [value.name for value in proto.graph.input]
