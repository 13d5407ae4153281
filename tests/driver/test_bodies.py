"""Layers inside of If, Loop and Scan, and of model-local functions, become sparse networks as well."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble
from redpebble.export.sparse_networks.node_format import DOMAIN
from redpebble.ort.session import write_library

Floats = NDArray[np.float32]

WIDTH = 192
OPSETS = [helper.make_opsetid("", 17)]


def weight(seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((WIDTH, WIDTH), dtype=np.float32)
    return np.where(rng.random((WIDTH, WIDTH)) < 0.1, values, np.float32(0)).astype(np.float32)


def rows(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH])


def layers(x: str, y: str, weights: tuple[str, str]) -> list[onnx.NodeProto]:
    return [
        helper.make_node("MatMul", [x, weights[0]], [f"{y}_a"], name=f"{y}_first"),
        helper.make_node("Relu", [f"{y}_a"], [f"{y}_b"], name=f"{y}_relu"),
        helper.make_node("MatMul", [f"{y}_b", weights[1]], [y], name=f"{y}_second"),
    ]


def tensors(*names: str) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(weight(index), name) for index, name in enumerate(names)]


def model(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], constants: list[onnx.TensorProto]
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "outer", inputs, [rows("y")], constants)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=8)


def conditional() -> onnx.ModelProto:
    """An If whose branches read a weight of the outer graph, and one of their own; both call a value by one name."""
    branches = [
        helper.make_graph(
            layers("h", f"{word}_y", ("shared", "own")), word, [], [rows(f"{word}_y")], [tensors("own")[0]]
        )
        for word in ("then", "else")
    ]
    nodes = [
        helper.make_node("Neg", ["x"], ["h"], name="neg"),
        helper.make_node("If", ["test"], ["y"], name="choose", then_branch=branches[0], else_branch=branches[1]),
    ]
    test = helper.make_tensor_value_info("test", TensorProto.BOOL, [])
    return model(nodes, [rows("x"), test], tensors("unused", "shared")[1:])


def loop() -> onnx.ModelProto:
    """A Loop that carries a state, and reads a value of the outer graph beside its own."""
    inputs = [
        helper.make_tensor_value_info("step", TensorProto.INT64, []),
        helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
        rows("state"),
    ]
    nodes = [
        helper.make_node("Identity", ["goes_on"], ["still"], name="same"),
        *layers("state", "z", ("first", "second")),
        helper.make_node("Add", ["z", "x"], ["added"], name="add"),
        helper.make_node("Tanh", ["added"], ["next"], name="tanh"),
    ]
    still = helper.make_tensor_value_info("still", TensorProto.BOOL, [])
    body = helper.make_graph(nodes, "body", inputs, [still, rows("next")])
    outer = [
        *layers("x", "h", ("first", "second")),
        helper.make_node("Loop", ["count", "", "h"], ["y"], name="loop", body=body),
    ]
    count = helper.make_tensor_value_info("count", TensorProto.INT64, [])
    return model(outer, [rows("x"), count], tensors("first", "second"))


def scan() -> onnx.ModelProto:
    """A Scan over rows of a sequence, inside of it an If."""
    branch = helper.make_graph(layers("joined", "seen", ("first", "second")), "then", [], [rows("seen")])
    other = helper.make_graph(
        [helper.make_node("Neg", ["joined"], ["negated"], name="negate")], "else", [], [rows("negated")]
    )
    nodes = [
        helper.make_node("Add", ["state", "row"], ["joined"], name="join"),
        helper.make_node("If", ["test"], ["next"], name="choose", then_branch=branch, else_branch=other),
    ]
    body = helper.make_graph(nodes, "body", [rows("state"), rows("row")], [rows("next")])
    outer = [helper.make_node("Scan", ["x", "rows"], ["y"], name="scan", body=body, num_scan_inputs=1)]
    sequence = helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["steps", "batch", WIDTH])
    test = helper.make_tensor_value_info("test", TensorProto.BOOL, [])
    return model(outer, [rows("x"), sequence, test], tensors("first", "second"))


def functions() -> onnx.ModelProto:
    """A function of layers, called by another one, twice."""
    inner = helper.make_function("pkg", "Layers", ["x", "a", "b"], ["z"], layers("x", "z", ("a", "b")), OPSETS)
    call = [
        helper.make_node("Layers", ["x", "a", "b"], ["h"], name="inner", domain="pkg"),
        helper.make_node("Tanh", ["h"], ["y"], name="tanh"),
    ]
    opsets = [*OPSETS, helper.make_opsetid("pkg", 1)]
    outer = helper.make_function("pkg", "Block", ["x", "a", "b"], ["y"], call, opsets)
    nodes = [
        helper.make_node("Block", ["x", "first", "second"], ["h"], name="one", domain="pkg"),
        helper.make_node("Block", ["h", "first", "second"], ["y"], name="two", domain="pkg"),
    ]
    made = model(nodes, [rows("x")], tensors("first", "second"))
    made.opset_import.append(opsets[1])
    made.functions.extend([inner, outer])
    return made


MODELS = {"if": (conditional, 2), "loop": (loop, 2), "scan": (scan, 1), "functions": (functions, 1)}
"""Models, and how many sparse networks they become."""


def feeds(proto: onnx.ModelProto, batch: int) -> dict[str, NDArray[np.generic]]:
    rng = np.random.default_rng(batch)
    made: dict[str, NDArray[np.generic]] = {}
    for value in proto.graph.input:
        kind = value.type.tensor_type
        shape = [{"batch": batch, "steps": 3}.get(dim.dim_param, dim.dim_value) for dim in kind.shape.dim]
        if kind.elem_type == TensorProto.FLOAT:
            made[value.name] = rng.standard_normal(shape, dtype=np.float32)
        else:
            made[value.name] = np.array(batch % 2, np.bool_ if kind.elem_type == TensorProto.BOOL else np.int64)
    return made


@pytest.mark.parametrize("name", [*MODELS][:1] + [pytest.param(name, marks=pytest.mark.slow) for name in [*MODELS][1:]])
def test_layers_inside_of_nodes_are_taken(name: str) -> None:
    made, networks = MODELS[name]
    proto = made()
    result = redpebble.optimize(proto)
    assert len(result.networks) == networks
    assert all(network.layers >= 2 for network in result.networks)
    judge = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    plain = onnxruntime.InferenceSession(result.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    ours = redpebble.session(result.model)
    for batch in (1, 4, 7):
        arrays = feeds(proto, batch)
        (expected,) = judge.run(None, arrays)
        for session in (plain, ours):
            (found,) = session.run(None, arrays)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_layers_inside_of_nodes_of_older_models_are_taken() -> None:
    proto = conditional()
    proto.ir_version = 4
    result = redpebble.optimize(proto)
    assert (len(result.networks), result.model.ir_version) == (2, 8)
    judge, plain = (
        onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"])
        for one in (proto, result.proto)
    )
    (expected,), (found,) = (session.run(None, feeds(conditional(), 4)) for session in (judge, plain))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["if", "loop", "scan"])
def test_a_library_has_code_for_networks_inside_of_nodes(name: str, tmp_path: Path) -> None:
    proto = MODELS[name][0]()
    optimized = redpebble.optimize(proto)
    write_library(optimized.model, tmp_path / "m.so")
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(tmp_path / "m.so"))
    content = optimized.proto.SerializeToString()
    ours = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    judge = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch in (1, 4, 7):
        arrays = feeds(proto, batch)
        np.testing.assert_allclose(ours.run(None, arrays)[0], judge.run(None, arrays)[0], rtol=1e-4, atol=1e-3)
    names = {function.name for function in optimized.proto.functions if function.domain == DOMAIN}
    assert all(name.encode() in (tmp_path / "m.so").read_bytes() for name in names)


def test_weights_that_only_bodies_read_are_stored_once() -> None:
    proto = loop()
    result = redpebble.optimize(proto)
    assert not {tensor.name for tensor in result.proto.graph.initializer} & {"first", "second"}
    assert result.proto.ByteSize() < 0.6 * proto.ByteSize()


def test_bodies_that_gain_nothing_stay_as_they_are() -> None:
    proto = conditional()
    for tensor in (*proto.graph.initializer, *(t for a in proto.graph.node[1].attribute for t in a.g.initializer)):
        tensor.raw_data = np.ones((WIDTH, WIDTH), np.float32).tobytes()
    result = redpebble.optimize(proto)
    assert not result.networks
    assert not result.modified


def test_functions_without_gain_are_still_called() -> None:
    proto = functions()
    for tensor in proto.graph.initializer:
        tensor.raw_data = np.ones((WIDTH, WIDTH), np.float32).tobytes()
    assert {node.op_type for node in redpebble.optimize(proto).model.graph} == {"Block"}


def test_a_bias_that_is_repeated_in_a_body_is_the_bodys_own() -> None:
    """The graph around it keeps its own under the same name, which another node reads."""
    gemm = helper.make_node("Gemm", ["x", "w", "bias"], ["z"], name="layer")
    body = helper.make_graph([gemm], "body", [], [rows("z")])
    other = helper.make_graph([helper.make_node("Add", ["x", "bias"], ["s"])], "other", [], [rows("s")])
    nodes = [helper.make_node("If", ["test"], ["y"], name="choose", then_branch=body, else_branch=other)]
    test = helper.make_tensor_value_info("test", TensorProto.BOOL, [])
    bias = numpy_helper.from_array(np.array([1.25], np.float32), "bias")
    proto = model(nodes, [rows("x"), test], [*tensors("w"), bias])
    ours, plain = redpebble.session(proto), onnxruntime.InferenceSession(proto.SerializeToString())
    assert len(redpebble.optimize(proto).networks) == 1
    x = np.random.default_rng(0).standard_normal((5, WIDTH), dtype=np.float32)
    for flag in (True, False):
        feeds = {"x": x, "test": np.array(flag)}
        np.testing.assert_allclose(ours.run(None, feeds)[0], plain.run(None, feeds)[0], 1e-4, 1e-4)
