"""Sparse convolutions quantized by samples: what becomes integers, what results change by, what stays."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import parser

import redpebble
from redpebble.models.digits import digits_test_set
from redpebble.models.zoo import build
from redpebble.runtime.jit import host_target

Floats = NDArray[np.float32]


def outcome(model: onnx.ModelProto, x: Floats) -> Floats:
    """Return what onnxruntime computes."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.slow
def test_a_trained_network_is_right_as_often_in_integers(tmp_path: Path) -> None:
    model = onnx_ir.to_proto(build("digits_cnn"))
    images, labels = digits_test_set()
    images = images.reshape(-1, 1, 8, 8)
    result = redpebble.optimize(model, samples={"x": images[::10]})
    assert result.quantized.startswith("6 of 6 sparse layers and 1 other compute with integers")
    result.save(tmp_path / "integers.onnx")
    floats, integers = outcome(model, images), redpebble.session(tmp_path / "integers.onnx").run(None, {"x": images})[0]
    right, before = (float((logits.argmax(axis=1) == labels).mean()) for logits in (integers, floats))
    assert right >= before - 0.006
    change = np.sqrt(np.mean(np.square(integers - floats)) / np.mean(np.square(floats)))
    assert 0 < change < 0.03


NETWORK = """
<ir_version: 9, opset_import: ["" : 17]>
network (float[n, 64, 16, 16] x) => (float[n, 64, 7, 7] y) {
  a = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w0)
  b = Relu(a)
  c = Conv<kernel_shape = [1, 1]>(b, w1)
  d = MIDDLE
  e = Relu(d)
  f = MaxPool<kernel_shape = [2, 2], strides = [1, 1]>(e)
  y = Conv<kernel_shape = [3, 3], strides = [2, 2]>(f, w3)
}
"""
MIDDLES = {
    "sum": "Add(c, b)",
    "sum of the input": "Add(c, x)",
    "depthwise": "Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 64>(c, w2)",
}


def network(middle: str) -> onnx.ModelProto:
    model, rng = parser.parse_model(NETWORK.replace("MIDDLE", MIDDLES[middle])), np.random.default_rng(5)
    shapes = {"w0": (64, 64, 3, 3), "w1": (64, 64, 1, 1), "w2": (64, 1, 3, 3), "w3": (64, 64, 3, 3)}
    for name, shape in shapes.items():
        if name in {value for node in model.graph.node for value in node.input}:
            kept = rng.random(shape) < (1 if name == "w2" else 0.1)
            weight = (rng.standard_normal(shape) * kept / 8).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return model


@pytest.mark.parametrize(
    ("middle", "others"),
    [
        pytest.param("sum", "", marks=pytest.mark.slow),
        ("sum of the input", ""),
        ("depthwise", " and 1 other"),
    ],
)
def test_sums_and_poolings_and_depthwise_convolutions_pass_codes_on(middle: str, others: str, tmp_path: Path) -> None:
    model = network(middle)
    x = np.random.default_rng(1).standard_normal((6, 64, 16, 16), dtype=np.float32)
    result = redpebble.optimize(model, samples={"x": x})
    assert result.quantized.startswith(f"3 of 3 sparse layers{others} compute with integers")
    result.save(tmp_path / "integers.onnx")
    session, written = (
        redpebble.session(tmp_path / "integers.onnx"),
        onnx.load_from_string((tmp_path / "integers.onnx").read_bytes()),
    )
    for batch in (0, 1, 5):
        floats, some = outcome(model, x[:batch]), session.run(None, {"x": x[:batch]})[0]
        assert some.shape == floats.shape
        if batch:
            assert np.sqrt(np.mean(np.square(some - floats)) / np.mean(np.square(floats))) < 0.03
            if host_target().multiplies_bytes:  # else onnxruntime's own sums saturate
                assert np.abs(some - outcome(written, x[:batch])).max() < 0.01 * np.abs(floats).max()
