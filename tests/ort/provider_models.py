"""Pruned models as anybody would write them, and sessions with and without the provider."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from redpebble.ort.provider.register import register
from tests.ort.deployed_models import options as options
from tests.ort.deployed_models import session

WIDTH, HIDDEN, OUTPUTS = 97, 203, 50

MLP = f"""
<ir_version: 8, opset_import: ["" : 17]>
mlp (float[n, {WIDTH}] x) => (float[n, {OUTPUTS}] y)
{{
    m0 = MatMul (x, w0)
    a0 = Add (m0, b0)
    r0 = Relu (a0)
    m1 = MatMul (r0, w1)
    a1 = Add (m1, b1)
    r1 = Relu (a1)
    m2 = MatMul (r1, w2)
    y = Add (m2, b2)
}}
"""

UNCOVERED = f"""
<ir_version: 8, opset_import: ["" : 17]>
uncovered (float[n, {WIDTH}] x) => (float[n, {OUTPUTS}] y, float[n, {HIDDEN}] total)
{{
    m0 = MatMul (x, w0)
    a0 = Add (m0, b0)
    r0 = Relu (a0)
    zero = Constant <value_int: int = 0> ()
    total = CumSum (r0, zero)
    mixed = Softmax <axis: int = 0> (total)
    m1 = MatMul (mixed, w1)
    a1 = Add (m1, r0)
    r1 = Relu (a1)
    m2 = MatMul (r1, w2)
    y = Add (m2, b2)
}}
"""
"""A path leaves the layers, through operators on all rows at once, and comes back; `r0` goes past it."""

RESIDUAL = f"""
<ir_version: 8, opset_import: ["" : 17]>
residual (float[n, {WIDTH}] x, float[n, {OUTPUTS}] r) => (float[n, {OUTPUTS}] y)
{{
    m0 = MatMul (x, w0)
    a0 = Add (m0, b0)
    r0 = Relu (a0)
    m1 = MatMul (r0, w1)
    m2 = MatMul (m1, w2)
    r2 = Relu (m2)
    y = Add (r2, r)
}}
"""

MEASURED = f"""
<ir_version: 8, opset_import: ["" : 17]>
measured (float[n, {WIDTH}] x) => (float[n, {OUTPUTS}] y)
{{
    h = Softmax (x)
    size = Shape (h)
    none = ConstantOfShape (size)
    zero = Constant <value_int: int = 0> ()
    mask = CumSum (none, zero)
    masked = Add (h, mask)
    m0 = MatMul (masked, w0)
    a0 = Add (m0, b0)
    r0 = Relu (a0)
    m1 = MatMul (r0, w1)
    y = MatMul (m1, w2)
}}
"""
"""The size of a tensor that is a layer's leads to a mask, as exports of encoders have it."""

CONTROL_FLOW = f"""
<ir_version: 8, opset_import: ["" : 17]>
control (float[n, {WIDTH}] x, bool flag) => (float[n, {OUTPUTS}] y)
{{
    m0 = MatMul (x, w0)
    a0 = Add (m0, b0)
    r0 = Relu (a0)
    r1 = If (flag) <
        then_branch = yes () => (float[n, {HIDDEN}] t) {{
            m1 = MatMul (r0, w1)
            t = Add (m1, b1)
        }},
        else_branch = no () => (float[n, {HIDDEN}] e) {{ e = Neg (r0) }}
    >
    m2 = MatMul (r1, w2)
    y = Add (m2, b2)
}}
"""


def constants() -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    sizes = [WIDTH, HIDDEN, HIDDEN, OUTPUTS]
    made: dict[str, NDArray[Any]] = {}
    for index, (rows, columns) in enumerate(pairwise(sizes)):
        weight = rng.standard_normal((rows, columns)).astype(np.float32)
        weight[rng.random(weight.shape) < 0.9] = 0
        weight[:, 3] = 0
        made[f"w{index}"] = weight
        made[f"b{index}"] = rng.standard_normal(columns).astype(np.float32)
    return made


def model(text: str) -> onnx.ModelProto:
    """The model of a text, with pruned weights."""
    proto = onnx.parser.parse_model(text)
    used = {name for node in proto.graph.node for name in node.input} | {"w1", "b1"}
    proto.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in constants().items() if name in used
    )
    return proto


def overridable() -> onnx.ModelProto:
    """A model whose first weight is an input as well, so that a run may give another one."""
    proto = model(MLP)
    proto.graph.input.append(helper.make_tensor_value_info("w0", onnx.TensorProto.FLOAT, [WIDTH, HIDDEN]))
    return proto


def feeds(batch: int, seed: int = 1) -> dict[str, NDArray[np.float32]]:
    return {"x": np.random.default_rng(seed).standard_normal((batch, WIDTH)).astype(np.float32)}


def plain_session(proto: onnx.ModelProto, threads: int = 1) -> onnxruntime.InferenceSession:
    return session(proto, None, threads)


def provider_session(proto: onnx.ModelProto, threads: int = 1) -> onnxruntime.InferenceSession:
    devices = register()
    made = options(threads=threads)
    made.add_provider_for_devices(devices, {})
    return onnxruntime.InferenceSession(proto.SerializeToString(), made)


def assert_equal_runs(
    ours: onnxruntime.InferenceSession, plain: onnxruntime.InferenceSession, inputs: Mapping[str, NDArray[Any]]
) -> None:
    for actual, right in zip(ours.run(None, inputs), plain.run(None, inputs), strict=True):
        assert actual.shape == right.shape
        np.testing.assert_allclose(actual, right, rtol=1e-4, atol=1e-3)
