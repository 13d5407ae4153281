import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.reading.model_source import read_model
from redpebble.training.native_step import NativeStep, StepOptions
from redpebble.training.packed_values import packed_places

Floats = NDArray[np.float32]

ROWS = 24


def network(*, normalised: bool = False, scaled: bool = False) -> onnx.ModelProto:
    """Two layers whose weights lie in both ways; a batch norm or a scale in between on request."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (40, 20), "b1": (40,), "w2": (40, 7), "b2": (7,), "s": (40,), "t": (40,), "m": (40,), "v": (40,)}
    arrays = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    for name in ("w1", "w2"):
        arrays[name][rng.random(arrays[name].shape) < 0.8] = 0
    arrays["v"] = np.abs(arrays["v"]) + np.float32(0.5)
    between = helper.make_node("Identity", ["h"], ["n"])
    if normalised:
        between = helper.make_node("BatchNormalization", ["h", "s", "t", "m", "v"], ["n"])
    if scaled:
        between = helper.make_node("Mul", ["h", "s"], ["n"])
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], transB=1),
        between,
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["z"]),
        helper.make_node("Add", ["z", "b2"], ["y"]),
    ]
    used = {name for node in nodes for name in node.input}
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items() if name in used]
    sizes = {"x": 20, "y": 7}
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size]) for name, size in sizes.items())
    graph = helper.make_graph(nodes, "graph", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def outputs_of(model: onnx_ir.Model, x: Floats) -> Floats:
    session = onnxruntime.InferenceSession(onnx_ir.to_proto(model).SerializeToString())
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize(
    ("model", "trained"),
    [
        pytest.param(network(), {"w1", "b1", "w2", "b2"}, id="layers"),
        pytest.param(network(normalised=True), {"w1", "b1", "w2", "b2"}, id="batch norm"),
    ],
)
def test_values_are_changed_in_place_and_in_the_model_alike(model: onnx.ModelProto, trained: set[str]) -> None:
    rng = np.random.default_rng(1)
    step = NativeStep(read_model(model), StepOptions("mse", ROWS, threads=2))
    assert {parameter.name for parameter in step.parameters} == trained
    x, target = (rng.standard_normal((ROWS, size), dtype=np.float32) for size in (20, 7))
    batch = step.bind({"x": x}, target)
    for _ in range(2):
        batch.run()
        np.testing.assert_allclose(batch.outputs, outputs_of(step.trained(step.values), x), rtol=1e-4, atol=1e-4)
        step.values += rng.standard_normal(len(step.values), dtype=np.float32)
        step.put()


def test_gradients_are_in_the_order_of_the_values() -> None:
    rng = np.random.default_rng(1)
    step = NativeStep(read_model(network()), StepOptions("mse", ROWS))
    x, target = (rng.standard_normal((ROWS, size), dtype=np.float32) for size in (20, 7))
    step.bind({"x": x}, target).run()
    gradient, base = step.gradient.copy(), step.values.copy()
    for index in rng.choice(len(base), 12, replace=False).tolist():
        losses: list[float] = []
        for sign in (1, -1):
            values = base.copy()
            values[index] += sign * np.float32(1 / 64)
            losses.append(float(np.square(outputs_of(step.trained(values), x) - target).mean(axis=1).sum()))
        assert gradient[index] == pytest.approx(32 * (losses[0] - losses[1]), rel=0.02, abs=0.02)


def test_a_weight_that_a_pass_computes_with_is_not_trained() -> None:
    step = NativeStep(read_model(network(scaled=True)), StepOptions("mse", ROWS))
    assert {parameter.name for parameter in step.parameters} == {"w2", "b2"}


def test_a_weight_with_few_zeros_is_trained_and_they_stay() -> None:
    model = read_model(network())
    w1 = model.graph.initializers["w1"]
    assert w1.const_value is not None
    full = np.ones(w1.const_value.shape.numpy(), np.float32)
    full[3, 5] = 0
    w1.const_value = onnx_ir.tensor(full, name="w1")
    step = NativeStep(model, StepOptions("mse", ROWS))
    assert {parameter.name for parameter in step.parameters} == {"w1", "b1", "w2", "b2"}
    trained = step.trained(step.values + 1).graph.initializers["w1"].const_value
    assert trained is not None
    assert np.array_equal(trained.numpy(), 2 * full)


def test_a_model_without_weights_is_refused() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "graph", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(UnsupportedModelError, match=r"expected initializers .*, got nothing to train"):
        NativeStep(read_model(model), StepOptions("mse", ROWS))


def test_values_that_are_packed_in_parts_are_found() -> None:
    first = np.array([1, 2, 1.5, 0.75, 0.75, 4, 7, 0.5], np.float32)
    second = np.array([2, 3, 2.0, 1.00, 1.00, 1, 7, 0.5], np.float32)
    ((index, places, numbers, parts),) = packed_places([first], [second], 4)
    assert (index, places.tolist(), numbers.tolist()) == (0, [0, 1, 2, 3, 4, 5], [1, 2, 3, 3, 3, 4])
    assert parts.tolist() == [1, 1, 0.5, 0.25, 0.25, 1]
