"""Quantized layers in standard operators: what onnxruntime runs without our library, and its bits."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import onnx_ir
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import redpebble
from redpebble.export.sparse_networks.node_format import DOMAIN
from tests.end_to_end.test_quantized import FORMS, inputs, needs_vnni, outcome
from tests.end_to_end.test_quantized_convolutions import STATIC, Network, images, residual
from tests.support.quantized_models import Form, dynamically_quantized, pruned_network, quantized, quantized_images


def written(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the file that `optimize` writes, which has a node of ours."""
    optimized = onnx_ir.to_proto(redpebble.optimize(model, target="ort").model)
    assert DOMAIN in {node.domain for node in optimized.graph.node}
    return optimized


def operators_run(model: onnx.ModelProto, folder: Path) -> Counter[str]:
    """Return the operators that onnxruntime runs where our library is absent; Flatten and Reshape are the same."""
    options, path = onnxruntime.SessionOptions(), folder / "inside.onnx"
    options.optimized_model_filepath, options.log_severity_level = str(path), 3
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    graph = onnx.load_from_string(path.read_bytes()).graph
    return Counter(node.op_type.replace("Flatten", "Reshape") for node in graph.node)


@needs_vnni
@pytest.mark.parametrize("form", FORMS, ids=lambda form: "_".join(map(str, form)))
def test_layers_become_the_operators_of_the_original(form: tuple[Form, str, str, bool], tmp_path: Path) -> None:
    kind, activations, weights, per_channel = form
    network = pruned_network([40, 64, 48, 20], 0.15)
    model, x = quantized(network, tmp_path, kind, activations, weights, per_channel=per_channel), inputs(11, 40)
    optimized = written(model)
    assert operators_run(optimized, tmp_path) == operators_run(model, tmp_path)
    assert np.array_equal(outcome(optimized, x), outcome(model, x))


@needs_vnni
@pytest.mark.parametrize("form", STATIC, ids=lambda form: "_".join(map(str, form)))
def test_convolutions_become_the_operators_of_the_original(form: tuple[Form, str, bool], tmp_path: Path) -> None:
    kind, activations, per_channel = form
    model = quantized_images(residual(mean=False), tmp_path, kind, activations, per_channel=per_channel)
    optimized, x = written(model), images(2)
    if activations == "QUInt8":  # of signed codes onnxruntime pools floats
        assert operators_run(optimized, tmp_path) == operators_run(model, tmp_path)
    assert np.array_equal(outcome(optimized, x), outcome(model, x))


def separable() -> onnx.ModelProto:
    """A dense stem, and convolutions that are mostly zeros around a dense one of each channel."""
    net = Network()
    x = net.node("Relu", net.conv("x", (3, 64, 3), 1.0))
    x = net.node("Relu", net.conv(x, (64, 64, 3)))
    x = net.node("Relu", net.conv(x, (64, 64, 3), 1.0, group=64))
    x = net.node("Relu", net.conv(x, (64, 128, 3)))
    return net.model(net.conv(x, (128, 128, 3)), 16)


@needs_vnni
@pytest.mark.parametrize("form", ["static", "dynamic"])
def test_convolutions_of_each_channel_stay_in_groups_and_dense_ones_of_codes(form: str, tmp_path: Path) -> None:
    model = (
        dynamically_quantized(separable(), tmp_path, "QUInt8", operators=["Conv"])
        if form == "dynamic"
        else quantized_images(separable(), tmp_path, "qdq", "QUInt8", per_channel=True)
    )
    optimized, x = written(model), images(2, 16)
    found, expected = operators_run(optimized, tmp_path), operators_run(model, tmp_path)
    assert {name: found[name] for name in ("Conv", "ConvInteger", "QLinearConv")} == {
        name: expected[name] for name in ("Conv", "ConvInteger", "QLinearConv")
    }
    groups = [
        attribute.i
        for node in onnx.inliner.inline_local_functions(optimized).graph.node
        for attribute in node.attribute
        if attribute.name == "group"
    ]
    assert groups == [64]
    compiled = redpebble.compile(optimized)
    assert {layer.format for layer in compiled.report} == {"int8"}
    assert np.array_equal(outcome(optimized, x), outcome(model, x))
    assert np.array_equal(compiled.run(None, {"x": x})[0], outcome(model, x))


@needs_vnni
@pytest.mark.parametrize("per_channel", [False, True])
def test_layers_that_find_their_scales_become_the_operators_of_the_original(
    tmp_path: Path, *, per_channel: bool
) -> None:
    model = dynamically_quantized(pruned_network([40, 64, 20], 0.15), tmp_path, "QInt8", per_channel=per_channel)
    optimized, x = written(model), inputs(11, 40)
    assert operators_run(optimized, tmp_path) == operators_run(model, tmp_path)
    assert np.array_equal(outcome(optimized, x), outcome(model, x))


LAYER = """
<ir_version: 9, opset_import: ["" : OPSET]>
layer (float[n, 40] x) => (float[n, 16] y) <float xs = {0.05}, uint8 xz = {120}, float ys = {0.03}, uint8 yz = {ZERO}>
{
  q = QuantizeLinear(x, xs, xz)
  p = MatMulInteger(q, w, xz)
  a = Add(p, b)
  f = Cast<to = 1>(a)
  g = Mul(f, m)
  h = ACTIVATION(g)
  c = QuantizeLinear(h, ys, yz)
  y = DequantizeLinear(c, ys, yz)
}
"""


@needs_vnni
@pytest.mark.parametrize(
    ("opset", "zero", "activation", "multiplier", "operator"),
    [
        (17, 0, "Relu", 1.0, "QGemm"),
        (17, 9, "LeakyRelu", 1.0, "QGemm"),
        (17, 9, "Relu", 1.0, "MatMulInteger"),  # onnxruntime has QGemm with relu for codes from 0 on alone
        (11, 0, "Relu", 1.0, "MatMulInteger"),  # without scales for each output
        (17, 0, "Relu", 1.0 + 2**-23, "MatMulInteger"),  # no scale of a weight makes it
    ],
)
def test_products_are_of_integers_where_no_operator_would_be_made_of_them(
    opset: int, zero: int, activation: str, multiplier: float, operator: str, tmp_path: Path
) -> None:
    text = LAYER.replace("OPSET", str(opset)).replace("ZERO", str(zero)).replace("ACTIVATION", activation)
    model, rng = parser.parse_model(text), np.random.default_rng(0)
    weight = np.where(rng.random((40, 16)) < 0.1, rng.integers(-99, 99, (40, 16)), 0).astype(np.int8)
    scales = np.float32(0.05) * np.linspace(0.01, 0.02, 16, dtype=np.float32)
    constants = {
        "w": weight,
        "b": rng.integers(-99, 99, 16).astype(np.int32),
        "m": scales * np.float32(multiplier),
    }
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    optimized, x = written(model), inputs(9, 40)
    assert operator in operators_run(optimized, tmp_path)
    assert np.array_equal(outcome(optimized, x), outcome(model, x))
