"""Code of nodes: kept under all that tells one node from another, and not needed where the host can do without."""

import base64
import hashlib
import logging
import zlib
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import redpebble
from redpebble.export.sparse_networks.node_content import written
from redpebble.export.sparse_networks.node_format import node_identity
from redpebble.ort.session import get_library_path, write_library
from redpebble.verification.oracle import Oracle
from tests.support.sparse_network_models import network_nodes, with_networks

WIDTH = 32

MODEL = f"""
<ir_version: 10, opset_import: ["" : 18]>
tokens (float[n, {WIDTH}] x) => (float[n, {WIDTH}] y) {{
    a = MatMul (x, weight)
    b = Relu (a)
    y = MatMul (b, other)
}}
"""


def covered() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model(MODEL)
    for name in ("weight", "other"):
        weight = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)
        weight[rng.random(weight.shape) < 0.9] = 0
        weight[8:13] = 0  # gaps of more than 127
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return proto


def optimized() -> onnx.ModelProto:
    return ir.to_proto(with_networks(covered()))


def uncovered() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A model with an operator that no code is made for, and what it would be with a network of that."""
    plain, proto = covered(), optimized()
    (node,) = network_nodes(proto)
    entries = {entry.name: entry for entry in node.attribute}
    network = onnx.ModelProto.FromString(zlib.decompress(base64.b64decode(entries["network"].s)))
    for nodes in (plain.graph.node, network.graph.node, proto.functions[0].node):
        (relu,) = (one for one in nodes if one.op_type == "Relu")
        relu.op_type = "Asinh"
    entries["network"].s = base64.b64encode(zlib.compress(network.SerializeToString()))
    digest = hashlib.sha256(entries["network"].s)
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    for name in node.input[entries["activations"].i :]:
        digest.update(constants[name].tobytes())
    entries["digest"].s = digest.hexdigest().encode()
    return plain, proto


def beside_each_other(first: onnx.ModelProto, second: onnx.ModelProto) -> ir.Model:
    """A model with the networks of two models, the second of which yields `z`."""
    both = onnx.ModelProto()
    both.CopyFrom(first)
    (node,) = network_nodes(second)
    constants = {tensor.name for tensor in second.graph.initializer}
    for tensor in second.graph.initializer:
        both.graph.initializer.add().CopyFrom(tensor)
        both.graph.initializer[-1].name += "_second"
    both.graph.node.add().CopyFrom(node)
    inputs = [f"{name}_second" if name in constants else name for name in node.input]
    del both.graph.node[-1].input[:]
    both.graph.node[-1].input.extend(inputs)
    both.graph.node[-1].output[0] = "z"
    both.graph.output.add().CopyFrom(second.graph.output[0])
    both.graph.output[-1].name = "z"
    both.functions.add().CopyFrom(second.functions[0])
    both.graph.node[-1].op_type = both.functions[-1].name = "SparseNetwork_1"
    return ir.from_proto(both)


def assert_agrees(session: onnxruntime.InferenceSession, plain: onnx.ModelProto) -> None:
    for batch in (0, 1, 7):
        x = np.random.default_rng(batch).standard_normal((batch, WIDTH)).astype(np.float32)
        (expected,), (y,) = Oracle(ir.from_proto(plain)).run({"x": x}), session.run(None, {"x": x})
        assert isinstance(y, np.ndarray)
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def in_library(proto: onnx.ModelProto, library: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(library)
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("way", ["session", "library"])
def test_a_network_without_native_code_runs_as_its_function_and_one_line_says_why(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    plain, proto = uncovered()
    with caplog.at_level(logging.WARNING, logger="redpebble"):
        session = redpebble.session(proto) if way == "session" else in_library(proto, get_library_path())
    assert_agrees(session, plain)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message.startswith("SparseNetwork_0 runs as its function, without native code: node ")
    assert "Asinh" in record.message


def test_a_library_that_would_have_no_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^SparseNetwork_0 runs as its function, without native code: .*Asinh"):
        write_library(ir.from_proto(uncovered()[1]), tmp_path / "m.so")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_library_leaves_out_what_has_no_native_code(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain, proto = uncovered()
    both = beside_each_other(proto, optimized())
    write_library(both, tmp_path / "m.so")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "SparseNetwork_0 runs as its function" in caplog.text
    session = in_library(ir.to_proto(both), str(tmp_path / "m.so"))
    x = np.random.default_rng(1).standard_normal((5, WIDTH)).astype(np.float32)
    y, z = session.run(None, {"x": x})
    np.testing.assert_allclose(y, Oracle(ir.from_proto(plain)).run({"x": x})[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(z, Oracle(ir.from_proto(covered())).run({"x": x})[0], rtol=1e-4, atol=1e-5)


def test_bytes_of_another_type_are_another_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plain, victim, other = covered(), optimized(), optimized()
    wide = [tensor for tensor in other.graph.initializer if tensor.data_type == onnx.TensorProto.UINT8]
    assert any(onnx.numpy_helper.to_array(tensor).max() > 127 for tensor in wide)
    for tensor in wide:
        tensor.data_type = onnx.TensorProto.INT8
    del other.graph.value_info[:]
    redpebble.session(other.SerializeToString())
    assert_agrees(redpebble.session(victim.SerializeToString()), plain)


@pytest.mark.parametrize("change", ["dtype", "shape", "activations", "operator"])
def test_nodes_with_the_same_bytes_have_identities_of_their_own(change: str) -> None:
    (node,) = [node for node in with_networks(covered()).graph if node.domain]
    op_type, attributes, constants = written(node)
    before, first = node_identity(op_type, attributes, constants), constants[0]
    assert first is not None
    others = {
        "dtype": (op_type, attributes, [first.view(np.int32), *constants[1:]]),
        "shape": (op_type, attributes, [first.reshape(1, -1), *constants[1:]]),
        "activations": (op_type, {**attributes, "activations": 2}, constants),
        "operator": ("SparseNetwork_1", attributes, constants),
    }
    assert node_identity(*others[change]) != before
