"""Tensors that onnxruntime knows no rank of: behind operators without inference of shapes."""

import numpy as np
import onnx

from redpebble.ort.provider.register import host
from tests.ort.provider_models import HIDDEN, OUTPUTS, WIDTH, assert_equal_runs, model, plain_session, provider_session

SCALED = f"""
<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 1]>
scaled (float[n, {WIDTH}] x) => (float[n, {OUTPUTS}] y)
{{
    s = ai.onnx.ml.Scaler <offset: floats = [0.5], scale: floats = [2.0]> (x)
    m0 = MatMul (s, w0)
    a0 = Add (m0, row)
    r0 = Relu (a0)
    m1 = MatMul (r0, w1)
    r1 = Relu (m1)
    m2 = MatMul (r1, w2)
    y = Add (m2, b2)
}}
"""
"""A pipeline as scikit-learn's exporter writes it: biases are matrices of one row."""


def test_an_unknown_rank_is_not_taken_for_a_number() -> None:
    proto = model(SCALED)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, HIDDEN), np.float32), "row"))
    ours, plain = provider_session(proto), plain_session(proto)
    assert host().network_count >= 1
    for rows in (1, 3):
        x = np.random.default_rng(rows).standard_normal((rows, WIDTH)).astype(np.float32)
        assert_equal_runs(ours, plain, {"x": x})
