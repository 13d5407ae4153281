"""What is Linux's alone is guarded: the main flow runs where Python says that the system is another one."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from redpebble.lowering.architectures import ARCHITECTURES
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.ort.elf.linker import Code, Data, link
from redpebble.runtime.jit import emit_object

PROGRAM = Path(__file__).with_name("on_macos.py")


@pytest.mark.slow
def test_models_run_where_python_says_macos(tmp_path: Path) -> None:
    variables = os.environ | {"REDPEBBLE_CACHE": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path)], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.strip().startswith("libraries of redpebble load on Linux alone")
    assert "redpebble.session is as fast as onnxruntime here: libraries" in done.stderr


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_code_of_libraries_is_that_of_linux_on_every_system(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = CpuTarget.generic(name)
    assert target.on_linux.triple == ("" if platform.system() == "Linux" else ARCHITECTURES[name].triple)
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert target.on_linux.triple == ARCHITECTURES[name].triple
    image = emit_object('define void @"f"() {\nret void\n}', target.on_linux)
    assert link([Code(image), Data("nothing", bytes(8))], [], "libother.so")[:4] == b"\x7fELF"
