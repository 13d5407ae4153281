"""A session of a model without sparse weights is onnxruntime's, and loads neither compiler nor reader."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.models.exports.stored import stored_export
from tests.ort.provider_models import plain_session
from tests.support.image_models import ImageModel

LISTS_MODULES = """
import sys
import onnxruntime, redpebble
session = redpebble.session(sys.argv[1])
print(*sys.modules, *(node.name for node in session.get_inputs()))
"""


@pytest.fixture(scope="module")
def dense() -> onnx.ModelProto:
    return stored_export("bert.classic", 0.0)


def feeds(proto: onnx.ModelProto) -> dict[str, NDArray[Any]]:
    return {value.name: np.ones((2, 7), np.int64) for value in proto.graph.input}


def test_a_dense_model_costs_no_import(dense: onnx.ModelProto, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(dense.SerializeToString())
    for _ in range(2):
        command = [sys.executable, "-c", LISTS_MODULES, str(tmp_path / "m.onnx")]
        loaded = {*subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()}
        assert not {"numba", "onnx", "onnx_ir", "scipy", "sympy", "xdsl", "llvmlite"} & loaded
        assert "redpebble.ort.session" not in loaded


@pytest.mark.parametrize("kind", ["path", "bytes", "proto", "model"])
def test_a_dense_model_in_any_form_runs_as_it_is(dense: onnx.ModelProto, kind: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(dense.SerializeToString())
    sources = {"path": tmp_path / "m.onnx", "bytes": dense.SerializeToString(), "proto": dense}
    session = redpebble.session(ir.from_proto(dense) if kind == "model" else sources[kind])
    expected = plain_session(dense).run(None, feeds(dense))
    for found, wanted in zip(session.run(None, feeds(dense)), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_what_onnxruntime_refuses_is_told_by_who_reads_it(dense: onnx.ModelProto) -> None:
    broken = onnx.ModelProto.FromString(dense.SerializeToString())
    broken.graph.node[3].input[0] = "nowhere"
    with pytest.raises(redpebble.InvalidModelError, match="reads 'nowhere', which nothing defines"):
        redpebble.session(broken)


def test_options_and_providers_are_those_of_the_caller(dense: onnx.ModelProto, tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    options.log_severity_level = 3
    redpebble.session(dense, options, ["CPUExecutionProvider"])
    assert (tmp_path / "loaded.onnx").exists()


@pytest.mark.parametrize(
    "operator",
    ["Constant", "DequantizeLinear"]
    + [pytest.param(name, marks=pytest.mark.slow) for name in ("Identity", "Transpose", "Cast", "Reshape")],
)
def test_a_session_makes_code_for_images_whose_weights_lie_behind_nodes(operator: str, tmp_path: Path) -> None:
    """Paddle keeps weights in Constant nodes; other tools put them behind what changes no zeros."""
    net = ImageModel((3, 1, 1), density=0.05)
    x = net.node("Relu", net.conv("x", (64, 3, 3, 3), pads=[1, 1, 1, 1]))
    for _ in range(2):
        x = net.node("Relu", net.conv(x, (64, 64, 3, 3), pads=[1, 1, 1, 1]))
    model = net.model(x)
    for name, dim in zip(("height", "width"), model.graph.input[0].type.tensor_type.shape.dim[2:], strict=True):
        dim.dim_param = name
    put_behind(model, operator)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    options.log_severity_level = 3
    session = redpebble.session(model, options, sizes=[{"height": 8, "width": 9}])
    plain = plain_session(model, 1)
    images = {"x": np.random.default_rng(0).standard_normal((1, 3, 8, 9)).astype(np.float32)}
    np.testing.assert_allclose(session.run(None, images)[0], plain.run(None, images)[0], rtol=1e-3, atol=1e-3)
    loaded = onnx.ModelProto.FromString((tmp_path / "loaded.onnx").read_bytes())
    assert any(node.op_type.startswith("SparseNetwork") for node in loaded.graph.node)


def put_behind(model: onnx.ModelProto, operator: str) -> None:
    """Let all weights of convolutions be what an operator yields."""
    graph = model.graph
    weights = [tensor for tensor in graph.initializer if len(tensor.dims) > 1]
    for tensor in weights:
        array = onnx.numpy_helper.to_array(tensor)
        graph.initializer.remove(tensor)
        name = f"{tensor.name}_stored"
        nodes, tensors = behind(operator, name, tensor.name, array)
        for position, node in enumerate(nodes):
            graph.node.insert(position, node)
        graph.initializer.extend(onnx.numpy_helper.from_array(one, key) for key, one in tensors.items())


def behind(
    operator: str, name: str, result: str, array: NDArray[np.float32]
) -> tuple[list[onnx.NodeProto], dict[str, NDArray[Any]]]:
    make = onnx.helper.make_node
    match operator:
        case "Constant":
            return [make("Constant", [], [result], value=onnx.numpy_helper.from_array(array))], {}
        case "Transpose":
            swapped = np.ascontiguousarray(array.transpose(1, 0, 2, 3))
            return [make("Transpose", [name], [result], perm=[1, 0, 2, 3])], {name: swapped}
        case "Cast":
            return [make("Cast", [name], [result], to=1)], {name: array.astype(np.float64)}
        case "Reshape":
            stored = {name: array.reshape(-1), f"{name}_shape": np.array(array.shape)}
            return [make("Reshape", [*stored], [result])], stored
        case "DequantizeLinear":
            scale = np.float32(np.abs(array).max() / 127)
            stored = {name: np.rint(array / scale).astype(np.int8), f"{name}_scale": np.asarray(scale)}
            return [make("DequantizeLinear", [*stored], [result])], stored
        case _:
            return [make(operator, [name], [result])], {name: array}
