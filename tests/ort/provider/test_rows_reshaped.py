"""Layers between reshapes: exporters flatten [batch, tokens, heads, features] to rows before a Gemm, and undo it."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from redpebble.frontend.import_model import import_model
from redpebble.ort.provider.register import SparseNetworkCompiler, host, register
from tests.ort.provider_models import HIDDEN, assert_equal_runs, constants, options, plain_session, provider_session

HEADS, FEATURES = 4, 24
WIDTH = HEADS * FEATURES

BETWEEN = f"""
<ir_version: 8, opset_import: ["" : 17]>
between (float[b, {HEADS}, s, {FEATURES}] x) => (float y)
{{{{
    heads = Transpose <perm = [0, 2, 1, 3]> (x)
    width = Constant <value_ints = [-1, {WIDTH}]> ()
    flat = Reshape (heads, width)
    rows = Gemm (flat, w, b)
    sizes = Shape <end = 2> (heads)
    last = Constant <value_ints = [{HIDDEN}]> ()
    target = Concat <axis = 0> (sizes, last)
    tokens = Reshape (rows, target)
    zero = Constant <value_int = 0> ()
    y = CumSum ({{read}}, zero)
}}}}
"""

PAST = f"""
<ir_version: 8, opset_import: ["" : 17]>
past (float[b, s, {WIDTH}] x, float[b, p, {HIDDEN}] past) => (float[b, t, {HIDDEN}] present, float[b, t, 5] y)
{{
    h = MatMul (x, w)
    present = Concat <axis = 1> (past, h)
    y = MatMul (present, v)
}}
"""


def layered(text: str) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(text)
    made = constants()
    weights = {"w": made["w0"][:WIDTH], "b": made["b0"], "v": made["w1"][:, :5]}
    read = {name for node in proto.graph.node for name in node.input}
    proto.graph.initializer.extend(numpy_helper.from_array(weights[name], name) for name in weights if name in read)
    return proto


@pytest.mark.parametrize("read", ["tokens", "rows"])
def test_a_layer_between_reshapes_is_taken(read: str) -> None:
    proto = layered(BETWEEN.format(read=read))
    ours, plain = provider_session(proto), plain_session(proto)
    assert host().network_count == 1
    for batch, tokens in ((1, 1), (3, 7), (2, 16)):
        x = np.random.default_rng(tokens).standard_normal((batch, HEADS, tokens, FEATURES)).astype(np.float32)
        assert_equal_runs(ours, plain, {"x": x})


def test_every_network_reads_and_yields_values_of_the_model() -> None:
    proto = layered(BETWEEN.format(read="tokens"))
    imported = import_model(proto, foreign="keep")
    (found,) = SparseNetworkCompiler().networks(imported.model)
    assert found.boundary == (("heads",), ("tokens",))


def test_layers_beside_a_past_that_the_model_yields_are_taken() -> None:
    proto = layered(PAST)
    ours, plain = provider_session(proto), plain_session(proto)
    assert host().network_count == 2
    rng = np.random.default_rng(0)
    for tokens, before in ((1, 4), (5, 9)):
        x = rng.standard_normal((2, tokens, WIDTH)).astype(np.float32)
        past = rng.standard_normal((2, before, HIDDEN)).astype(np.float32)
        assert_equal_runs(ours, plain, {"x": x, "past": past})


def test_what_is_of_half_precision_is_left_with_a_reason(capfd: pytest.CaptureFixture[str]) -> None:
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> half (float16[n, {WIDTH}] x) '
        f"=> (float16[n, {HIDDEN}] y) {{ y = MatMul (x, w) }}"
    )
    weight = constants()["w0"][:WIDTH].astype(np.float16)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    made = options()
    made.log_severity_level = 2
    made.add_provider_for_devices(register(), {})
    onnxruntime.InferenceSession(proto.SerializeToString(), made)
    assert "float16 or bfloat16, which redpebble.session and optimize compute as float" in capfd.readouterr().err
