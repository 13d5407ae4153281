"""Runs tests/filecheck: what `xdsl-opt` prints, transforms and refuses."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.run_lines import failures

FOLDER = Path(__file__).parent / "filecheck"
FILES = sorted(FOLDER.rglob("*.mlir"))


def lit(*words: str) -> subprocess.CompletedProcess[str]:
    run = "from lit.main import main; main()"  # the package has no module that runs
    command = [sys.executable, "-c", run, "-v", "--skip-test-time-recording", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(FOLDER)) for file in FILES])
def test_the_file_says_what_xdsl_opt_prints(file: Path) -> None:
    assert failures(file) == []


@pytest.mark.slow
def test_a_program_of_its_own_prints_the_same() -> None:
    done = lit("-j", "1", str(FOLDER / "passes" / "simplify" / "fuse_layers.mlir"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed: 1" in done.stdout


@pytest.mark.slow
def test_lit_passes_all_files() -> None:
    done = lit("-j", "2", str(FOLDER))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Passed: {len(FILES)}" in done.stdout


def test_what_does_not_match_is_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "wrong.mlir"
    file.write_text("// RUN: xdsl-opt %s | filecheck %s\n// CHECK: nothing like it\n")
    assert len(failures(file)) == 1
    file.write_text("// RUN: not xdsl-opt %s 2>&1 | filecheck %s\n// CHECK: builtin.module\n")
    assert len(failures(file)) == 1
    file.write_text("// RUN: xdsl-opt %s\nno operation\n")
    assert len(failures(file)) == 1
