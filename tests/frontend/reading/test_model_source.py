import os
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from redpebble.frontend.errors import InvalidModelError, ModelError, UnsupportedModelError
from redpebble.frontend.import_model import import_model
from redpebble.frontend.reading.model_source import read_model
from tests.frontend.import_oracle import model, normal, session


def mlp() -> onnx.ModelProto:
    weights = {"w": normal(64, 32), "b": normal(32)}
    return model("(float[n,64] x) => (float[n,32] y)", "[fc] h = MatMul(x, w) [plus] y = Add(h, b)", weights=weights)


def with_external_data(folder: Path) -> Path:
    path = folder / "m.onnx"
    proto = mlp()
    with (folder / "m.data").open("wb") as file:
        for tensor in proto.graph.initializer:
            tensor.data_location = TensorProto.EXTERNAL
            place = {"location": "m.data", "offset": file.tell(), "length": len(tensor.raw_data)}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            file.write(tensor.raw_data)
            tensor.ClearField("raw_data")
    path.write_bytes(proto.SerializeToString())
    return path


def test_every_kind_of_source_gives_the_same_model(tmp_path: Path) -> None:
    proto, path = mlp(), tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    sources = [path, str(path), path.read_bytes(), proto, onnx_ir.from_proto(proto)]
    texts = {onnx_ir.to_proto(read_model(source)).SerializeToString(deterministic=True) for source in sources}
    assert len(texts) == 1


def test_a_model_in_memory_is_not_changed() -> None:
    proto = model(
        "(float[n,4] x) => (float[n,4] y, int64[1] k)",
        "c = Constant<value = float {2.0}>() [first] h = Mul(x, c) masked = Mul(w, w) [last] y = MatMul(h, masked)",
        weights={"w": normal(4, 4), "k": np.array([7])},
    )
    held = onnx_ir.from_proto(proto)
    before, before_held = proto.SerializeToString(), onnx_ir.to_proto(held).SerializeToString()
    for source in (proto, held):
        import_model(source, foreign="keep")
        with pytest.raises(UnsupportedModelError):
            import_model(source, foreign="refuse")
    assert proto.SerializeToString() == before
    assert onnx_ir.to_proto(held).SerializeToString() == before_held


def test_the_long_name_of_the_standard_domain_means_the_same() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["ai.onnx" : 12]>
        g (float[n,2,4] x) => (float[n,2,4] y) { h = ai.onnx.Relu(x) y = Softmax(h) }""")
    assert read_model(proto).opset_imports == {"": 12}
    assert "to <[d0, 8]>" in str(import_model(proto, foreign="refuse").module)


def test_nodes_are_sorted() -> None:
    signature, nodes = "(float[n,4] x) => (float[n,4] y)", "[last] y = Tanh(h) [first] h = Relu(x)"
    assert [node.name for node in read_model(model(signature, nodes)).graph] == ["first", "last"]


def test_external_data_stays_in_its_file(tmp_path: Path) -> None:
    read = read_model(with_external_data(tmp_path))
    tensors = [value.const_value for value in read.graph.initializers.values()]
    assert all(isinstance(tensor, onnx_ir.ExternalTensor) for tensor in tensors)
    np.testing.assert_array_equal(tensors[0].numpy() if tensors[0] else None, normal(64, 32))


def test_a_model_in_memory_that_is_not_sorted_is_refused() -> None:
    held = onnx_ir.from_proto(model("(float[n] x) => (float[n] y)", "y = Tanh(h) h = Relu(x)"))
    with pytest.raises(InvalidModelError, match=r"^the model in memory reads a value that nothing defines before"):
        read_model(held)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from /proc")
def test_a_large_model_is_read_without_its_weights_in_memory(tmp_path: Path) -> None:
    size = 256 << 20
    proto = model("(float[n,8192] x) => (float[n,8192] y)", "y = MatMul(x, w)")
    tensor = proto.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[8192, 8192])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.data")
    with (tmp_path / "w.data").open("wb") as file:
        file.truncate(size)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    before = resident_bytes()
    read = read_model(tmp_path / "m.onnx")
    assert read.graph.initializers["w"].const_value is not None
    assert resident_bytes() - before < size // 8


def resident_bytes() -> int:
    text = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in text.splitlines() if line.startswith("VmRSS:")).split()[1])


def sparse(
    name: str, dense: np.ndarray[tuple[int, ...], np.dtype[np.float32]], *, flat: bool
) -> onnx.SparseTensorProto:
    places = np.argwhere(dense)
    indices = np.ravel_multi_index(tuple(places.T), dense.shape) if flat else places
    return helper.make_sparse_tensor(
        numpy_helper.from_array(dense[tuple(places.T)], name),
        numpy_helper.from_array(np.asarray(indices, dtype=np.int64), f"{name}_indices"),
        list(dense.shape),
    )


@pytest.mark.parametrize("flat", [True, False])
def test_sparse_initializers_become_dense_ones(flat: bool) -> None:
    proto = model("(float[n,4] x) => (float[n,3] y)", "y = MatMul(x, w)")
    weight = normal(4, 3) * (normal(4, 3, seed=1) > 0)
    proto.graph.sparse_initializer.append(sparse("w", weight, flat=flat))
    read = read_model(proto).graph.initializers["w"].const_value
    assert read is not None
    np.testing.assert_array_equal(read.numpy(), weight)
    assert len(proto.graph.sparse_initializer) == 1


def test_a_sparse_constant_is_read() -> None:
    weight = normal(4, 3) * (normal(4, 3, seed=1) > 0)
    proto = model("(float[n,4] x) => (float[n,3] y)", "y = MatMul(x, w)")
    node = helper.make_node("Constant", [], ["w"], sparse_value=sparse("w", weight, flat=True))
    proto.graph.node.insert(0, node)
    assert "pebble.linear" in str(import_model(proto, foreign="refuse").module)
    x = normal(2, 4)
    np.testing.assert_allclose(session(proto).run(None, {"x": x})[0], x @ weight, rtol=1e-5)


def broken_sparse(dims: list[int], indices: list[int]) -> onnx.ModelProto:
    proto = model("(float[n,4] x) => (float[n,3] y)", "y = MatMul(x, w)")
    tensor = proto.graph.sparse_initializer.add()
    tensor.dims.extend(dims)
    tensor.values.CopyFrom(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    tensor.indices.CopyFrom(numpy_helper.from_array(np.array(indices), "i"))
    return proto


def text(nodes: str, signature: str = "(float[n,4] x) => (float[n,4] y)") -> onnx.ModelProto:
    return model(signature, nodes, weights={"w": normal(4, 4)})


def versions(ir_version: int, opset: int) -> onnx.ModelProto:
    proto = text("y = Relu(x)")
    proto.ir_version = ir_version
    proto.opset_import[0].version = opset
    return proto


def with_tensor(tensor: onnx.TensorProto) -> onnx.ModelProto:
    proto = model("(float[n,4] x) => (float[n,4] y)", "y = MatMul(x, v)")
    proto.graph.initializer.append(tensor)
    return proto


def declared_otherwise(kind: int, shape: list[int]) -> onnx.ModelProto:
    proto = text("y = MatMul(x, w)")
    proto.graph.input.append(helper.make_tensor_value_info("w", kind, shape))
    return proto


MALFORMED: dict[str, tuple[onnx.ModelProto | bytes, str]] = {
    "empty": (b"", "expected an ONNX model, got one without a graph"),
    "noise": (b"\xff\xfe not a model", "the source is no ONNX model, or cut short"),
    "truncated": (mlp().SerializeToString()[:-9], "the source is no ONNX model, or cut short"),
    "cycle": (
        text("[a] h = Add(x, z) [b] z = Relu(h) [c] y = Relu(z)"),
        "the graph is cyclic: node 'a' reads node 'b'",
    ),
    "self": (text("h = Add(x, h) y = Relu(h)"), "the graph is cyclic: node 0 reads node 0"),
    "undefined": (text("[a] y = Add(x, nowhere)"), "node 'a' reads 'nowhere', which nothing defines"),
    "no output": (text("h = Relu(x)"), "output 'y' is defined by nothing"),
    "twice": (text("y = Relu(x) [b] y = Tanh(x)"), "node 'b' defines 'y', which is defined before"),
    "IR 0": (versions(0, 21), "expected IR version 3 to "),
    "IR 99": (versions(99, 21), "expected IR version 3 to "),
    "opset 6": (versions(10, 6), "expected opset 7 to "),
    "opset 99": (versions(10, 99), "expected opset 7 to "),
    "short weight": (
        with_tensor(TensorProto(name="v", data_type=1, dims=[4, 4], raw_data=bytes(12))),
        "tensor v: cannot reshape array of size 3 into shape (4,4)",
    ),
    "no type": (
        with_tensor(TensorProto(name="v", data_type=0, dims=[4, 4], raw_data=bytes(64))),
        "tensor v: no element type",
    ),
    "unknown type": (
        with_tensor(TensorProto(name="v", data_type=99, dims=[4, 4], raw_data=bytes(64))),
        "the model is malformed: 99 is not a valid DataType",
    ),
    "wrong type": (
        with_tensor(numpy_helper.from_array(np.ones((4, 4), np.int64), "v")),
        "operator MatMul: ",
    ),
    "weight does not fit": (
        with_tensor(numpy_helper.from_array(normal(5, 4), "v")),
        "operator MatMul: incompatible dimensions for matrix multiplication",
    ),
    "weight declared otherwise": (
        declared_otherwise(TensorProto.FLOAT, [5, 4]),
        "initializer w has shape [4,4], the graph says [5,4]",
    ),
    "type declared otherwise": (
        declared_otherwise(TensorProto.DOUBLE, [4, 4]),
        "initializer w is FLOAT, the graph says DOUBLE",
    ),
    "sparse index outside": (broken_sparse([4, 3], [0, 12]), "sparse tensor w: an index outside of shape [4, 3]"),
    "sparse counts differ": (broken_sparse([4, 3], [0, 1, 2]), "sparse tensor w: 2 values and 3 indices"),
    "reshape copies too much": (
        text("[r] s = Constant<value_ints=[0, 2, 2, 0]>() y = Reshape(x, s)"),
        "operator Reshape: invalid position of 0",
    ),
    "flatten beyond": (
        text("[f] y = Flatten<axis=4>(x)"),
        "node 'f': operator Flatten: invalid value(4) for attribute 'axis'",
    ),
    "functions in a circle": (
        onnx.parser.parse_model("""
            <ir_version: 10, opset_import: ["" : 21, "own" : 1]> g (float[n] x) => (float[n] y) { y = own.f(x) }
            <domain: "own", opset_import: ["" : 21, "own" : 1]> f (a) => (b) { b = own.f(a) }"""),
        "model-local functions call each other in a circle: ",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_model_gives_one_line(name: str) -> None:
    source, message = MALFORMED[name]
    with pytest.raises(ModelError) as refusal:
        import_model(source, foreign="refuse")
    assert message in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1
    kind = UnsupportedModelError if name in ("IR 99", "opset 6", "opset 99") else InvalidModelError
    assert type(refusal.value) is kind


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match=r"m.onnx' cannot be read: no such file or directory$"):
        read_model(tmp_path / "m.onnx")


@pytest.mark.parametrize("location", ["../outside.data", "link.data"])
def test_a_weight_outside_of_the_models_folder_is_refused(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = with_external_data(folder)
    (folder / "m.data").rename(tmp_path / "outside.data")
    (folder / "link.data").symlink_to(tmp_path / "outside.data")
    relocate(path, location)
    with pytest.raises(InvalidModelError, match=f"tensor w: file '{location}' leaves the model's folder$"):
        read_model(path)


def test_an_absolute_location_is_refused(tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    relocate(path, str(tmp_path / "m.data"))
    with pytest.raises(InvalidModelError, match=r"leaves the model's folder$"):
        read_model(path)


def relocate(path: Path, location: str) -> None:
    proto = onnx.ModelProto.FromString(path.read_bytes())
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    path.write_bytes(proto.SerializeToString())


def test_missing_external_data_is_refused(tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    (tmp_path / "m.data").unlink()
    with pytest.raises(InvalidModelError, match=r"^tensor w: file 'm.data' is missing$"):
        read_model(path)


def test_external_data_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    os.truncate(tmp_path / "m.data", 100)
    with pytest.raises(InvalidModelError, match=r"^tensor w: expected 8192 bytes in file 'm.data', got 100$"):
        read_model(path)


def test_external_data_of_another_length_is_refused(tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    proto = onnx.ModelProto.FromString(path.read_bytes())
    proto.graph.initializer[0].dims[0] = 63
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(InvalidModelError, match=r"^tensor w: 8192 bytes stored, its shape needs 8064$"):
        read_model(path)


def test_external_data_without_a_folder_is_refused(tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    with pytest.raises(InvalidModelError, match=r"^tensor w: values in file 'm.data', but the model has no folder$"):
        read_model(path.read_bytes())
