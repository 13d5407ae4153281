import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import parser

from redpebble.dialect.attributes.activations import (
    ACTIVATIONS,
    ActivationAttr,
    activate,
)
from tests.dialect.onnx_oracle import run_operator

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, 100.0, -100.0, 3.0, -3.0]
VALUES = np.concatenate([np.array(SPECIAL), np.linspace(-12, 12, 1001)]).astype(np.float32)

BY_OPERATOR: list[tuple[str, tuple[float, ...], str, dict[str, float | str]]] = [
    ("abs", (), "Abs", {}),
    ("celu", (2.0,), "Celu", {"alpha": 2.0}),
    ("elu", (0.5,), "Elu", {"alpha": 0.5}),
    ("erf", (), "Erf", {}),
    ("exp", (), "Exp", {}),
    ("gelu", (), "Gelu", {}),
    ("gelu_tanh", (), "Gelu", {"approximate": "tanh"}),
    ("hard_sigmoid", (0.25, 0.5), "HardSigmoid", {"alpha": 0.25, "beta": 0.5}),
    ("hard_swish", (), "HardSwish", {}),
    ("leaky_relu", (0.125,), "LeakyRelu", {"alpha": 0.125}),
    ("log", (), "Log", {}),
    ("mish", (), "Mish", {}),
    ("neg", (), "Neg", {}),
    ("reciprocal", (), "Reciprocal", {}),
    ("relu", (), "Relu", {}),
    ("selu", (1.5, 1.25), "Selu", {"alpha": 1.5, "gamma": 1.25}),
    ("sigmoid", (), "Sigmoid", {}),
    ("softplus", (), "Softplus", {}),
    ("sqrt", (), "Sqrt", {}),
    ("tanh", (), "Tanh", {}),
]


@pytest.mark.parametrize(("kind", "parameters", "operator", "attributes"), BY_OPERATOR)
def test_an_activation_is_the_onnx_operator(
    kind: str, parameters: tuple[float, ...], operator: str, attributes: dict[str, float | str]
) -> None:
    expected = run_operator(operator, {"x": VALUES}, attributes)
    for dtype in (np.float32, np.float64):
        result = activate(ActivationAttr(kind, parameters), VALUES.astype(dtype))
        assert result.dtype == dtype
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(result.astype(np.float32), expected, rtol=2e-5, atol=2e-6)


def test_bfloat16_is_a_cast_there_and_back() -> None:
    expected = VALUES.astype(ml_dtypes.bfloat16).astype(np.float32)
    for dtype in (np.float32, np.float64):
        result = activate(ActivationAttr("bfloat16"), VALUES.astype(dtype))
        assert result.dtype == dtype
        assert np.array_equal(result.astype(np.float32), expected, equal_nan=True)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 2.0), (-np.inf, 2.0), (-1.0, np.inf), (3.0, -3.0), (np.nan, 1.0)])
def test_clip_is_the_onnx_operator(low: float, high: float) -> None:
    bounds = {"low": np.array(low, dtype=np.float32), "high": np.array(high, dtype=np.float32)}
    expected = run_operator("Clip", {"x": VALUES, **bounds})
    np.testing.assert_array_equal(activate(ActivationAttr("clip", (low, high)), VALUES), expected)


def test_silu_and_square_are_products_of_onnx_operators() -> None:
    finite = VALUES[np.isfinite(VALUES)]
    scaled = run_operator("Mul", {"x": finite, "alpha": np.full_like(finite, 1.75)})
    silu = run_operator("Mul", {"x": finite, "sigmoid": run_operator("Sigmoid", {"x": scaled})})
    np.testing.assert_allclose(activate(ActivationAttr("silu", (1.75,)), finite), silu, rtol=2e-5, atol=2e-6)
    square = run_operator("Mul", {"x": VALUES, "y": VALUES})
    np.testing.assert_array_equal(activate(ActivationAttr("square"), VALUES), square)


def test_quantize_is_two_onnx_operators() -> None:
    text = """<ir_version: 8, opset_import: ["": 13]> g (float[N] x) => (float[N] y)
    <float s = {0.25}, uint8 z = {100}> { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"""
    session = onnxruntime.InferenceSession(parser.parse_model(text).SerializeToString())
    (expected,) = session.run(None, {"x": VALUES})
    np.testing.assert_array_equal(activate(ActivationAttr("quantize", (0.25, 100)), VALUES), expected)


@pytest.mark.parametrize("kind", sorted(set(ACTIVATIONS) - {"quantize"}))
def test_nan_stays_nan_and_shapes_stay(kind: str) -> None:
    activation = ActivationAttr(kind, (1.0,) * len(ACTIVATIONS[kind].parameters))
    assert np.isnan(activate(activation, np.array(np.nan, dtype=np.float32)))
    assert activate(activation, np.zeros((0, 3), dtype=np.float64)).shape == (0, 3)
