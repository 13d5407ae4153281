"""No file is read but those in the model's folder, wherever a tensor stands and whatever way the model comes."""

import base64
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

import redpebble
from redpebble.driver.model_digest import model_digest
from redpebble.export.save_model import save_model
from redpebble.export.sparse_networks.node_content import network_model
from redpebble.frontend.errors import InvalidModelError
from redpebble.frontend.import_model import Source, import_model
from redpebble.frontend.reading.model_source import read_model
from tests.frontend.import_oracle import model, normal

SECRET: Final = np.frombuffer(b"-----BEGIN PRIVATE KEY-----" + bytes(37), np.float32)

LOCATIONS: Final[dict[str, Callable[[Path], str]]] = {
    "absolute": lambda folder: str(folder.parent / "secret"),
    "above": lambda _: "../secret",
    "link": lambda _: "link",
    "inside": lambda _: "inside",
}

SOURCES: Final[dict[str, Callable[[onnx.ModelProto, Path], Source]]] = {
    "path": lambda proto, folder: written(proto, folder),
    "bytes": lambda proto, _: proto.SerializeToString(),
    "ModelProto": lambda proto, _: proto,
    "onnx_ir.Model": lambda proto, _: onnx_ir.from_proto(proto),
    "onnx_ir.Model of a path": lambda proto, folder: onnx_ir.load(written(proto, folder)),  # pyright: ignore[reportUnknownMemberType]
}


def written(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder, which is also the current one, with a secret beside it and a link to that inside."""
    place = tmp_path / "model"
    place.mkdir()
    (tmp_path / "secret").write_bytes(SECRET.tobytes())
    (place / "inside").write_bytes(SECRET.tobytes())
    (place / "link").symlink_to(tmp_path / "secret")
    monkeypatch.chdir(place)
    return place


def stored(location: str, name: str = "") -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4, 4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def with_function(body: list[onnx.NodeProto], defaults: list[onnx.AttributeProto] | None = None) -> onnx.ModelProto:
    """A model whose one node calls a function that multiplies by what `body` makes of nothing."""
    proto = model("(float[n,4] x) => (float[n,4] y)", "y = Identity(x)")
    proto.graph.node[0].CopyFrom(helper.make_node("f", ["x"], ["y"], domain="own"))
    opsets = [helper.make_opsetid("", 21)]
    nodes = [*body, helper.make_node("MatMul", ["a", "c"], ["b"])]
    proto.functions.append(helper.make_function("own", "f", ["a"], ["b"], nodes, opsets, [], defaults))
    proto.opset_import.append(helper.make_opsetid("own", 1))
    return proto


def in_constant(tensor: TensorProto) -> onnx.ModelProto:
    return with_function([helper.make_node("Constant", [], ["c"], value=tensor)])


def in_subgraph(tensor: TensorProto) -> onnx.ModelProto:
    constant = helper.make_node("Constant", [], ["v"], value=tensor)
    branch = helper.make_graph([constant], "branch", [], [helper.make_tensor_value_info("v", 1, [4, 4])])
    always = helper.make_node("Constant", [], ["always"], value=numpy_helper.from_array(np.array(True)))
    return with_function([always, helper.make_node("If", ["always"], ["c"], then_branch=branch, else_branch=branch)])


def in_initializer_of_subgraph(tensor: TensorProto) -> onnx.ModelProto:
    tensor.name = "v"
    output = helper.make_tensor_value_info("v", 1, [4, 4])
    branch = helper.make_graph([], "branch", [], [output], [tensor])
    always = helper.make_node("Constant", [], ["always"], value=numpy_helper.from_array(np.array(True)))
    return with_function([always, helper.make_node("If", ["always"], ["c"], then_branch=branch, else_branch=branch)])


def in_default(tensor: TensorProto) -> onnx.ModelProto:
    constant = helper.make_node("Constant", [], ["c"])
    constant.attribute.add(name="value", ref_attr_name="weight", type=onnx.AttributeProto.TENSOR)
    return with_function([constant], [helper.make_attribute("weight", tensor)])


def in_sparse(tensor: TensorProto) -> onnx.ModelProto:
    flat = TensorProto()
    flat.CopyFrom(tensor)
    flat.dims[:] = [16]
    sparse = helper.make_sparse_tensor(flat, numpy_helper.from_array(np.arange(16)), [4, 4])
    return with_function([helper.make_node("Constant", [], ["c"], sparse_value=sparse)])


PLACES: Final = {
    "constant": in_constant,
    "subgraph": in_subgraph,
    "initializer of a subgraph": in_initializer_of_subgraph,
    "default": in_default,
    "sparse constant": in_sparse,
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("location", ["absolute", "above", "link"])
@pytest.mark.parametrize("place", PLACES)
def test_a_function_reads_no_file_outside_of_the_models_folder(
    place: str, location: str, source: str, folder: Path
) -> None:
    proto = PLACES[place](stored(LOCATIONS[location](folder)))
    if place == "sparse constant" and source.startswith("onnx_ir"):
        return  # onnx-ir holds none
    given = SOURCES[source](proto, folder)
    reason = "leaves the model's folder" if source == "path" else "the model has no folder"
    for use in (redpebble.compile, redpebble.optimize):
        with pytest.raises(InvalidModelError, match=f"{reason}$"):
            use(given)


@pytest.mark.parametrize("place", PLACES)
def test_a_function_reads_files_in_the_models_folder(
    place: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As onnxruntime does; the optimized model needs the file no more."""
    monkeypatch.chdir(tmp_path)
    weights = normal(4, 4)
    (folder / "inside").write_bytes(weights.tobytes())
    path = written(PLACES[place](stored("inside")), folder)
    if "subgraph" not in place:
        (ours,) = redpebble.compile(path).run(None, {"x": np.eye(4, dtype=np.float32)})
        np.testing.assert_array_equal(ours, weights)
    save_model(redpebble.optimize(path).model, tmp_path / "out.onnx")
    (folder / "inside").unlink()
    if place != "initializer of a subgraph":  # which onnxruntime cannot inline
        (theirs,) = InferenceSession(tmp_path / "out.onnx").run(None, {"x": np.eye(4, dtype=np.float32)})
        np.testing.assert_array_equal(theirs, weights)


def in_attribute(tensor: TensorProto) -> onnx.ModelProto:
    """A list of tensors as an attribute of a node that stays as it is."""
    proto = model("(float[n,4] x) => (float[n,4] y)", "y = own.f(x)")
    proto.graph.node[0].attribute.append(helper.make_attribute("tensors", [tensor]))
    proto.opset_import.append(helper.make_opsetid("own", 1))
    return proto


def in_call(tensor: TensorProto) -> onnx.ModelProto:
    """A tensor that is handed to a function."""
    proto = in_default(numpy_helper.from_array(normal(4, 4)))
    proto.graph.node[0].attribute.append(helper.make_attribute("weight", tensor))
    return proto


def sparse_of_rank_three(tensor: TensorProto) -> onnx.ModelProto:
    proto = model("(float[n,4,4] x) => (float[n,4,4] y)", "y = Mul(x, w)")
    tensor.name, tensor.dims[:] = "w", [16]
    sparse = helper.make_sparse_tensor(tensor, numpy_helper.from_array(np.arange(16)), [1, 4, 4])
    proto.graph.sparse_initializer.append(sparse)
    return proto


def sparse_of_integers(tensor: TensorProto) -> onnx.ModelProto:
    proto = model("(float[n,4] x) => (float[n,4] y)", "v = Cast<to = 1>(w) y = MatMul(x, v)")
    tensor.name, tensor.dims[:], tensor.data_type = "w", [16], TensorProto.INT32
    proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(tensor, numpy_helper.from_array(np.arange(16)), [4, 4])
    )
    return proto


MAIN: Final = {
    "attribute": in_attribute,
    "call": in_call,
    "sparse of rank 3": sparse_of_rank_three,
    "sparse of integers": sparse_of_integers,
}


@pytest.mark.parametrize("location", ["absolute", "above", "link"])
@pytest.mark.parametrize("place", MAIN)
def test_files_of_any_tensor_lie_in_the_models_folder(place: str, location: str, folder: Path) -> None:
    proto = MAIN[place](stored(LOCATIONS[location](folder)))
    for given, reason in ((written(proto, folder), "leaves the model's folder"), (proto, "the model has no folder")):
        with pytest.raises(InvalidModelError, match=f"{reason}$"):
            redpebble.optimize(given)


@pytest.mark.parametrize("place", MAIN)
def test_files_of_any_tensor_are_looked_for_in_the_models_folder(
    place: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "inside").write_bytes(np.full(16, 7, np.float32).tobytes())
    path = written(MAIN[place](stored("inside")), folder)
    (folder / "inside").write_bytes(np.ones(16, np.float32).tobytes())
    texts: set[str] = set()
    for current in (folder, other):
        monkeypatch.chdir(current)
        texts.add(str(import_model(path, foreign="keep").module))
    assert len(texts) == 1
    if place != "attribute":
        assert "7.0" not in texts.pop()


@pytest.mark.parametrize("place", PLACES | MAIN)
def test_the_digest_of_a_model_covers_the_files_of_all_tensors(place: str, folder: Path) -> None:
    path = written((PLACES | MAIN)[place](stored("inside")), folder)
    before = model_digest(path)
    (folder / "inside").write_bytes(bytes(64))
    assert None not in (before, model_digest(path))
    assert before != model_digest(path)


def test_a_file_with_a_character_that_no_name_has_is_refused(folder: Path) -> None:
    proto = model("(float[n,4] x) => (float[n,4] y)", "y = MatMul(x, w)")
    proto.graph.initializer.append(stored("in\0side", "w"))
    with pytest.raises(InvalidModelError, match=r"^tensor w: file 'in\\x00side' has a character that no name has$"):
        read_model(written(proto, folder))


def test_a_model_of_unknown_versions_keeps_to_its_folder(folder: Path) -> None:
    proto = model("(float[n,4] x) => (float[n,4] y)", "y = MatMul(x, w)", opset=6)
    proto.graph.initializer.append(stored("../secret", "w"))
    with pytest.raises(InvalidModelError, match=r"leaves the model's folder$"):
        redpebble.optimize(written(proto, folder), target="ort")


def attached(content: bytes) -> dict[str, str | int]:
    """The attributes of a node of ours whose network is the model."""
    return {"network": base64.b64encode(zlib.compress(content, 1)).decode(), "activations": 1}


def test_the_network_of_a_node_names_no_file(folder: Path) -> None:
    """A node in an optimized file holds a model, whose function names a file."""
    proto = model("(float[n,4] x) => (float[n,4] y)", "y = MatMul(x, w)")
    proto.graph.initializer.append(stored("inside", "w"))
    for hostile in (proto, in_constant(stored("inside"))):
        with pytest.raises(InvalidModelError, match=r"the model has no folder$"):
            read_model(network_model("SparseNetwork_0", attached(hostile.SerializeToString()), []))


@pytest.mark.slow
def test_the_network_of_a_node_is_no_bomb() -> None:
    proto = model("(float[n,4] x) => (float[n,4] y)", "y = Relu(x)").SerializeToString()
    doc_string = b"\x32\x80\x80\x80\x80\x01" + bytes(1 << 28)
    with pytest.raises(ValueError, match=r"^SparseNetwork_0: the network is damaged$"):
        network_model("SparseNetwork_0", attached(proto + doc_string), [])


def test_what_is_no_file_that_ends_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe"):
        for use in (redpebble.compile, redpebble.optimize):
            with pytest.raises(InvalidModelError, match=f"'{path}' cannot be read: it is no regular file$"):
                use(path)


def test_a_file_larger_than_any_message_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.touch()
    os.truncate(path, 2**31)
    with pytest.raises(InvalidModelError, match=r"expected at most 2147483647 bytes in one file, got 2147483648 in "):
        read_model(path)


def test_a_path_that_no_file_has_is_refused() -> None:
    with pytest.raises(InvalidModelError, match=r"^'a\\x00b' cannot be read: embedded null byte$"):
        redpebble.compile("a\0b")


def test_a_model_in_the_cache_of_hugging_face_is_read(tmp_path: Path) -> None:
    blobs, snapshot, weights = tmp_path / "blobs", tmp_path / "snapshots" / "main", normal(4, 4)
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (tmp_path / "secret").write_bytes(SECRET.tobytes())
    links = {"m.onnx": "blobs/1", "weights": "blobs/2", "outside": "secret"}
    for name, target in links.items():
        (snapshot / name).symlink_to(Path("../..") / target)
    for location, reads in (("weights", True), ("outside", False), ("../../blobs/2", False)):
        (blobs / "1").write_bytes(in_constant(stored(location)).SerializeToString())
        (blobs / "2").write_bytes(weights.tobytes())
        if reads:
            (found,) = redpebble.compile(snapshot / "m.onnx").run(None, {"x": np.eye(4, dtype=np.float32)})
            np.testing.assert_array_equal(found, weights)
            assert redpebble.session(snapshot / "m.onnx").get_inputs()[0].name == "x"
            continue
        with pytest.raises(InvalidModelError, match=r"leaves the model's folder$"):
            redpebble.compile(snapshot / "m.onnx")
