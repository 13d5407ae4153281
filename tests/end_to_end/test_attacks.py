"""A model that names a secret outside of its folder is refused on every way in, and the secret stays there."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import redpebble
from redpebble.driver.compiler import native_code
from redpebble.frontend.errors import InvalidModelError
from redpebble.ort.provider.context_nodes import attached, detached
from redpebble.ort.provider.register import register
from tests.frontend.import_oracle import model
from tests.support.command_line import MODEL_COMMANDS, exit_code

KEY = b"-----BEGIN PRIVATE KEY-----"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with a secret beside it."""
    (tmp_path / "secret").write_bytes(KEY + bytes(37))
    place = tmp_path / "model"
    place.mkdir()
    return place


def hostile(folder: Path, place: str) -> onnx.ModelProto:
    """A model that multiplies by the secret, as an initializer or as a constant of a function."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=str(folder.parent / "secret"))
    proto = model("(float[n,4] x) => (float[n,4] y)", "y = MatMul(x, w)", opset=17)
    if place == "initializer":
        proto.graph.initializer.append(tensor)
        return proto
    body = [helper.make_node("Constant", [], ["w"], value=tensor), helper.make_node("MatMul", ["a", "w"], ["b"])]
    proto.functions.append(helper.make_function("own", "f", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    proto.opset_import.append(helper.make_opsetid("own", 1))
    proto.graph.node[0].CopyFrom(helper.make_node("f", ["x"], ["y"], domain="own"))
    return proto


def by_provider(source: str | bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_provider_for_devices(register(), {})
    return onnxruntime.InferenceSession(source, options)


WAYS: dict[str, Callable[[str | bytes], object]] = {
    "compile": redpebble.compile,
    "optimize": redpebble.optimize,
    "portable": lambda source: redpebble.optimize(source, target="portable"),
    "session": redpebble.session,
    "provider": by_provider,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", ["initializer", "function"])
def test_a_secret_is_read_on_no_way_into_a_program(place: str, way: str, folder: Path) -> None:
    proto = hostile(folder, place)
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    for source in (str(folder / "m.onnx"), proto.SerializeToString()):
        # onnxruntime has a message of its own
        with pytest.raises(Exception, match=r"folder|external|path") as refusal:
            WAYS[way](source)
        assert KEY.decode() not in str(refusal.value)
        if way != "provider":
            assert isinstance(refusal.value, InvalidModelError)


@pytest.mark.parametrize("command", MODEL_COMMANDS)
def test_a_secret_is_read_by_no_command(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (folder / "m.onnx").write_bytes(hostile(folder, "function").SerializeToString())
    assert exit_code(monkeypatch, command, "m.onnx", *MODEL_COMMANDS[command]) == 2
    said = capfd.readouterr()
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert "leaves the model's folder" in said.err
    assert KEY.decode() not in said.out + said.err
    assert [path.name for path in folder.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("place", ["initializer", "function"])
def test_a_secret_is_read_by_no_network_that_is_attached_to_code(place: str, folder: Path) -> None:
    with pytest.raises(InvalidModelError, match=r"the model has no folder$"):
        native_code(detached("the context", attached(hostile(folder, place))), cache=False)


def test_files_in_the_folder_are_read_on_every_way(folder: Path) -> None:
    """So that what is refused above is refused for its place alone."""
    weight = np.arange(16, dtype=np.float32).reshape(4, 4)
    (folder / "secret").write_bytes(weight.tobytes())
    proto = hostile(folder / "model", "initializer")
    proto.graph.initializer[0].external_data[0].value = "secret"
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    x = np.eye(4, dtype=np.float32)
    for use in (redpebble.compile, redpebble.session, by_provider):
        (found,) = use(str(folder / "m.onnx")).run(None, {"x": x})
        np.testing.assert_array_equal(found, weight)
