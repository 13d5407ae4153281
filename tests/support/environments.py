"""Environments of their own, for packages in versions that the tests do without."""

import subprocess
import sys
from pathlib import Path

import pytest


def interpreter_with(folder: Path, *packages: str | Path) -> Path:
    """Return the interpreter of a new environment with these packages; skip the test where they cannot be installed."""
    python = folder / "environment" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
    if subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=False).returncode != 0:
        pytest.skip(f"{', '.join(map(str, packages))} cannot be installed here")
    return python
