"""Every activation against onnxruntime, and against float64, on every target."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import onnxruntime
import pytest
from llvmlite import ir
from onnx import parser

from redpebble.dialect.attributes.activations import ACTIVATIONS, ActivationAttr, activate
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.llvm.activations import EMITTERS, emit_activation
from redpebble.lowering.llvm.vectors import Lanes
from tests.lowering.llvm.elementwise_jit import Floats, compile_elementwise, elementwise_object, undefined_symbols
from tests.support.lowering_modules import each_target


class Case(NamedTuple):
    """An activation, and the ONNX nodes that compute it from x to y."""

    kind: str
    parameters: tuple[float, ...]
    nodes: str
    opset: int = 20


CASES = [
    Case("abs", (), "y = Abs(x)"),
    Case("bfloat16", (), "c = Cast<to = 16>(x) y = Cast<to = 1>(c)"),
    Case("celu", (1.0,), "y = Celu(x)"),
    Case("celu", (2.5,), "y = Celu<alpha = 2.5>(x)"),
    Case("clip", (-1.0, 2.0), "y = Clip<min = -1.0, max = 2.0>(x)", 7),
    Case("clip", (0.0, 6.0), "l = Constant<value_float = 0.0>() h = Constant<value_float = 6.0>() y = Clip(x, l, h)"),
    Case("elu", (1.0,), "y = Elu(x)"),
    Case("erf", (), "y = Erf(x)"),
    Case("exp", (), "y = Exp(x)"),
    Case("gelu", (), "y = Gelu(x)"),
    Case("gelu_tanh", (), 'y = Gelu<approximate = "tanh">(x)'),
    Case("hard_sigmoid", (0.2, 0.5), "y = HardSigmoid(x)"),
    Case("hard_swish", (), "y = HardSwish(x)"),
    Case("leaky_relu", (0.01,), "y = LeakyRelu(x)"),
    Case("log", (), "y = Log(x)"),
    Case("mish", (), "y = Mish(x)"),
    Case("neg", (), "y = Neg(x)"),
    Case(
        "quantize",
        (0.25, 100.0),
        "s = Constant<value_float = 0.25>() z = Constant<value = uint8 {100}>() q = QuantizeLinear(x, s, z) "
        "y = DequantizeLinear(q, s, z)",
    ),
    Case("reciprocal", (), "y = Reciprocal(x)"),
    Case("relu", (), "y = Relu(x)"),
    Case(
        "scaled_hard_swish",
        (1.5, -0.25),
        "s = Constant<value_float = 1.5>() t = Constant<value_float = -0.25>() h = HardSwish(x) m = Mul(h, s) "
        "y = Add(m, t)",
    ),
    Case(
        "scaled_relu",
        (-1.5, 0.25),
        "s = Constant<value_float = -1.5>() t = Constant<value_float = 0.25>() h = Relu(x) m = Mul(h, s) y = Add(m, t)",
    ),
    Case("selu", (1.67326319217681884765625, 1.05070102214813232421875), "y = Selu(x)"),
    Case("sigmoid", (), "y = Sigmoid(x)"),
    Case("silu", (1.0,), "s = Sigmoid(x) y = Mul(x, s)"),
    Case("silu", (1.702,), "a = Constant<value_float = 1.702>() b = Mul(x, a) s = Sigmoid(b) y = Mul(x, s)"),
    Case("softplus", (), "y = Softplus(x)"),
    Case("sqrt", (), "y = Sqrt(x)"),
    Case("square", (), "y = Mul(x, x)"),
    Case("tanh", (), "y = Tanh(x)"),
]
UNUSUAL = [
    Case("celu", (0.0,), "y = Celu<alpha = 0.0>(x)"),
    Case("celu", (-1.5,), "y = Celu<alpha = -1.5>(x)"),
    Case("clip", (2.0, -1.0), "l = Constant<value_float = 2.0>() h = Constant<value_float = -1.0>() y = Clip(x, l, h)"),
    Case("elu", (-1.5,), "y = Elu<alpha = -1.5>(x)"),
    Case("hard_sigmoid", (-0.3, 0.4), "y = HardSigmoid<alpha = -0.3, beta = 0.4>(x)"),
    Case("leaky_relu", (-2.0,), "y = LeakyRelu<alpha = -2.0>(x)"),
    Case("selu", (-1.5, -2.0), "y = Selu<alpha = -1.5, gamma = -2.0>(x)"),
]
each_case = pytest.mark.parametrize("case", CASES, ids=[str(case[:2]) for case in CASES])
RANDOM = np.random.default_rng(11).normal(0.0, 4.0, 4000).astype(np.float32)
AWKWARD = [
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -0.0,
    1e-40,
    -1e-40,
    1e-30,
    20.0,
    -20.0,
    89.0,
    -89.0,
    110.0,
    -110.0,
    3e38,
    -3e38,
]
VALUES = np.concatenate([RANDOM, np.array(AWKWARD, dtype=np.float32)])


def onnxruntime_result(case: Case, x: Floats) -> Floats:
    text = f'<ir_version: 8, opset_import: ["": {case.opset}]> g (float[N] x) => (float[N] y) {{ {case.nodes} }}'
    model = parser.parse_model(text).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def native_result(case: Case, target: CpuTarget, x: Floats) -> Floats:
    return compile_elementwise(lambda lanes, v: emit_activation(lanes, case.kind, case.parameters, v), target)(x)


def test_every_activation_of_the_dialect_has_an_emitter_and_is_compared() -> None:
    assert set(EMITTERS) == set(ACTIVATIONS) == {case.kind for case in CASES}


@each_target
@pytest.mark.parametrize("case", CASES + UNUSUAL, ids=[str(case[:2]) for case in CASES + UNUSUAL])
def test_an_activation_agrees_with_onnxruntime(case: Case, target: CpuTarget) -> None:
    expected = onnxruntime_result(case, VALUES)
    np.testing.assert_allclose(native_result(case, target, VALUES), expected, rtol=1e-5, atol=2e-6)


@each_target
@each_case
def test_an_activation_agrees_with_float64(case: Case, target: CpuTarget) -> None:
    expected = activate(ActivationAttr(case.kind, case.parameters), RANDOM.astype(np.float64))
    np.testing.assert_allclose(native_result(case, target, RANDOM), expected, rtol=1e-6, atol=5e-7)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads ELF")
@each_target
@each_case
def test_an_activation_calls_nothing(case: Case, target: CpuTarget) -> None:
    def emit(lanes: Lanes, x: ir.Value) -> ir.Value:
        return emit_activation(lanes, case.kind, case.parameters, x)

    assert undefined_symbols(elementwise_object(emit, target, target.lanes)) == set()
