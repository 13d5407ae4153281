"""Nodes of older opsets in a later one: onnxruntime says whether they compute the same."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

import redpebble
from redpebble.frontend.reading.raised_opset import RAISED, raise_opset, raising_obstacle

Floats = NDArray[np.float32]
IMAGE = np.random.default_rng(3).standard_normal((2, 4, 6, 8)).astype(np.float32)
SCALES = np.array([1, 1, 2, 3], np.float32)


def of_opset(
    opset: int, nodes: Sequence[onnx.NodeProto], weights: Mapping[str, NDArray[Any]], shape: Sequence[int | str]
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [f"y{axis}" for axis in range(len(shape))])
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "older", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)


Attribute = int | float | str | Sequence[int] | Sequence[float]


def node(operator: str, inputs: str = "x", outputs: str = "y", **attributes: Attribute) -> onnx.NodeProto:
    made = helper.make_node(operator, inputs.split(), outputs.split(), name=f"old_{operator}_{inputs[0]}")
    made.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    return made


def norm(**attributes: Attribute) -> onnx.NodeProto:
    return node("BatchNormalization", "x s b m v", "y", **attributes)


CHANNELS = {name: np.array([1, 2, 3, 4], np.float32) for name in "sbmv"}

CASES: Sequence[tuple[int, onnx.NodeProto, Mapping[str, NDArray[Any]]]] = [
    (7, norm(spatial=1, epsilon=0.1), CHANNELS),
    (7, norm(), CHANNELS),
    (7, node("MaxPool", kernel_shape=[3, 3], strides=[2, 2]), {}),
    (7, node("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), {}),
    (7, node("Dropout", ratio=0.4), {}),
    (7, node("Upsample", mode="nearest", scales=[1.0, 1.0, 2.0, 3.0]), {}),
    (9, node("Upsample", "x scales", mode="linear"), {"scales": SCALES}),
    (9, node("Upsample", "x scales", mode="nearest"), {"scales": np.array([1, 1, 1.5, 2.4], np.float32)}),
    (10, node("Resize", "x scales", mode="nearest"), {"scales": SCALES}),
    (9, node("Clip", min=0.0, max=1.0), {}),
    (9, node("Clip", max=0.5), {}),
    (9, node("Clip"), {}),
    (9, node("Pad", pads=[0, 0, 1, 1, 0, 0, 2, 0], value=0.5), {}),
    (7, node("Pad", pads=[0, 0, 1, 1, 0, 0, 2, 0], mode="reflect"), {}),
    (9, node("Slice", starts=[1, -3], ends=[3, 100], axes=[2, 3]), {}),
    (9, node("Slice", starts=[1, 1], ends=[2, 3]), {}),
    (9, node("TopK", outputs="y i", k=2, axis=3), {}),
    (9, node("Scatter", "x i u", axis=2), {"i": np.zeros((2, 4, 1, 8), np.int64), "u": IMAGE[:, :, 1:2]}),
    (7, node("Softmax", axis=2), {}),
]


@pytest.mark.parametrize(("opset", "old", "weights"), CASES)
def test_an_older_node_computes_the_same(opset: int, old: onnx.NodeProto, weights: Mapping[str, NDArray[Any]]) -> None:
    model = of_opset(opset, [old], weights, IMAGE.shape)
    raised = onnx_ir.from_proto(model)
    assert raising_obstacle(raised) == ""
    assert raised.opset_imports[""] == opset
    raise_opset(raised)
    assert raised.opset_imports[""] == RAISED
    after = onnx_ir.to_proto(raised)
    onnx.checker.check_model(after)  # pyright: ignore[reportUnknownMemberType]
    before, found = (InferenceSession(one.SerializeToString()).run(["y"], {"x": IMAGE}) for one in (model, after))
    np.testing.assert_array_equal(found[0], before[0])


REFUSED: Sequence[tuple[int, onnx.NodeProto, Mapping[str, NDArray[Any]], str]] = [
    (
        7,
        norm(spatial=0),
        CHANNELS,
        "node old_BatchNormalization_x: operator BatchNormalization has a mean of each pixel",
    ),
    (7, node("Dropout", outputs="z y"), {}, "node old_Dropout_x: operator Dropout has no such form there"),
    (10, node("Resize", "x x"), {}, "node old_Resize_x: operator Resize computes its scales"),
    (
        10,
        node("Resize", "x scales"),
        {"scales": SCALES / 2},
        "node old_Resize_x: operator Resize makes images smaller, which is defined otherwise there",
    ),
]


@pytest.mark.parametrize(("opset", "old", "weights", "reason"), REFUSED)
def test_a_node_without_such_a_form_is_named(
    opset: int, old: onnx.NodeProto, weights: Mapping[str, NDArray[Any]], reason: str
) -> None:
    model = of_opset(opset, [old], weights, IMAGE.shape)
    assert raising_obstacle(onnx_ir.from_proto(model)) == reason


def layers(opset: int, last: onnx.NodeProto) -> onnx.ModelProto:
    rng = np.random.default_rng(opset)
    weight = np.where(rng.random((256, 256)) < 0.1, rng.standard_normal((256, 256)), 0).astype(np.float32)
    nodes = [node("MatMul", "x w", "h"), node("Clip", "h", "c", min=0.0, max=6.0), node("MatMul", "c w", "z"), last]
    return of_opset(opset, nodes, {"w": weight}, ["n", 256])


@pytest.mark.parametrize("opset", [7, 8, 9, 10])
def test_sparse_layers_of_older_opsets_gain(opset: int) -> None:
    top = node("TopK", "z", "y i", k=3) if opset < 10 else node("Sin", "z")
    model, x = layers(opset, top), np.ones((3, 256), np.float32)
    found = redpebble.optimize(model)
    assert len(found.networks) == 1
    assert not found.obstacle
    assert found.model.opset_imports[""] == RAISED
    (expected,) = InferenceSession(model.SerializeToString()).run(["y"], {"x": x})
    for ready in (InferenceSession(found.proto.SerializeToString()), redpebble.session(model)):
        np.testing.assert_allclose(ready.run(["y"], {"x": x})[0], expected, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_raised_stays_and_says_why() -> None:
    found = redpebble.optimize(layers(9, node("Dropout", "z", "d y")))
    reason = "node old_Dropout_z: operator Dropout has no such form there"
    assert found.obstacle == f"the model's opset is 9, a sparse network needs 11: {reason}"
    assert found.model.opset_imports[""] == 9
