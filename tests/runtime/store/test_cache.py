"""Networks in the cache: whose files are used, and what becomes of a network whose file changes."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from redpebble.lowering.driver import lower
from redpebble.runtime.jit import emit_object, host_target
from redpebble.runtime.network import Network
from redpebble.runtime.store.artefact import Artefact
from redpebble.runtime.store.cache import load, store
from redpebble.runtime.store.checked_file import kept
from tests.support.lowering_modules import linear_layer

WEIGHT = np.linspace(-1, 1, 63 * 70, dtype=np.float32).reshape(63, 70)
X = np.ones((9, 63), dtype=np.float32)


def an_artefact() -> Artefact:
    program = lower(linear_layer(WEIGHT, None, "sparse_rows"), host_target())
    return Artefact(program, emit_object(program.llvm_ir, host_target()))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    store(tmp_path / "cache", "key", an_artefact())
    return tmp_path / "cache" / "key.pebble"


@pytest.mark.parametrize("damage", ["changed", "cut"])
def test_a_network_does_not_see_what_becomes_of_its_file(file: Path, damage: str) -> None:
    artefact = load(file.parent, "key")
    assert artefact is not None
    network = Network(artefact.program, artefact.image)
    with file.open("r+b") as writer:
        writer.write(b"\xff" * file.stat().st_size) if damage == "changed" else writer.truncate(0)
    np.testing.assert_allclose(network(X), X @ WEIGHT, rtol=1e-5, atol=1e-5)


def test_a_file_behind_a_link_is_not_used(file: Path) -> None:
    elsewhere = file.replace(file.parent.parent / "other.pebble")
    file.symlink_to(elsewhere)
    assert load(file.parent, "key") is None
    store(file.parent, "key", an_artefact())
    assert not file.is_symlink()
    assert load(file.parent, "key") is not None


def test_a_folder_that_others_may_write_to_is_not_used_which_is_said_once(file: Path) -> None:
    before = sorted(file.parent.iterdir())
    file.parent.chmod(0o777)
    with pytest.warns(UserWarning, match="the cache is not used: .*cache: expected only its owner to write to it"):
        assert load(file.parent, "key") is None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for _ in range(3):
            assert load(file.parent, "key") is None
    assert len(said) == 1
    store(file.parent, "other", an_artefact())
    assert sorted(file.parent.iterdir()) == before


def test_bytes_are_made_once_and_again_where_they_are_damaged_or_of_others(tmp_path: Path) -> None:
    path, made = tmp_path / "cache" / "bytes", list[bytes]()

    def make() -> bytes:
        made.append(b"code")
        return made[-1]

    for _ in range(2):
        assert kept(path, make) == b"code"
    assert len(made) == 1
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(path.read_bytes()[1:])
    assert kept(path, make) == b"code"
    assert len(made) == 2
    path.chmod(0o666)
    assert kept(path, make) == b"code"
    assert len(made) == 3
