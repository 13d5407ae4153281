"""Gradients that passes derive against finite differences in float64, and against native code."""

from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import PassFailedException

from redpebble.dialect.attributes.activations import ACTIVATIONS, ActivationAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp
from redpebble.dialect.provenance import value_name
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.dialect.symbolic_sizes import NAME
from redpebble.dialect.tensors import dense_floats, floats_of
from redpebble.lowering.driver import function_of
from redpebble.options import Options
from redpebble.passes.runner import context, run_passes
from redpebble.passes.training.activation_slopes import SLOPES_AT_INPUT, SLOPES_AT_RESULT
from redpebble.passes.training.differentiate import Differentiate, pull_back
from redpebble.pipeline import build, run_stages
from tests.support.lowering_modules import HERE, native

Floats = NDArray[np.float64]
Shapes = Mapping[str, tuple[int, ...]]

INPUTS = 6
CHAIN: Shapes = {"w1": (INPUTS, 7), "b1": (7,), "w2": (7, 4), "b2": (4,)}
CHAIN_NAMES = ("x", "w1", "b1", "h", "r", "w2", "b2", "y")
STEP = 2.0**-10


def model(nodes: Sequence[onnx.NodeProto], shapes: Shapes) -> onnx.ModelProto:
    """A network of random weights, of which some are zero."""
    rng = np.random.default_rng(0)
    tensors: list[onnx.TensorProto] = []
    for name, shape in shapes.items():
        array = (0.7 * rng.standard_normal(shape)).astype(np.float32)
        if len(shape) == 2:
            array[rng.random(shape) < 0.4] = 0
        tensors.append(numpy_helper.from_array(array, name))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", None]) for name in "xy")
    x.type.tensor_type.shape.dim[1].dim_value = INPUTS
    graph = helper.make_graph(nodes, "graph", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def chain(activation: str, alpha: float | None = None) -> onnx.ModelProto:
    bent = helper.make_node(activation, ["h"], ["r"])
    if alpha is not None:
        bent.attribute.append(helper.make_attribute("alpha", alpha))
    first, last = (helper.make_node("Gemm", [*names[:3]], [names[3]]) for names in (CHAIN_NAMES[:4], CHAIN_NAMES[4:]))
    return model([first, bent, last], CHAIN)


def forecaster() -> onnx.ModelProto:
    """Means and deviations."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["z"]),
        helper.make_node("Split", ["z"], ["m", "s"], axis=1, num_outputs=2),
        helper.make_node("Softplus", ["s"], ["d"]),
        helper.make_node("Concat", ["m", "d"], ["y"], axis=1),
    ]
    return model(nodes, CHAIN)


def normalised() -> onnx.ModelProto:
    """Normalisations, a sum and a product of values, values joined, and a weight that is read twice."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("LayerNormalization", ["h", "s1", "b1"], ["l"]),
        helper.make_node("Relu", ["l"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["z"]),
        helper.make_node("Add", ["z", "x"], ["u"]),
        helper.make_node("Gemm", ["u", "w1"], ["q"]),
        helper.make_node("Softmax", ["q"], ["p"]),
        helper.make_node("Concat", ["u", "p"], ["k"], axis=1),
        helper.make_node("Mul", ["k", "k"], ["k2"]),
        helper.make_node("Gemm", ["k2", "w3"], ["y"]),
    ]
    return model(nodes, {**CHAIN, "w2": (7, INPUTS), "b2": (INPUTS,), "s1": (7,), "w3": (13, 3)})


def differentiated(source: onnx.ModelProto, loss: str) -> ModuleOp:
    module = build(source, Options(), until="simplify")
    run_passes(context(), module, [Differentiate(loss)])
    return module


def loss_of(name: str, y: Floats, target: Floats) -> float:
    """The loss summed over rows, in numpy."""
    if name == "mse":
        return float(np.square(y - target).mean(axis=1).sum())
    if name == "cross-entropy":
        shifted = y - y.max(axis=1, keepdims=True)
        return float((target * (np.log(np.exp(shifted).sum(axis=1, keepdims=True)) - shifted)).sum())
    mean, deviation = np.split(y, 2, axis=1)
    z = (target - mean) / deviation
    below = np.vectorize(NormalDist().cdf)(z)
    density = np.exp(-np.square(z) / 2) / np.sqrt(2 * np.pi)
    crps = deviation * (z * (2 * below - 1) + 2 * density - 1 / np.sqrt(np.pi))
    return float(crps.mean(axis=1).sum())


def gradients_by_name(module: ModuleOp, feeds: Mapping[str, Floats]) -> dict[str, Floats]:
    func = function_of(module)
    assert func.res_attrs is not None
    names = [str(entry.data[NAME]).strip('"') for entry in func.res_attrs.data[1:]]
    return dict(zip(names, interpret(module, feeds)[1:], strict=True))


def assert_differences_agree(module: ModuleOp, feeds: Mapping[str, Floats], loss: str) -> None:
    """Hold every gradient against the difference of losses that a small change of the constant makes."""
    for name, gradient in gradients_by_name(module, feeds).items():
        constant = next(
            op
            for op in module.walk()
            if isinstance(op, ConstantOp | SparseConstantOp) and name == f"gradient of {value_name(op.results[0])}"
        )
        key = "values" if isinstance(constant, SparseConstantOp) else "value"
        original = constant.values if isinstance(constant, SparseConstantOp) else constant.value
        array = floats_of(original)
        # of a dense weight output by output
        order = np.arange(array.size).reshape(array.shape).T.ravel()
        for place, index in enumerate(order[:10].tolist()):
            losses: list[float] = []
            for sign in (1, -1):
                moved = array.copy()
                moved.flat[index] += sign * STEP
                constant.properties[key] = dense_floats(moved)
                losses.append(loss_of(loss, interpret(module, feeds)[0], feeds["target"]))
            constant.properties[key] = original
            expected = (losses[0] - losses[1]) / (2 * STEP)
            assert gradient[place] == pytest.approx(expected, rel=1e-4, abs=1e-4), name


def feeds_for(source: onnx.ModelProto, loss: str, rows: int) -> dict[str, Floats]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((rows, INPUTS))
    outputs = interpret(build(source, Options(), until="simplify"), {"x": x})[0].shape[1]
    if loss == "cross-entropy":
        return {"x": x, "target": np.eye(outputs)[rng.integers(0, outputs, rows)]}
    return {"x": x, "target": rng.standard_normal((rows, outputs // 2 if loss == "crps" else outputs))}


PARAMETER: Mapping[str, float | None] = {
    "Abs": None,
    "Celu": 1.3,
    "Elu": 0.7,
    "Erf": None,
    "Exp": None,
    "Gelu": None,
    "HardSigmoid": None,
    "HardSwish": None,
    "LeakyRelu": 0.1,
    "Mish": None,
    "Relu": None,
    "Selu": None,
    "Sigmoid": None,
    "Softplus": None,
    "Tanh": None,
    "Neg": None,
}


def test_every_activation_has_a_derivative_but_rounding() -> None:
    assert set(SLOPES_AT_INPUT) | set(SLOPES_AT_RESULT) == set(ACTIVATIONS) - {"bfloat16", "quantize"}
    assert not set(SLOPES_AT_INPUT) & set(SLOPES_AT_RESULT)


@pytest.mark.parametrize("activation", PARAMETER)
def test_gradients_behind_an_activation_are_finite_differences(activation: str) -> None:
    source = chain(activation, PARAMETER[activation])
    assert_differences_agree(differentiated(source, "mse"), feeds_for(source, "mse", 5), "mse")


@pytest.mark.parametrize("kind", ["clip", "gelu_tanh", "silu", "sqrt", "square", "log", "reciprocal"])
def test_gradients_behind_activations_without_an_operator_are_finite_differences(kind: str) -> None:
    parameters = {"clip": (-0.5, 0.9), "silu": (1.7,)}.get(kind, ())
    source = chain("Sigmoid" if kind in ("sqrt", "log", "reciprocal") else "Tanh")
    module = build(source, Options(), until="simplify")
    first = next(op for op in module.walk() if op.name == "pebble.linear")
    bent = ActivateOp(first.results[0], ActivationAttr(kind, parameters))
    first.results[0].replace_uses_with_if(bent.result, lambda use: use.operation is not bent)
    Rewriter.insert_op(bent, InsertPoint.after(first))
    run_passes(context(), module, [Differentiate()])
    assert_differences_agree(module, feeds_for(source, "mse", 5), "mse")


@pytest.mark.parametrize(
    ("source", "loss"),
    [
        pytest.param(chain("Relu"), "cross-entropy", id="classes"),
        pytest.param(forecaster(), "crps", id="forecast"),
        pytest.param(normalised(), "mse", id="normalised"),
    ],
)
def test_gradients_of_losses_are_finite_differences(source: onnx.ModelProto, loss: str) -> None:
    assert_differences_agree(differentiated(source, loss), feeds_for(source, loss, 5), loss)


@pytest.mark.parametrize(
    ("source", "loss"),
    [
        pytest.param(chain("Relu"), "cross-entropy", id="classes", marks=pytest.mark.slow),
        pytest.param(forecaster(), "crps", id="forecast", marks=pytest.mark.slow),
        pytest.param(normalised(), "mse", id="normalised"),
    ],
)
def test_gradients_of_losses_are_those_of_native_code(source: onnx.ModelProto, loss: str) -> None:
    module = differentiated(source, loss)
    expected = {rows: interpret(module, feeds_for(source, loss, rows)) for rows in (0, 1, 7, 70)}
    run_stages(module, Options(), after="arrange")
    network = native(module, next(iter(HERE.values())), threads=2)
    for rows, wanted in expected.items():
        feeds = {name: array.astype(np.float32) for name, array in feeds_for(source, loss, rows).items()}
        for one, other in zip(network.run(None, feeds), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3)


def test_classes_behind_a_softmax_are_trained_by_what_it_is_applied_to() -> None:
    plain = chain("Relu")
    nodes = [*plain.graph.node, helper.make_node("Softmax", ["y"], ["p"])]
    shares = model(nodes, CHAIN)
    shares.graph.output[0].name = "p"
    feeds = feeds_for(plain, "cross-entropy", 5)
    expected = gradients_by_name(differentiated(plain, "cross-entropy"), feeds)
    found = gradients_by_name(differentiated(shares, "cross-entropy"), feeds)
    assert list(found) == list(expected)
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient)


def test_values_of_another_rank_are_refused() -> None:
    source = chain("Relu")
    for value in (source.graph.input[0], source.graph.output[0]):
        value.type.tensor_type.shape.dim.insert(0, onnx.TensorShapeProto.Dimension(dim_param="samples"))
    source.graph.node[0].CopyFrom(helper.make_node("MatMul", ["x", "w1"], ["h"]))
    source.graph.node[2].CopyFrom(helper.make_node("MatMul", ["r", "w2"], ["y"]))
    with pytest.raises(PassFailedException, match=r"one output \[rows, features\]"):
        differentiated(source, "mse")


def test_gradients_that_are_pulled_back_through_a_function_are_those_of_a_loss() -> None:
    source = chain("Gelu")
    x, target = feeds_for(source, "mse", 9).values()
    output, *expected = interpret(differentiated(source, "mse"), {"x": x, "target": target})
    module = build(source, Options(), until="simplify")
    func = function_of(module)
    found = pull_back(func, [0], lambda _: True)
    module.verify()
    names = [f"in{number}" for number in range(3)]
    func.arg_attrs = ArrayAttr([DictionaryAttr({NAME: StringAttr(name)}) for name in names])
    gradient = 2 * (output - target) / output.shape[1]
    by_x, *by_constants = interpret(module, dict(zip(names, (x, output, gradient), strict=True)))
    assert len(by_constants) == len(found) == len(expected)
    for one, other in zip(by_constants, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert by_x.shape == x.shape
