"""Whether weights have zeros is seen wherever exporters put them, in files that are not read and in models that are."""

from collections.abc import Callable, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from redpebble.export.save_model import save_model
from redpebble.frontend.operators.table import LAYERS as COVERED
from redpebble.frontend.reading.model_source import read_model
from redpebble.frontend.reading.streamed_graph import streamed_graph
from redpebble.frontend.reading.weight_graph import WeightGraph
from redpebble.frontend.sparse_weights import GRAPHS, LAYERS, graph_of, has_sparse_convolution, reason_of_density
from redpebble.models.exports.stored import stored_export

Array = NDArray[np.generic]
Node = onnx.NodeProto
SHAPE = (24, 32)
DENSITIES = (1.0, 0.1)


def weight(density: float, shape: Sequence[int] = SHAPE) -> NDArray[np.float32]:
    rng = np.random.default_rng(3)
    values = rng.uniform(1.0, 2.0, shape) * np.where(rng.random(shape) < 0.5, 1, -1)
    # what a mask makes of negative weights is -0
    return (values * (rng.random(shape) < density)).astype(np.float32)


def codes(density: float, zero: int | Array, shape: Sequence[int] = SHAPE) -> NDArray[np.uint8]:
    return np.where(weight(density, shape) != 0, (np.asarray(zero) + 7) % 256, zero).astype(np.uint8)


def held(array: Array, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(array, name)


def constant(array: Array) -> Node:
    return helper.make_node("Constant", [], ["w"], value=held(array, "w"))


def step(operator: str, inputs: str = "w0", **attributes: int) -> Node:
    node = helper.make_node(operator, inputs.split(), ["w"])
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    return node


VECTOR = np.arange(3, 3 + SHAPE[1])

FORMS: dict[str, Callable[[float], tuple[list[Node], dict[str, Array]]]] = {
    "initializer": lambda density: ([], {"w": weight(density)}),
    "Constant": lambda density: ([constant(weight(density))], {}),
    "Identity": lambda density: ([step("Identity")], {"w0": weight(density)}),
    "Transpose": lambda density: ([step("Transpose")], {"w0": weight(density, SHAPE[::-1])}),
    "Reshape": lambda density: (
        [step("Reshape", "w0 s")],
        {"w0": weight(density, (SHAPE[0] * SHAPE[1],)), "s": np.array(SHAPE)},
    ),
    "float16": lambda density: ([step("Cast", to=1)], {"w0": weight(density).astype(np.float16)}),
    "bfloat16": lambda density: ([step("Cast", to=1)], {"w0": weight(density).astype(ml_dtypes.bfloat16)}),
    "float64": lambda density: ([step("Cast", to=1)], {"w0": weight(density).astype(np.float64)}),
    "codes": lambda density: (
        [step("DequantizeLinear", "w0 s z")],
        {"w0": codes(density, 128), "s": np.array(0.1, np.float32), "z": np.array(128, np.uint8)},
    ),
    "codes of columns": lambda density: (
        [step("DequantizeLinear", "w0 s z", axis=1)],
        {
            "w0": codes(density, VECTOR),
            "s": np.full(SHAPE[1], 0.1, np.float32),
            "z": VECTOR.astype(np.uint8),
        },
    ),
    "mask": lambda density: (
        [step("Mul", "w0 m")],
        {"w0": weight(1.0), "m": (weight(density) != 0).astype(np.float32)},
    ),
    "halves": lambda density: (
        [step("Concat", "w0 w1", axis=0)],
        {"w0": weight(density, (12, 32)), "w1": weight(density, (12, 32))},
    ),
}


def model(nodes: list[Node], tensors: dict[str, Array], layer: Node | None = None) -> onnx.ModelProto:
    """A layer of the weight `w`; zeros elsewhere, as in a bias and in what is added to results, are no weights."""
    made = [*nodes, layer or helper.make_node("MatMul", ["x", "w"], ["p"])]
    made.append(helper.make_node("Add", ["p", "zeros"], ["y"]))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    arrays = {**tensors, "zeros": np.zeros((SHAPE[0], SHAPE[1]), np.float32)}
    graph = helper.make_graph(made, "g", values[:1], values[1:], [held(array, name) for name, array in arrays.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def may_gain(graph: WeightGraph) -> bool:
    return not reason_of_density(graph, lambda: False)


def both(proto: onnx.ModelProto) -> tuple[WeightGraph, WeightGraph]:
    return streamed_graph(proto.SerializeToString()), graph_of(read_model(proto))


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("form", FORMS)
def test_zeros_of_weights_are_seen_wherever_they_lie(form: str, density: float) -> None:
    proto = model(*FORMS[form](density))
    assert [may_gain(graph) for graph in both(proto)] == [density < 0.5] * 2


CONVOLUTIONS: dict[str, tuple[str, str]] = {
    "Conv": ("Conv", "x w"),
    "ConvInteger": ("ConvInteger", "x w z z"),
    "QLinearConv": ("QLinearConv", "x s z w s z s z"),
}


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("operator", CONVOLUTIONS)
@pytest.mark.parametrize("is_node", [False, True])
def test_zeros_of_convolutions_are_seen(operator: str, density: float, is_node: bool) -> None:
    shape = (16, 8, 3, 3)
    array = weight(density, shape) if operator == "Conv" else codes(density, 128, shape)
    tensors: dict[str, Array] = {"s": np.array(0.1, np.float32), "z": np.array(128, np.uint8)}
    name, inputs = CONVOLUTIONS[operator]
    layer = helper.make_node(name, inputs.split(), ["p"])
    proto = model([constant(array)], tensors, layer) if is_node else model([], {**tensors, "w": array}, layer)
    for graph in both(proto):
        assert has_sparse_convolution(graph) == may_gain(graph) == (density < 0.5)


def test_a_weight_of_which_nothing_is_told_may_gain() -> None:
    tensors: dict[str, Array] = {"w0": weight(1.0), "c": weight(1.0) > 0, "o": np.zeros((), np.float32)}
    assert all(map(may_gain, both(model([step("Where", "c w0 o")], tensors))))
    assert all(map(may_gain, both(model([step("ConstantOfShape", "s")], {"s": np.array(SHAPE)}))))


def test_what_a_call_may_replace_is_no_weight() -> None:
    proto = model([], {"w": weight(0.1)})
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, SHAPE))
    assert not any(map(may_gain, both(proto)))
    proto.ir_version = 3
    assert all(map(may_gain, both(proto)))


def test_weights_inside_of_nodes_and_functions_and_sums_over_edges_may_gain() -> None:
    for density in DENSITIES:
        body = helper.make_graph(
            [helper.make_node("MatMul", ["x", "v"], ["r"])],
            "body",
            [],
            [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
            [held(weight(density), "v")],
        )
        other = helper.make_graph([helper.make_node("Neg", ["x"], ["q"])], "other", [], [body.output[0]])
        other.output[0].name = "q"
        branches = helper.make_node("If", ["flag"], ["p"], then_branch=body, else_branch=other)
        proto = model([], {"flag": np.array(True)}, branches)
        assert [may_gain(graph) for graph in both(proto)] == [density < 0.5] * 2
    scatter = helper.make_node("ScatterElements", ["zeros", "places", "x"], ["p"], axis=0)
    assert all(map(may_gain, both(model([], {"places": np.zeros(SHAPE, np.int64)}, scatter))))
    proto = model([], {"w": weight(1.0)})
    opsets = [helper.make_opsetid("", 17)]
    proto.functions.append(
        helper.make_function("own", "F", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], opsets)
    )
    proto.opset_import.append(helper.make_opsetid("own", 1))
    assert all(map(may_gain, both(proto)))


@pytest.mark.parametrize("density", DENSITIES)
def test_weights_in_a_file_of_their_own_are_seen(density: float, tmp_path: Path) -> None:
    proto = model([], {"w": weight(density)})
    save_model(onnx_ir.from_proto(proto), tmp_path / "m.onnx", external_data=True)
    assert (tmp_path / "m.onnx.data").exists()
    assert may_gain(streamed_graph(tmp_path / "m.onnx")) == (density < 0.5)


@pytest.mark.parametrize("density", DENSITIES)
def test_values_that_are_no_raw_bytes_are_seen(density: float) -> None:
    array = weight(density)
    for kind in (TensorProto.FLOAT, TensorProto.FLOAT16):
        nodes = [] if kind == TensorProto.FLOAT else [step("Cast", to=1)]
        proto = model(nodes, {})
        proto.graph.initializer.append(helper.make_tensor("w0" if nodes else "w", kind, SHAPE, array.reshape(-1)))
        assert not proto.graph.initializer[-1].HasField("raw_data")
        assert [may_gain(graph) for graph in both(proto)] == [density < 0.5] * 2


def test_every_layer_that_is_covered_is_looked_at() -> None:
    """Attention of inputs alone has no weights; what makes codes and floats of each other is no layer of its own."""
    weightless = {("", "Attention"), ("com.microsoft", "GroupQueryAttention"), ("com.microsoft", "MultiHeadAttention")}
    parts = {(domain, f"{word}Linear") for domain in ("", "com.microsoft") for word in ("Quantize", "Dequantize")}
    assert not {*COVERED} - {*LAYERS} - GRAPHS - weightless - parts


@pytest.mark.parametrize("name", ["bert.classic", "gpt2.dynamo", "lstm.classic", "mobilenet_v3.classic"])
def test_real_networks_are_told_apart_by_their_weights(name: str) -> None:
    for sparsity in (0.0, 0.9):
        assert [may_gain(graph) for graph in both(stored_export(name, sparsity))] == [sparsity > 0] * 2


def test_what_is_no_model_is_refused() -> None:
    for content in (b"", b"\x0a", b"\x3a\x05ab", b"\x07"):
        with pytest.raises(ValueError, match=r"1 graph|cut short|behind its message|wire type"):
            streamed_graph(content)
