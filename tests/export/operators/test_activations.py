from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from redpebble.dialect.attributes.activations import ACTIVATIONS
from tests.export.export_oracle import answers, exported, one_node, one_op, operators, original_of

Doubles = NDArray[np.float64]

FORMULAS: dict[str, Callable[[Doubles], NDArray[np.floating]]] = {
    "abs": np.abs,
    "bfloat16": lambda x: x.astype(ml_dtypes.bfloat16).astype(np.float64),
    "celu(0.7)": lambda x: np.maximum(x, 0) + np.minimum(0, 0.7 * np.expm1(x / 0.7)),
    "celu(-0.7)": lambda x: np.maximum(x, 0) + np.minimum(0, -0.7 * np.expm1(x / -0.7)),
    "clip(-0.5, 1.0)": lambda x: np.minimum(np.maximum(x, -0.5), 1.0),
    "clip(-inf, 1.0)": lambda x: np.minimum(x, 1.0),
    "clip(0.0, inf)": lambda x: np.maximum(x, 0.0),
    "clip(-inf, inf)": lambda x: x,
    "clip(2.0, 1.0)": np.ones_like,
    "elu(0.3)": lambda x: np.where(x > 0, x, 0.3 * np.expm1(x)),
    "erf": special.erf,
    "exp": np.exp,
    "gelu": lambda x: x * special.ndtr(x),
    "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "hard_sigmoid(0.2, 0.5)": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "hard_sigmoid(0.3, 0.4)": lambda x: np.clip(0.3 * x + 0.4, 0, 1),
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "leaky_relu(0.01)": lambda x: np.where(x > 0, x, 0.01 * x),
    "leaky_relu(0.2)": lambda x: np.where(x > 0, x, 0.2 * x),
    "log": np.log,
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "neg": np.negative,
    "quantize(0.25, 3.0)": lambda x: np.rint(np.clip(x * 4, -3, 252)) / 4,
    "reciprocal": np.reciprocal,
    "relu": lambda x: np.maximum(x, 0),
    "scaled_hard_swish(-1.5, 0.3)": lambda x: 0.3 - 1.5 * x * np.clip(x / 6 + 0.5, 0, 1),
    "scaled_relu(1.5, -0.3)": lambda x: 1.5 * np.maximum(x, 0) - 0.3,
    "selu(1.5, 1.1)": lambda x: 1.1 * np.where(x > 0, x, 1.5 * np.expm1(x)),
    "sigmoid": special.expit,
    "silu(1.0)": lambda x: x * special.expit(x),
    "silu(1.702)": lambda x: x * special.expit(1.702 * x),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "sqrt": np.sqrt,
    "square": np.square,
    "tanh": np.tanh,
}
OPSETS = (7, 9, 11, 12, 13, 17, 18, 20, 21)


def activation(name: str, opset: int) -> str:
    return one_op(f"%y = pebble.activate <{name}> %x : (tensor<?x4xf32>) -> tensor<?x4xf32>", *["tensor<?x4xf32>"] * 2)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", FORMULAS)
def test_an_activation_is_written_for_every_opset(name: str, opset: int) -> None:
    since = {"erf": 9, "gelu": 9, "quantize": 10, "bfloat16": 13}
    if opset < since.get(name.partition("(")[0], 0):
        pytest.skip("the opset has no such operator")
    proto = exported(activation(name, opset), original_of(one_node(opset)))
    x = np.linspace(-4, 4, 24, dtype=np.float32).reshape(6, 4)
    if name in {"log", "sqrt", "reciprocal"}:
        x = np.abs(x) + np.float32(0.1)
    assert proto.opset_import[0].version == opset
    np.testing.assert_allclose(answers(proto, {"x": x})[0], FORMULAS[name](x.astype(np.float64)), rtol=2e-5, atol=1e-6)


def test_every_kind_of_activation_has_a_formula_above() -> None:
    assert {name.partition("(")[0] for name in FORMULAS} == set(ACTIVATIONS)


@pytest.mark.parametrize(
    ("name", "opset", "written"),
    [
        ("gelu", 20, ["Gelu"]),
        ("gelu", 17, ["Div", "Erf", "Add", "Mul", "Mul"]),
        ("hard_swish", 14, ["HardSwish"]),
        ("hard_swish", 13, ["HardSigmoid", "Mul"]),
        ("mish", 18, ["Mish"]),
        ("mish", 17, ["Softplus", "Tanh", "Mul"]),
        ("celu(1.0)", 12, ["Celu"]),
        ("silu(1.0)", 21, ["Sigmoid", "Mul"]),
        ("square", 21, ["Mul"]),
    ],
)
def test_an_operator_is_used_from_the_opset_that_has_it(name: str, opset: int, written: list[str]) -> None:
    assert operators(exported(activation(name, opset), original_of(one_node(opset)))) == written


def test_silu_is_written_as_onnxruntime_runs_it_where_opset_24_has_swish() -> None:
    assert operators(exported(activation("silu(1.0)", 24), original_of(one_node(24, version=12)))) == ["Sigmoid", "Mul"]


def test_default_parameters_are_left_out() -> None:
    node = exported(activation("leaky_relu(0.009999999776482582)", 13), original_of(one_node(13))).graph.node[0]
    assert not node.attribute


@pytest.mark.parametrize("name", ["erf", "gelu"])
def test_an_activation_that_the_opset_cannot_express_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"activation {name} needs opset 9, the model's is 7"):
        exported(activation(name, 7), original_of(one_node(7)))
