"""Transformers that are pruned and quantized statically: one node, attention included.

Networks of several layers round thousands of values to codes, and one that is next to a tie, which floats in another
order may put on its other side, changes what comes after it: results are compared in the mean.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper, parser

import redpebble
from redpebble.models.exports.stored import random_feeds, stored_export
from tests.end_to_end.test_quantized import needs_vnni, networks_of
from tests.support.quantized_models import statically_quantized

FEATURES = 64

LAYER = """<ir_version: 9, opset_import: ["": 20]>
encoder (float[b, s, 64] x, float[b, 1, 1, s] mask) => (float[b, s, 64] y)
  <int64[4] apart = {0, 0, 4, 16}, int64[3] together = {0, 0, 64}, float[1] quarter = {0.5},
   float[64] bias = {BIAS}, float[64] ones = {ONES}> {
  [query] queries = MatMul(x, wq)
  [query_bias] q = Add(queries, bias)
  [key] keys = MatMul(x, wk)
  [key_bias] k = Add(keys, bias)
  [value] v = MatMul(x, wv)
  q4 = Reshape(q, apart) k4 = Reshape(k, apart) v4 = Reshape(v, apart)
  [q_heads] qh = Transpose <perm = [0, 2, 1, 3]> (q4)
  [k_heads] kh = Transpose <perm = [0, 2, 3, 1]> (k4)
  [v_heads] vh = Transpose <perm = [0, 2, 1, 3]> (v4)
  qs = Mul(qh, quarter) ks = Mul(kh, quarter)
  [scores] scores = MatMul(qs, ks)
  [mask] masked = Add(scores, mask)
  [softmax] weights = Softmax <axis = -1> (masked)
  [mean] means = MatMul(weights, vh)
  rows = Transpose <perm = [0, 2, 1, 3]> (means)
  joined = Reshape(rows, together)
  [output] out = MatMul(joined, wo)
  residual = Add(out, x)
  [norm] y = LayerNormalization <axis = -1> (residual, ones, bias)
}"""

CONFIGURATIONS: dict[str, list[str] | None] = {
    "products": ["MatMul", "Gemm"],
    "products and sums": ["MatMul", "Gemm", "Add"],
    "each operator": None,
}


def encoder(density: float = 0.15) -> onnx.ModelProto:
    """Return a layer of an encoder without its feed-forward part: 4 heads of 16 features."""
    rng = np.random.default_rng(4)
    text = LAYER.replace("BIAS", ", ".join(f"{one:.3f}" for one in rng.standard_normal(FEATURES) / 10))
    model = parser.parse_model(text.replace("ONES", ", ".join(["1.0"] * FEATURES)))
    for name in ("wq", "wk", "wv", "wo"):
        weight = rng.standard_normal((FEATURES, FEATURES)) * (rng.random((FEATURES, FEATURES)) < density)
        weight /= np.sqrt(FEATURES * density)
        model.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), name))
    return model


def inputs(samples: int, length: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng((samples, length))
    mask = np.where(rng.random((samples, 1, 1, length)) < 0.3, np.float32(-1e4), np.float32(0))
    return {"x": rng.standard_normal((samples, length, FEATURES), dtype=np.float32), "mask": mask}


def node_by_node(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Return a session whose operators are those of the file: with others onnxruntime's results differ, too."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def deviation(results: Sequence[NDArray[np.generic]], expected: Sequence[NDArray[np.generic]]) -> float:
    """Return the root of the mean square of differences, as a share of that of the results."""
    result, other = (np.asarray(one[0], np.float64) for one in (results, expected))
    return float(np.sqrt(np.mean((result - other) ** 2) / np.mean(other**2)))


@needs_vnni
@pytest.mark.parametrize(
    "name", ["products", pytest.param("products and sums", marks=pytest.mark.slow), "each operator"]
)
def test_a_quantized_encoder_is_one_node(name: str, tmp_path: Path) -> None:
    feeds = [inputs(2, length) for length in (9, 12)]
    model = statically_quantized(encoder(), feeds, tmp_path, CONFIGURATIONS[name], but=["mask"])
    kept = networks_of(model)
    assert kept.count("ours") == 1
    assert {*kept} <= {"ours", "QuantizeLinear", "DequantizeLinear"}
    ours, original = redpebble.session(model), node_by_node(model)
    for samples, length in ((1, 12), (3, 9), (2, 40)):
        arrays = inputs(samples, length)
        assert deviation(ours.run(None, arrays), original.run(None, arrays)) < 2e-3


@needs_vnni
def test_attention_from_codes_to_codes_is_part_of_the_node(tmp_path: Path) -> None:
    model = statically_quantized(encoder(), [inputs(2, 9)], tmp_path, ["MatMul"], form="operator")
    assert len([node for node in model.graph.node if node.op_type == "QLinearMatMul"]) == 6
    assert networks_of(model).count("ours") == 1
    arrays = inputs(2, 40)
    assert deviation(redpebble.session(model).run(None, arrays), node_by_node(model).run(None, arrays)) < 2e-3


@needs_vnni
def test_constants_that_are_rounded_in_the_file_are_constants(tmp_path: Path) -> None:
    model = statically_quantized(
        encoder(), [inputs(2, 9)], tmp_path, None, but=["mask"], options={"AddQDQPairToWeight": True}
    )
    assert networks_of(model) == ["ours"]


@needs_vnni
@pytest.mark.parametrize("activations", ["QUInt8", "QInt8"])
def test_outputs_that_are_codes_are_those_of_onnxruntime(activations: str, tmp_path: Path) -> None:
    model = statically_quantized(
        encoder(), [inputs(2, 12)], tmp_path, None, activations=activations, per_channel=False, but=["mask"]
    )
    arrays = inputs(2, 30)
    result, expected = redpebble.compile(model).run(None, arrays)[0], node_by_node(model).run(None, arrays)[0]
    values = np.unique(expected)
    step = float(np.diff(values)[np.diff(values) > 1e-4].min())
    steps = np.abs(result - expected) / step
    assert steps.max() < 1.01
    assert np.mean(steps < 0.01) > 0.99


@pytest.mark.slow
@needs_vnni
@pytest.mark.parametrize("name", ["bert.classic", "bert.dynamo", "distilbert.classic", "distilbert.dynamo"])
@pytest.mark.parametrize(("configuration", "per_channel"), [("products", True), ("products and sums", False)])
def test_exported_encoders_are_one_node(name: str, configuration: str, per_channel: bool, tmp_path: Path) -> None:
    model = stored_export(name, 0.9)
    feeds = [random_feeds(model, {"batch": 2, "sequence": 24}, seed) for seed in range(2)]
    masks = {node.input[0] for node in model.graph.node if node.op_type == "Softmax"}
    for index, node in enumerate(model.graph.node):
        node.name = node.name or f"node_{index}"
    # as optimum leaves them out: a mask of -inf has no scale
    but = [node.name for node in model.graph.node if masks.intersection(node.output)]
    codes = statically_quantized(
        model, feeds, tmp_path, CONFIGURATIONS[configuration], per_channel=per_channel, but=but
    )
    kept = networks_of(codes)
    assert kept.count("ours") == 1
    assert not {"MatMul", "Softmax", "LayerNormalization"}.intersection(kept)
    ours = redpebble.session(codes)
    original = onnxruntime.InferenceSession(codes.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch, sequence in ((1, 128), (3, 24), (8, 7)):
        arrays = random_feeds(model, {"batch": batch, "sequence": sequence}, seed=5)
        assert deviation(ours.run(None, arrays), original.run(None, arrays)) < 0.02
