"""Runs lit over tests/filecheck: what `xdsl-opt` prints, transforms and refuses."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "filecheck"
FILES = sorted(FOLDER.rglob("*.mlir"))


@pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(FOLDER)) for file in FILES])
def test_the_file_says_what_xdsl_opt_prints(file: Path) -> None:
    run = "from lit.main import main; main()"  # the package has no module that runs
    command = [sys.executable, "-c", run, "-v", "-j", "1", "--skip-test-time-recording", str(file)]
    lit = subprocess.run(command, capture_output=True, text=True, check=False)
    assert lit.returncode == 0, lit.stdout + lit.stderr
    assert "Passed: 1" in lit.stdout
