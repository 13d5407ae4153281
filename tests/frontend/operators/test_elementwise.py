import numpy as np
import pytest

from redpebble.dialect.ops.elementwise import ActivateOp
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.import_model import import_model
from tests.frontend.import_oracle import Arrays, assert_agrees, imported, model, normal

X = "(float[n,4] x) => (float[n,4] y)"

ACTIVATIONS = {
    "Abs": (13, "Abs(x)"),
    "Celu": (12, "Celu<alpha=2.0>(x)"),
    "Celu, defaults": (12, "Celu(x)"),
    "Clip, attributes": (10, "Clip<min=-0.5, max=0.5>(x)"),
    "Clip, one attribute": (6 + 1, "Clip<max=0.5>(x)"),
    "Clip, inputs": (13, "Clip(x, low, high)"),
    "Clip, low only": (11, "Clip(x, low)"),
    "Clip, high only": (13, "Clip(x, , high)"),
    "Clip, none": (13, "Clip(x)"),
    "Clip, crossed": (13, "Clip(x, high, low)"),
    "Elu": (7, "Elu<alpha=0.3>(x)"),
    "Erf": (13, "Erf(x)"),
    "Exp": (7, "Exp(x)"),
    "FastGelu": (13, "com.microsoft.FastGelu(x)"),
    "FastGelu, bias": (13, "com.microsoft.FastGelu(x, row)"),
    "Gelu": (20, "Gelu(x)"),
    "Gelu, none": (20, 'Gelu<approximate="none">(x)'),
    "Gelu, tanh": (20, 'Gelu<approximate="tanh">(x)'),
    "Gelu, Microsoft's": (13, "com.microsoft.Gelu(x)"),
    "HardSigmoid": (13, "HardSigmoid(x)"),
    "HardSigmoid, attributes": (13, "HardSigmoid<alpha=0.5, beta=0.1>(x)"),
    "HardSwish": (14, "HardSwish(x)"),
    "LeakyRelu": (7, "LeakyRelu(x)"),
    "LeakyRelu, attribute": (16, "LeakyRelu<alpha=0.3>(x)"),
    "Max, zero": (13, "Max(x, zero)"),
    "Max, number": (8, "Max(low, x)"),
    "Min, number": (13, "Min(x, one)"),
    "Mish": (18, "Mish(x)"),
    "Neg": (13, "Neg(x)"),
    "PRelu, scalar": (7, "PRelu(x, one)"),
    "PRelu, row": (16, "PRelu(x, row)"),
    "Pow -1": (13, "Pow(x, minus)"),
    "Pow 1": (13, "Pow(x, one)"),
    "Pow 2": (7, "Pow(x, two)"),
    "Pow 2, integer": (13, "Pow(x, integer)"),
    "Pow 3": (13, "Pow(x, three)"),
    "QuickGelu": (13, "com.microsoft.QuickGelu<alpha=1.5>(x)"),
    "QuickGelu, default": (13, "com.microsoft.QuickGelu(x)"),
    "Reciprocal": (13, "Reciprocal(x)"),
    "Relu": (7, "Relu(x)"),
    "Selu": (7, "Selu(x)"),
    "Selu, attributes": (7, "Selu<alpha=1.5, gamma=2.0>(x)"),
    "Sigmoid": (13, "Sigmoid(x)"),
    "Softplus": (7, "Softplus(x)"),
    "Swish": (24, "Swish<alpha=0.5>(x)"),
    "Tanh": (13, "Tanh(x)"),
}

POSITIVE = {"Log": "Log(x2)", "Sqrt": "Sqrt(x2)", "Pow 0.5": "Pow(x2, half)", "Pow -0.5": "Pow(x2, minus_half)"}

SCALARS: Arrays = {
    "low": np.array(-0.3, np.float32),
    "high": np.array(0.4, np.float32),
    "one": np.ones(1, np.float32),
    "zero": np.zeros((), np.float32),
    "minus": np.array(-1.0, np.float32),
    "half": np.array(0.5, np.float32),
    "minus_half": np.array(-0.5, np.float32),
    "two": np.array(2.0, np.float32),
    "three": np.array([3.0], np.float32),
    "integer": np.array(2, np.int64),
    "row": normal(4),
    "nan": np.array(np.nan, np.float32),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_agrees(name: str) -> None:
    opset, node = ACTIVATIONS[name]
    assert_agrees(model(X, f"y = {node}", opset=opset, weights=SCALARS))


@pytest.mark.parametrize("name", POSITIVE)
def test_a_function_of_positive_numbers_agrees(name: str) -> None:
    assert_agrees(model(X, f"x2 = Mul(x, x) y = {POSITIVE[name]}", weights=SCALARS))


SHAPES = ["float", "float[1]", "float[4]", "float[1,4]", "float[n,1]", "float[n,4]", "float[1,1]", "float[2,n,4]"]


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("kind", SHAPES)
def test_two_inputs_are_broadcast_as_in_onnx(operator: str, kind: str) -> None:
    result = "float[2,n,4]" if kind == "float[2,n,4]" else "float[n,4]"
    nodes = f"y = {operator}(x, z) w = {operator}(z, x)"
    proto = model(f"(float[n,4] x, {kind} z) => ({result} y, {result} w)", nodes)
    assert_agrees(proto)


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("shape", [(), (1,), (4,), (1, 4), (2, 1, 4), (2, 1, 1)])
def test_a_constant_operand_is_broadcast_as_in_onnx(operator: str, shape: tuple[int, ...]) -> None:
    result = "float[2,n,4]" if len(shape) == 3 else "float[n,4]"
    nodes = f"y = {operator}(x, c) w = {operator}(c, x)"
    assert_agrees(model(f"(float[n,4] x) => ({result} y, {result} w)", nodes, weights={"c": normal(*shape)}))


@pytest.mark.parametrize(
    ("signature", "node", "message"),
    [
        (X, "Clip(x, low, x_max)", "expected a constant scalar as input max, got another value"),
        (X, "Clip(x, nan, high)", "expected numbers and infinities as bounds, got NaN"),
        (X, "Min(x, nan)", "expected numbers and infinities as bounds, got NaN"),
        (X, "Pow(x, low)", "expected the exponent -1, -0.5, 0.5, 1, 2 or 3, got -0.30000001192092896"),
        (X, "Pow(x, x)", "expected a constant exponent of -1, -0.5, 0.5, 1, 2 or 3, got another value"),
        (X, "Add(x, other)", "expected sizes that are equal by number or name, or 1, got operands n x 4 and m x 4"),
        (X, "PRelu(one, x)", "expected sizes that are equal by number or name, or 1, got operands 1 and n x 4"),
        (X, 'Gelu<approximate="erf">(x)', "expected approximate=none or tanh, got erf"),
        (
            X,
            "Add(x, anything)",
            "expected tensor(float) of known rank as input anything, got tensor(float) of unknown rank",
        ),
        (
            X,
            "Div(x, anything)",
            "expected tensor(float) of known rank as input anything, got tensor(float) of unknown rank",
        ),
    ],
)
def test_an_elementwise_node_that_is_not_covered_is_refused(signature: str, node: str, message: str) -> None:
    inputs = "float[n,4] x, float x_max, float[m,4] other, float[] scalar, double[n,4] double"
    proto = model(f"({inputs}) => (float[n,4] y)", f"[op] y = {node}", weights=SCALARS)
    anything = proto.graph.input.add()
    anything.name = "anything"
    anything.type.tensor_type.elem_type = 1
    with pytest.raises(UnsupportedModelError) as refusal:
        import_model(proto, foreign="refuse")
    operator = node.partition("(")[0].partition("<")[0]
    assert str(refusal.value) == f"node 'op': operator {operator} (ai.onnx 21): {message}"


def test_another_element_type_is_refused() -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"expected tensor\(float\) of known rank as input x, got tensor\(double\)$"
    ):
        import_model(model("(double[n,4] x) => (double[n,4] y)", "y = Relu(x)"), foreign="refuse")


def test_clip_without_bounds_holds_infinities() -> None:
    module = imported(model(X, "y = Clip(x)"))
    (clip,) = (op for op in module.walk() if isinstance(op, ActivateOp))
    assert clip.activation.values == (-np.inf, np.inf)
