"""Models with sparse networks in use: sessions, both libraries, the command line, and what is refused."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.export.save_model import save_model
from redpebble.export.sparse_networks.node_content import network_model
from redpebble.foundation.threads import usable_threads
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.models.zoo import build
from redpebble.ort.model_looks import holds_networks
from redpebble.ort.network_code import checked_identity
from redpebble.ort.session import threads_of, write_library
from redpebble.runtime.jit import assumed_cpu, host_target
from redpebble.verification.oracle import Oracle
from tests.support.command_line import exit_code
from tests.support.quantized_models import pruned_network, quantized
from tests.support.sparse_network_models import attributes_of, constants_of, network_nodes

SPEC = "ffnn(depth=2, width=200, density=0.1)"

RUN_THE_LIBRARY = """
import sys
import numpy, onnxruntime
model, library, x, y = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(library)
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
numpy.save(y, session.run(None, {"x": numpy.load(x)})[0])
assert "redpebble" not in sys.modules
"""


@pytest.fixture(scope="module")
def original() -> ir.Model:
    return build(SPEC)


@pytest.fixture(scope="module")
def optimized(original: ir.Model) -> ir.Model:
    result = redpebble.optimize(original, target="ort")
    assert [network.layers for network in result.networks] == [2]
    return result.model


@pytest.fixture(scope="module")
def node(optimized: ir.Model) -> tuple[onnx.NodeProto, list[NDArray[Any]]]:
    proto = ir.to_proto(optimized)
    (found,) = network_nodes(proto)
    return found, constants_of(proto, found)


def x_of(batch: int = 7) -> NDArray[np.float32]:
    return np.random.default_rng(batch).standard_normal((batch, 200)).astype(np.float32)


def assert_agrees(session: onnxruntime.InferenceSession, original: ir.Model) -> None:
    for batch in (0, 1, 7, 17):
        (expected,), (found,) = (run(None, {"x": x_of(batch)}) for run in (Oracle(original).session.run, session.run))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def assert_native(folder: Path) -> None:
    """The session runs our kernel, not the function: it is the only node left."""
    loaded = onnx.ModelProto.FromString((folder / "loaded.onnx").read_bytes())
    assert [node.op_type for node in loaded.graph.node] == ["SparseNetwork_0"]


def keeping_what_was_loaded(folder: Path) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "loaded.onnx")
    options.log_severity_level = 3
    return options


def test_a_session_of_an_optimized_file_runs_our_kernels(
    original: ir.Model, optimized: ir.Model, tmp_path: Path
) -> None:
    save_model(optimized, tmp_path / "m.onnx")
    options = keeping_what_was_loaded(tmp_path)
    session = redpebble.session(tmp_path / "m.onnx", options)
    assert_native(tmp_path)
    assert_agrees(session, original)
    (tmp_path / "loaded.onnx").unlink()
    again = redpebble.session(tmp_path / "m.onnx", options)
    assert_native(tmp_path)
    assert_agrees(again, original)


@pytest.mark.parametrize("kind", ["path", "bytes", "proto", "model"])
def test_a_session_of_any_other_model_optimizes_it_first(original: ir.Model, kind: str, tmp_path: Path) -> None:
    proto = ir.to_proto(original)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    sources = {"path": tmp_path / "m.onnx", "bytes": proto.SerializeToString(), "proto": proto, "model": original}
    session = redpebble.session(sources[kind], keeping_what_was_loaded(tmp_path))
    assert_native(tmp_path)
    assert_agrees(session, original)


@pytest.mark.parametrize("ir_version", [3, 6])
def test_a_session_of_a_model_of_an_older_ir_version_runs_our_kernels(
    original: ir.Model, ir_version: int, tmp_path: Path
) -> None:
    proto = ir.to_proto(original)
    proto.ir_version = ir_version
    if ir_version == 3:
        for tensor in proto.graph.initializer:
            proto.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    session = redpebble.session(proto, keeping_what_was_loaded(tmp_path))
    assert [value.name for value in session.get_inputs()] == ["x"]
    assert_native(tmp_path)
    assert_agrees(session, original)


def test_our_library_can_be_registered_by_hand(original: ir.Model, optimized: ir.Model, tmp_path: Path) -> None:
    save_model(optimized, tmp_path / "m.onnx")
    options = keeping_what_was_loaded(tmp_path)
    options.register_custom_ops_library(redpebble.get_library_path())
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", options, providers=["CPUExecutionProvider"])
    assert_native(tmp_path)
    assert_agrees(session, original)


def test_a_session_from_the_cache_loads_no_compiler(original: ir.Model, tmp_path: Path) -> None:
    save_model(original, tmp_path / "m.onnx")
    assert_agrees(redpebble.session(tmp_path / "m.onnx"), original)
    program = "import sys, redpebble; redpebble.session(sys.argv[1]); print(*sys.modules)"
    command = [sys.executable, "-c", program, str(tmp_path / "m.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not {"numba", "onnx", "onnx_ir", "scipy", "sympy", "xdsl"} & {*done.stdout.split()}


def test_a_session_is_made_for_rows_and_kept_for_these(
    original: ir.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path / "cache"))
    save_model(original, tmp_path / "m.onnx")
    for rows in (0, 8, 8):
        assert_agrees(redpebble.session(tmp_path / "m.onnx", rows=rows), original)
    assert len([*(tmp_path / "cache").rglob("*.onnx")]) == 2
    with pytest.raises(ValueError, match=r"^rows: expected 0 or more, got -1$"):
        redpebble.session(tmp_path / "m.onnx", rows=-1)


@pytest.mark.parametrize("form", ["path", "bytes", "proto", "model"])
def test_a_model_says_whether_it_has_networks(
    original: ir.Model, optimized: ir.Model, form: str, tmp_path: Path
) -> None:
    for model, expected in ((original, False), (optimized, True)):
        proto = ir.to_proto(model)
        (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
        forms = {"path": tmp_path / "m.onnx", "bytes": proto.SerializeToString(), "proto": proto, "model": model}
        assert holds_networks(forms[form]) is expected
    assert not holds_networks(tmp_path / "absent.onnx")


@pytest.mark.slow
def test_a_library_beside_the_model_runs_it_without_us(original: ir.Model, optimized: ir.Model, tmp_path: Path) -> None:
    model, library, x, y = (tmp_path / name for name in ("m.onnx", "m.so", "x.npy", "y.npy"))
    save_model(optimized, model)
    write_library(optimized, library)
    np.save(x, x_of(17))
    command = [sys.executable, "-c", RUN_THE_LIBRARY, *map(str, (model, library, x, y))]
    subprocess.run(command, check=True, capture_output=True)
    (expected,) = Oracle(original).run({"x": x_of(17)})
    np.testing.assert_allclose(np.load(y), expected, rtol=1e-4, atol=1e-5)


def test_a_model_without_networks_has_no_library(original: ir.Model, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected one sparse network or more, got none"):
        write_library(original, tmp_path / "m.so")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"format": 2}, "SparseNetwork_0: expected a network of format 1, got 2"),
        ({"network": "AAAA"}, "SparseNetwork_0: network and constants do not have the digest that the node states"),
        ({"digest": "0" * 64}, "SparseNetwork_0: network and constants do not have the digest that the node states"),
    ],
)
def test_a_node_that_was_changed_is_refused(
    node: tuple[onnx.NodeProto, list[NDArray[Any]]], changes: dict[str, str | int], message: str
) -> None:
    proto, constants = node
    with pytest.raises(ValueError, match=f"^{message}$"):
        checked_identity(proto.op_type, attributes_of(proto) | changes, constants)


def test_other_constants_are_refused(node: tuple[onnx.NodeProto, list[NDArray[Any]]]) -> None:
    proto, constants = node
    attributes = attributes_of(proto)
    with pytest.raises(ValueError, match="digest that the node states"):
        checked_identity(proto.op_type, attributes, [constants[0] * 2, *constants[1:]])
    with pytest.raises(
        ValueError, match="SparseNetwork_0: expected an initializer for constant 1, got a computed value"
    ):
        checked_identity(proto.op_type, attributes, [constants[0], None, *constants[2:]])
    with pytest.raises(ValueError, match="SparseNetwork_0: 2 constants, the network has 6"):
        network_model(proto.op_type, attributes, constants[:2])


@pytest.mark.parametrize("network", ["", "no base64!", "AAAA"])
def test_a_damaged_network_is_refused(node: tuple[onnx.NodeProto, list[NDArray[Any]]], network: str) -> None:
    proto, constants = node
    with pytest.raises(ValueError, match="SparseNetwork_0: the network is damaged"):
        network_model(proto.op_type, attributes_of(proto) | {"network": network}, constants)


def test_onnxruntime_refuses_a_file_with_changed_weights(optimized: ir.Model, tmp_path: Path) -> None:
    proto = ir.to_proto(optimized)
    for entry in proto.graph.initializer:
        if entry.name.endswith(".values"):
            entry.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(entry) * 2, entry.name))
    with pytest.raises(Exception, match="network and constants do not have the digest that the node states"):
        redpebble.session(proto)


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def done(*words: object) -> Done:
        code = exit_code(monkeypatch, *words)
        shown = capsys.readouterr()
        return Done(code, shown.out, shown.err)

    return done


def test_optimize_writes_networks_library_and_report_and_check_runs_both_ways(
    command: Callable[..., Done], original: ir.Model, tmp_path: Path
) -> None:
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    save_model(original, source)
    done = command(
        "optimize", source, target, "--library", "--verbose", "--check", 1, "--report", tmp_path / "report.json"
    )
    assert done.returncode == 0, done.stderr
    assert "2 of 2 weights sparse" in done.stdout
    assert "y, session" in done.stdout
    size = len((tmp_path / "out.so").read_bytes())
    assert f"out.so: {size / 1e6:.1f} MB, code for generic, avx2, avx512\n" in done.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["library"] == {"file": "out.so", "bytes": size, "levels": ["generic", "avx2", "avx512"]}
    assert [network["layers"] for network in report["networks"]] == [2]
    assert report["after"]["bytes on disk"] < 0.2 * report["before"]["bytes on disk"]
    assert [one["name"] for one in report["outputs"]] == ["y", "y, session"]
    compared = command("check", source, "--against", target, "--batch", "1,7", "--runs", 1)
    assert compared.returncode == 0, compared.stderr
    assert "y, session" in compared.stdout


def test_the_target_portable_writes_standard_operators_alone(
    command: Callable[..., Done], original: ir.Model, tmp_path: Path
) -> None:
    save_model(original, tmp_path / "in.onnx")
    done = command("optimize", tmp_path / "in.onnx", tmp_path / "out.onnx", "--target", "portable")
    assert done.returncode == 0, done.stderr
    assert not holds_networks(tmp_path / "out.onnx")


def test_a_library_for_no_network_is_refused_and_nothing_is_written(
    command: Callable[..., Done], tmp_path: Path
) -> None:
    save_model(build("ffnn(depth=2, width=40, density=1.0)"), tmp_path / "in.onnx")
    done = command("optimize", tmp_path / "in.onnx", tmp_path / "out.onnx", "--library")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: no library for {tmp_path / 'out.onnx'}: all layers are dense, "
        "with 0 % zeros at most; redpebble prune makes more\n"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["in.onnx"]


OLD = """
<ir_version: 3, opset_import: ["" : 6]>
old (float[n, 4] x, float[4, 4] w) => (float[n, 4] y) { y = MatMul (x, w) }
"""


def test_a_model_too_old_to_be_read_is_left_as_it_is(command: Callable[..., Done], tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(OLD)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    (tmp_path / "in.onnx").write_bytes(proto.SerializeToString())
    x = np.ones((3, 4), np.float32)
    for source in (tmp_path / "in.onnx", proto, proto.SerializeToString(), ir.from_proto(proto)):
        result = redpebble.optimize(source, target="ort")
        assert not result.modified
        assert result.obstacle == "expected opset 7 to 28, got 6"
        np.testing.assert_array_equal(redpebble.session(source).run(None, {"x": x})[0], x)
        with pytest.raises(redpebble.UnsupportedModelError, match=r"^expected opset 7 to 28, got 6$"):
            redpebble.optimize(source, target="portable")
    done = command("optimize", tmp_path / "in.onnx", tmp_path / "out.onnx", "--check", 1)
    assert done.returncode == 0, done.stderr
    assert "expected opset 7 to 28, got 6" in done.stdout
    written = onnx.ModelProto.FromString((tmp_path / "out.onnx").read_bytes())
    assert (written.ir_version, [entry.version for entry in written.opset_import]) == (3, [6])
    assert [(node.op_type, [*node.input]) for node in written.graph.node] == [("MatMul", ["x", "w"])]
    assert [value.name for value in written.graph.input] == ["x", "w"]


def test_a_session_of_one_thread_has_code_for_one() -> None:
    """Nothing is cut for threads that it will not have; threads of all sessions together are another matter."""
    options = onnxruntime.SessionOptions()
    assert threads_of(options) == usable_threads()
    options.intra_op_num_threads = 1
    assert threads_of(options) == 1
    options.use_per_session_threads = False
    assert threads_of(options) == usable_threads()


@pytest.mark.skipif("vnni" not in host_target().features.replace("-avx512vnni", ""), reason="others saturate sums")
def test_a_layer_left_among_layers_of_bytes_computes_with_the_floats_it_gets(tmp_path: Path) -> None:
    floats = pruned_network([4, 33, 260, 33], 0.3, "Identity")
    model = quantized(floats, tmp_path, "qdq", "QUInt8", "QInt8")
    x = np.random.default_rng(0).standard_normal((64, 4), np.float32)
    # a CPU whose kernels of bytes were not measured has to gain on each that was
    with assumed_cpu(CpuTarget.avx512vnni() if host_target().has_avx512 else CpuTarget.avxvnni()):
        nodes = [node.op_type for node in redpebble.optimize(model).model.graph]
        assert "Gemm" in nodes
        assert nodes.count("SparseNetwork_0") == 1
        (right,), (found,) = Oracle(ir.from_proto(model)).run({"x": x}), redpebble.session(model).run(None, {"x": x})
    np.testing.assert_array_equal(found, right)


def test_a_session_needs_no_temporary_folder(
    original: ir.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    save_model(original, tmp_path / "m.onnx")
    for source in (original, tmp_path / "m.onnx"):
        assert_agrees(redpebble.session(source), original)
    assert redpebble.optimize(original).proto.graph.node
