"""Tied weights are stored once, and the model still computes what it did."""

from typing import Literal

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import redpebble
from redpebble.export.writing.tied_weights import tie_transposes
from tests.export.export_oracle import answers

TIED = """
<ir_version: 8, opset_import: ["" : 17]>
tied (int64[n] i) => (float[n, 40] y) {
    rows = Gather (embedding, i)
    relu = Relu (rows)
    head = Transpose <perm = [1, 0]> (embedding)
    y = MatMul (relu, head)
}
"""


@pytest.fixture
def model() -> onnx.ModelProto:
    proto, rng = onnx.parser.parse_model(TIED), np.random.default_rng(0)
    weight = rng.standard_normal((40, 32)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "embedding"))
    return proto


@pytest.mark.parametrize("target", ["portable", "ort"])
def test_a_weight_that_is_the_transpose_of_one_that_stays_is_not_stored(
    model: onnx.ModelProto, target: Literal["portable", "ort"]
) -> None:
    optimized = redpebble.optimize(model, target=target).proto
    assert [(one.name, [*one.dims]) for one in optimized.graph.initializer] == [("embedding", [40, 32])]
    feeds = {"i": np.arange(40)}
    for before, after in zip(answers(model, feeds), answers(optimized, feeds), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


def test_weights_that_the_model_stored_twice_itself_stay(model: onnx.ModelProto) -> None:
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(weight.T), "head"))
    del model.graph.node[2]
    optimized = redpebble.optimize(model).proto
    assert {one.name for one in optimized.graph.initializer} == {"embedding", "head"}


def test_an_output_of_the_graph_stays_a_value_of_its_own() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    values = [ir.Value(name=name, const_value=ir.tensor(one)) for name, one in (("a", array), ("b", array.T.copy()))]
    graph = ir.Graph([], [values[1]], nodes=[], initializers=values, opset_imports={"": 17}, name="g")
    tie_transposes(ir.Model(graph, ir_version=8), {"b"})
    assert {*graph.initializers} == {"a", "b"}
