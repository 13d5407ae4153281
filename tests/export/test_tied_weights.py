"""Tied weights are stored once, and the model still computes what it did."""

from typing import Literal

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import redpebble
from redpebble.export.tied_weights import tie_weights
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


HEADS = {
    "transposed": "head = Transpose <perm = [1, 0]> (embedding) y = MatMul (h, head)",
    "in a Gemm": "y = Gemm <transB = 1> (h, embedding)",
}
"""What the last layer does with the embedding."""


@pytest.mark.parametrize("target", ["portable", "ort"])
@pytest.mark.parametrize("head", HEADS)
def test_a_sparse_embedding_that_is_the_last_layer_too_is_stored_once(
    head: str, target: Literal["portable", "ort"]
) -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    tied (int64[n] i) => (float[n, 400] y) { rows = Gather (embedding, i) m = MatMul (rows, w) h = Relu (m) HEAD }
    """
    model, rng = onnx.parser.parse_model(text.replace("HEAD", HEADS[head])), np.random.default_rng(0)
    for name, shape in (("embedding", (400, 96)), ("w", (96, 96))):
        weight = np.where(rng.random(shape) < 0.05, rng.standard_normal(shape), 0)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight.astype(np.float32), name))
    result = redpebble.optimize(model, target=target)
    optimized = result.proto
    assert len(result.networks) == (target == "ort")
    assert sum(400 in one.dims for one in optimized.graph.initializer) == 1
    assert optimized.ByteSize() < 1.01 * model.ByteSize()
    feeds = {"i": np.arange(400)}
    native = redpebble.session(optimized).run(None, feeds)
    for before, *after in zip(answers(model, feeds), answers(optimized, feeds), native, strict=True):
        for one in after:
            np.testing.assert_allclose(one, before, rtol=1e-5, atol=1e-5)


def test_layers_that_share_their_weights_still_do() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    shared (float[n, 96] x) => (float[n, 96] y) {
        a = MatMul (x, w) b = CumSum (a, axis) v = Identity (w) y = MatMul (b, v)
    }
    """
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    weight = np.where(rng.random((96, 96)) < 0.1, rng.standard_normal((96, 96)), 0).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1), "axis"))
    result = redpebble.optimize(model)
    assert len(result.networks) == 2
    assert sorted([*one.dims] for one in result.proto.graph.initializer) == [[], *2 * [[np.count_nonzero(weight)]]]


def test_an_output_of_the_graph_stays_a_value_of_its_own() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    values = [ir.Value(name=name, const_value=ir.tensor(one)) for name, one in (("a", array), ("b", array.T.copy()))]
    graph = ir.Graph([], [values[1]], nodes=[], initializers=values, opset_imports={"": 17}, name="g")
    tie_weights(ir.Model(graph, ir_version=8), {"b"})
    assert {*graph.initializers} == {"a", "b"}


def test_a_default_that_callers_may_override_is_not_taken_for_a_constant() -> None:
    default, made = (ir.Value(name=name, const_value=ir.tensor(np.arange(3.0))) for name in ("default", "made"))
    user = ir.Node("", "Neg", [made])
    graph = ir.Graph([default], user.outputs, nodes=[user], initializers=[default, made], opset_imports={"": 17})
    tie_weights(ir.Model(graph, ir_version=8), {"made"})
    assert user.inputs[0] is made
