from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from redpebble.dialect.ops.constants import ConstantOp
from redpebble.dialect.tensors import dense_floats
from redpebble.export.export_model import export_model
from redpebble.export.save_model import model_bytes, save_model
from redpebble.frontend.import_model import import_model
from tests.export.export_oracle import original_of

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,64] x) => (float[N,32] y) { h = MatMul(x, W) y = Add(h, B) }
"""
WEIGHTS = {
    "W": np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32),
    "B": np.arange(32, dtype=np.float32),
}
X = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)


def model() -> ir.Model:
    return original_of(TEXT, WEIGHTS)


def externally_saved(folder: Path) -> ir.Model:
    save_model(model(), folder / "in.onnx", external_data=True)
    return import_model(folder / "in.onnx", foreign="keep").model


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def assert_computes_the_same(path: Path) -> None:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": X})[0], X @ WEIGHTS["W"] + WEIGHTS["B"], rtol=1e-4, atol=1e-5)


def test_small_weights_stay_in_the_file(tmp_path: Path) -> None:
    save_model(model(), tmp_path / "m.onnx")
    assert names(tmp_path) == ["m.onnx"]
    assert_computes_the_same(tmp_path / "m.onnx")


def test_the_file_is_no_larger_than_what_onnx_writes(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(TEXT)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in WEIGHTS.items())
    save_model(ir.from_proto(proto), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").stat().st_size <= proto.ByteSize()


def test_external_weights_lie_in_a_file_named_after_the_model(tmp_path: Path) -> None:
    save_model(model(), tmp_path / "m.onnx", external_data=True)
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    assert (tmp_path / "m.onnx").stat().st_size < 1000
    assert_computes_the_same(tmp_path / "m.onnx")


def test_a_model_that_had_external_weights_keeps_them_external(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    save_model(externally_saved(tmp_path), tmp_path / "there" / "out.onnx")
    assert names(tmp_path / "there") == ["out.onnx", "out.onnx.data"]
    assert_computes_the_same(tmp_path / "there" / "out.onnx")


def test_changed_weights_stay_external_where_they_were(tmp_path: Path) -> None:
    save_model(model(), tmp_path / "in.onnx", external_data=True)
    imported = import_model(tmp_path / "in.onnx", foreign="keep")
    for op in imported.module.walk():
        if isinstance(op, ConstantOp):
            op.value = dense_floats(2 * op.array)
    save_model(export_model(imported.module, imported.model), tmp_path / "out.onnx")
    assert names(tmp_path) == ["in.onnx", "in.onnx.data", "out.onnx", "out.onnx.data"]
    assert (tmp_path / "out.onnx").stat().st_size < 1000


def test_the_data_file_is_as_readable_as_the_model(tmp_path: Path) -> None:
    save_model(model(), tmp_path / "m.onnx", external_data=True)
    assert (tmp_path / "m.onnx.data").stat().st_mode == (tmp_path / "m.onnx").stat().st_mode


def test_external_weights_can_be_taken_into_the_file(tmp_path: Path) -> None:
    save_model(externally_saved(tmp_path), tmp_path / "out.onnx", external_data=False)
    assert names(tmp_path) == ["in.onnx", "in.onnx.data", "out.onnx"]
    assert_computes_the_same(tmp_path / "out.onnx")


def test_a_model_can_be_written_over_the_files_it_was_read_from(tmp_path: Path) -> None:
    read = externally_saved(tmp_path)
    save_model(read, tmp_path / "in.onnx")
    assert names(tmp_path) == ["in.onnx", "in.onnx.data"]
    assert_computes_the_same(tmp_path / "in.onnx")


@pytest.mark.parametrize("external", [False, True])
def test_the_model_in_memory_stays_as_it_is(tmp_path: Path, external: bool) -> None:
    saved = model()
    before = ir.to_proto(saved)
    save_model(saved, tmp_path / "m.onnx", external_data=external)
    assert ir.to_proto(saved) == before


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    broken = model()
    broken.graph.initializers["W"].const_value = ir.ExternalTensor(
        "missing.data", 0, 64 * 32 * 4, ir.DataType.FLOAT, shape=ir.Shape([64, 32]), name="W", base_dir=tmp_path
    )
    (tmp_path / "m.onnx").write_text("precious")
    for external in (False, True):
        with pytest.raises(OSError, match=r"^cannot write .*m\.onnx: [^\n]+$"):
            save_model(broken, tmp_path / "m.onnx", external_data=external)
    assert names(tmp_path) == ["m.onnx"]
    assert (tmp_path / "m.onnx").read_text() == "precious"


def test_a_path_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"^cannot write .*missing/m\.onnx: No such file or directory$"):
        save_model(model(), tmp_path / "missing" / "m.onnx")
    with pytest.raises(OSError, match=r"^cannot write .*file/m\.onnx: Not a directory$"):
        save_model(model(), tmp_path / "file" / "m.onnx")
    with pytest.raises(OSError, match=r"^cannot write .*: it is a folder$"):
        save_model(model(), tmp_path)


def test_more_than_protobuf_holds_needs_external_data(tmp_path: Path) -> None:
    large = model()
    tensor = ir.Tensor(np.broadcast_to(np.zeros(1, dtype=np.float32), (2**15, 2**14 + 1)), name="W")
    large.graph.initializers["W"].const_value = tensor
    with pytest.raises(
        ValueError, match=r"m\.onnx: expected at most 2 GB of weights without external data, got 2147614848 bytes"
    ):
        save_model(large, tmp_path / "m.onnx", external_data=False)
    assert names(tmp_path) == []


def test_a_model_becomes_bytes_without_a_copy_and_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    one = model()
    before = {name: (value.type, value.shape) for name, value in one.graph.initializers.items()}
    monkeypatch.delattr(ir.Model, "clone")  # to copy it takes as long as to write it
    content = model_bytes(one)
    assert content is not None
    assert {name: (value.type, value.shape) for name, value in one.graph.initializers.items()} == before
    assert not {info.name for info in onnx.ModelProto.FromString(content).graph.value_info} & WEIGHTS.keys()


def test_a_model_is_loaded_while_somebody_reads_an_array_of_its_data_file(tmp_path: Path) -> None:
    read = externally_saved(tmp_path)
    arrays = [value.const_value.numpy() for value in read.graph.initializers.values() if value.const_value is not None]
    content = model_bytes(read)
    assert content is not None
    save_model(read, tmp_path / "whole.onnx", external_data=False)
    assert (tmp_path / "whole.onnx").stat().st_size > sum(one.nbytes for one in arrays) > 0
    assert len(content) > sum(one.nbytes for one in arrays)
