from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import StringAttr

from redpebble.dialect.provenance import ORDER, SEARCH
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.runtime.jit import emit_object, host_target
from redpebble.runtime.network import Network
from redpebble.runtime.store.artefact import Artefact, ArtefactError, read_artefact, write_artefact
from tests.support.lowering_modules import linear_layer


def an_artefact(target: CpuTarget) -> Artefact:
    weight = np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7)
    module = linear_layer(weight, None, "sparse_rows")
    module.attributes |= {ORDER: StringAttr("identity"), SEARCH: StringAttr("2 -> 1 us a row in 9 proposals")}
    program = lower(module, target)
    return Artefact(program, emit_object(program.llvm_ir, target))


def test_what_is_written_is_read_again_and_runs(tmp_path: Path) -> None:
    artefact = an_artefact(host_target())
    write_artefact(tmp_path / "a.pebble", artefact)
    loaded = read_artefact(tmp_path / "a.pebble")
    x = np.ones((3, 5), dtype=np.float32)
    before, after = (Network(one.program, one.image).run(None, {"x0": x}) for one in (artefact, loaded))
    np.testing.assert_array_equal(before[0], after[0])
    assert loaded.program.report == artefact.program.report
    assert loaded.program.report.schedule_search == "2 -> 1 us a row in 9 proposals"
    assert [path.name for path in tmp_path.iterdir()] == ["a.pebble"]


def test_packed_weights_are_aligned_views(tmp_path: Path) -> None:
    write_artefact(tmp_path / "a.pebble", an_artefact(host_target()))
    for constant in read_artefact(tmp_path / "a.pebble").program.constants:
        assert constant.ctypes.data % 64 == 0
        assert not constant.flags.owndata


@pytest.mark.parametrize("position", [50, 300, -1])
def test_a_damaged_file_is_refused(tmp_path: Path, position: int) -> None:
    path = tmp_path / "a.pebble"
    write_artefact(path, an_artefact(host_target()))
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtefactError, match=r"a\.pebble is damaged: its checksum does not match"):
        read_artefact(path)


@pytest.mark.parametrize("content", [b"", b"pebble", b"x" * 200])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pebble").write_bytes(content)
    with pytest.raises(ArtefactError, match=r"a\.pebble is no compiled network"):
        read_artefact(tmp_path / "a.pebble")


def test_code_for_another_cpu_is_refused(tmp_path: Path) -> None:
    artefact = an_artefact(CpuTarget.generic())
    foreign = CpuTarget("x86-64", "+sse2,+some-new-feature", 4)
    program = replace(artefact.program, target=foreign)
    write_artefact(tmp_path / "a.pebble", Artefact(program, artefact.image))
    with pytest.raises(ArtefactError, match=r"a\.pebble needs some-new-feature, which this machine lacks"):
        read_artefact(tmp_path / "a.pebble")
