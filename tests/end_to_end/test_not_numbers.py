"""NaN and infinities are values like any other: in weights, and in inputs of dense layers."""

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble
from redpebble.frontend.reading.model_source import read_model
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.verification.oracle import Oracle
from tests.end_to_end.agreement import assert_close
from tests.support.lowering_modules import best_target_first

SPECIAL = (np.nan, np.inf, -np.inf)

LARGER = (((128, 256), 0.7), ((96, 96), 0.97))

ACTIVATIONS: dict[str, dict[str, Any]] = {
    "Relu": {},
    "LeakyRelu": {"alpha": 0.1},
    "Sigmoid": {},
    "Tanh": {},
    "Erf": {},
    "Elu": {},
    "Selu": {},
    "Softplus": {},
    "HardSigmoid": {},
    "HardSwish": {},
    "Celu": {},
    "Mish": {},
    "Gelu": {},
    "Abs": {},
    "Neg": {},
    "Exp": {},
    "Sqrt": {},
    "Log": {},
    "Reciprocal": {},
    "Softmax": {"axis": -1},
    "LogSoftmax": {"axis": -1},
}


def perceptron(arrays: list[NDArray[np.float32]]) -> onnx.ModelProto:
    """Gemm layers with weights and biases in turn, Relu between them."""
    nodes: list[onnx.NodeProto] = []
    weights = [numpy_helper.from_array(array, f"c{index}") for index, array in enumerate(arrays)]
    value = "x"
    for layer in range(len(arrays) // 2):
        nodes.append(helper.make_node("Gemm", [value, f"c{2 * layer}", f"c{2 * layer + 1}"], [f"h{layer}"]))
        nodes.append(helper.make_node("Relu", [f"h{layer}"], [f"r{layer}"]))
        value = f"r{layer}"
    return model(nodes[:-1], arrays[0].shape[0], weights)


def model(nodes: list[onnx.NodeProto], features: int, weights: list[onnx.TensorProto]) -> onnx.ModelProto:
    """A model of one input x [batch, features]; what no node reads is an output."""
    read = {name for node in nodes for name in node.input}
    outputs = [node.output[0] for node in nodes if node.output[0] not in read]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", features])
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", [value], results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def arrays(density: float, seed: int = 0) -> list[NDArray[np.float32]]:
    """Weights and biases of 20 -> 24 -> 18 -> 6."""
    rng = np.random.default_rng(seed)
    made: list[NDArray[np.float32]] = []
    for rows, columns in ((20, 24), (24, 18), (18, 6)):
        weight = rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < density)
        made += [weight.astype(np.float32), rng.standard_normal(columns).astype(np.float32)]
    return made


def assert_agrees(proto: onnx.ModelProto, x: NDArray[np.float32], target: CpuTarget | None = None) -> None:
    expected = Oracle(read_model(proto)).run({"x": x})
    native = redpebble.compile(proto, target=target, cache=False)
    assert_close(native.run(None, {"x": x}), expected, "native")
    assert_close(Oracle(redpebble.optimize(proto, target="portable").model).run({"x": x}), expected, "portable")


@pytest.mark.slow
@pytest.mark.parametrize("density", [pytest.param(1.0, marks=pytest.mark.slow), 0.1])
@pytest.mark.parametrize("place", [0, 3, *(pytest.param(place, marks=pytest.mark.slow) for place in (1, 2, 4, 5))])
def test_a_weight_or_bias_that_is_no_number_agrees(place: int, density: float) -> None:
    made = arrays(density)
    for index, number in enumerate(SPECIAL):
        made[place].reshape(-1)[index * made[place].size // 4] = number
    assert_agrees(perceptron(made), np.random.default_rng(1).standard_normal((17, 20)).astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("number", SPECIAL)
def test_one_weight_that_is_no_number_spoils_no_more_than_it_does_in_onnxruntime(number: float) -> None:
    made = arrays(0.1)
    made[2].reshape(-1)[np.flatnonzero(made[2])[0]] = number
    assert_agrees(perceptron(made), np.random.default_rng(3).standard_normal((5, 20)).astype(np.float32))


@pytest.mark.slow
@best_target_first
def test_an_input_that_is_no_number_agrees_where_layers_are_dense(target: CpuTarget) -> None:
    x = np.random.default_rng(2).standard_normal((23, 20)).astype(np.float32)
    for row, number in enumerate(SPECIAL):
        x[3 * row, row] = x[3 * row + 1, :] = number
    x[10, :2] = np.inf, -np.inf
    assert_agrees(perceptron(arrays(1.0)), x, target)


@pytest.mark.slow
@best_target_first
def test_activations_of_what_is_no_number_agree(target: CpuTarget) -> None:
    nodes = [helper.make_node(operator, ["x"], [operator], **numbers) for operator, numbers in ACTIVATIONS.items()]
    x = np.zeros((9, 5), dtype=np.float32)
    x[np.arange(9), 2] = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 200.0, -200.0, 3e38)
    assert_agrees(model(nodes, 5, []), x, target)


@best_target_first
@pytest.mark.parametrize(
    "shape, zeros", [((64, 64), 0.8), *(pytest.param(*one, marks=pytest.mark.slow) for one in LARGER)]
)
def test_an_input_that_is_no_number_gives_pruned_outputs_their_value_or_nan(
    shape: tuple[int, int], zeros: float, target: CpuTarget
) -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal(shape).astype(np.float32) * (rng.random(shape) >= zeros)
    network = redpebble.compile(perceptron([weight, np.zeros(shape[1], np.float32)]), target=target, cache=False)
    for batch in (1, 2, 5, 8, 16, 33, 64):
        x = rng.standard_normal((batch, shape[0])).astype(np.float32)
        row, column = batch // 2, int(rng.integers(shape[0]))
        without = x.astype(np.float64)
        without[row, column] = 0
        expected = (without @ weight).astype(np.float32)
        x[row, column] = SPECIAL[batch % len(SPECIAL)]
        (found,) = network.run(None, {"x": x})
        kept = weight[column] != 0
        # zeros that fill up a kernel's rows meet the same input
        pruned = found[row, ~kept]
        assert_close([pruned[~np.isnan(pruned)]], [expected[row, ~kept][~np.isnan(pruned)]])
        right = x[row, column] * weight[column, kept]
        assert np.all(np.isnan(found[row, kept]) | (found[row, kept] == right))
        others = np.arange(batch) != row
        assert_close([found[others]], [expected[others]])


@pytest.mark.parametrize(
    "first, second, x",
    [
        pytest.param(1e20, 1e20, 1e-20, id="a product that overflows"),
        pytest.param(1e-25, 1e-25, 1e30, id="a product that underflows"),
        pytest.param(2e-7, 3e-38, 1e20, id="a product of few bits"),
    ],
)
def test_layers_in_a_row_whose_weights_have_no_product_in_floats_agree(first: float, second: float, x: float) -> None:
    rng = np.random.default_rng(4)
    wide, narrow = (rng.uniform(0.5, 1.0, shape) for shape in ((16, 256), (256, 16)))
    weights = [(first * wide).astype(np.float32), (second * narrow).astype(np.float32)]
    constants = [numpy_helper.from_array(array, name) for name, array in zip("wv", weights, strict=True)]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "v"], ["y"])]
    fed = (x * rng.uniform(0.5, 1.0, (64, 16))).astype(np.float32)
    expected = fed.astype(np.float64) @ weights[0] @ weights[1]
    assert np.abs(expected).min() > 1e-35
    proto = model(nodes, 16, constants)
    for found in (
        redpebble.compile(proto, cache=False).run(None, {"x": fed}),
        Oracle(redpebble.optimize(proto, target="portable").model).run({"x": fed}),
    ):
        np.testing.assert_allclose(found[0], expected, rtol=1e-5)
