"""A model's digest says whether native code made from it can be used again."""

import json
import os
import time
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from redpebble.driver.model_digest import model_digest
from redpebble.models.zoo import build, save
from redpebble.runtime.store.cache import SETTLED_SECONDS


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    save(build("ffnn(depth=1, width=8, density=0.5)"), path)
    return path


def settled(*paths: Path) -> None:
    """Wait until nothing has changed for as long as a digest needs to be remembered."""
    last = max(path.stat().st_ctime for path in paths)
    time.sleep(max(0.0, last + SETTLED_SECONDS + 0.1 - time.time()))


def test_a_settled_file_is_not_read_again_until_it_changes(model: Path, tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    settled(model)
    digest = model_digest(model, memory)
    assert digest == model_digest(model)
    [note] = memory.iterdir()
    content = json.loads(note.read_text())
    content["content"]["digest"] = "00" * 32
    note.write_text(json.dumps(content))
    assert model_digest(model, memory) == bytes(32)
    before, data = model.stat(), bytearray(model.read_bytes())
    data[-1] ^= 1
    model.write_bytes(data)
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert model.stat().st_size == before.st_size
    assert model_digest(model, memory) == model_digest(model) != digest


def test_a_file_that_was_just_written_is_read_each_time(model: Path, tmp_path: Path) -> None:
    model_digest(model, tmp_path / "memory")
    assert not (tmp_path / "memory").exists()


def test_external_data_belong_to_the_digest(tmp_path: Path) -> None:
    path, memory = tmp_path / "model.onnx", tmp_path / "memory"
    proto = ir.to_proto(build("ffnn(depth=1, width=64, density=0.5)"))
    onnx.save_model(proto, path, save_as_external_data=True, location="model.data")  # pyright: ignore[reportUnknownMemberType]
    data = tmp_path / "model.data"
    settled(path, data)
    digest = model_digest(path, memory)
    assert len(list(memory.iterdir())) == 1
    assert model_digest(path, memory) == digest
    weights = np.fromfile(data, dtype=np.uint8)
    weights[-1] ^= 1
    weights.tofile(data)
    changed = model_digest(path, memory)
    assert changed == model_digest(path) != digest


def test_a_file_that_is_missing_has_no_digest_to_go_by(tmp_path: Path) -> None:
    assert model_digest(tmp_path / "missing.onnx", tmp_path / "memory") is None
