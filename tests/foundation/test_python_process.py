"""A process of Python beside this one."""

import subprocess
import sys
from pathlib import Path

import pytest

from redpebble.foundation.python_process import python_process

MODULE = "says_what_it_reads"


def test_it_imports_what_this_process_can_and_reads_what_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{MODULE}.py").write_text("def say():\n    import sys\n    print(sys.stdin.read().upper())\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    process = python_process(MODULE, "say", subprocess.PIPE)
    assert process is not None
    assert process.communicate(b"words", timeout=60) == (b"WORDS\n", None)


def test_there_is_none_of_a_frozen_program_and_without_an_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "frozen", True, raising=False)
        assert python_process("sys", "exit") is None
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert python_process("sys", "exit") is None
