"""Networks that run on ARM, many in one process, and the cases that were compared there, counted."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from redpebble.lowering.cpu_target import CpuTarget
from tests.emulation.arm_root import FOLDER, READY, REPOSITORY, emulated

Arrays = Sequence[NDArray[Any]]
Feeds = Mapping[str, NDArray[Any]]

TARGETS: Final = {
    "arm64": CpuTarget.arm64,
    "dotprod": CpuTarget.arm64_dot,
    "i8mm": CpuTarget.arm64_i8mm,
    "sve2": CpuTarget.arm64_sve2,
}

CASES: Final = FOLDER / "cases.jsonl"
"""A line for each kind of code and target: the calls that gave the right results."""

needs_qemu = pytest.mark.skipif(not READY.exists(), reason="needs qemu and a root of ARM: `make test-arm` sets them up")


def save_calls(file: Path, calls: Sequence[Feeds]) -> None:
    """Write the inputs of calls, for the program on ARM."""
    arrays = {f"{number}/{name}": array for number, feeds in enumerate(calls) for name, array in feeds.items()}
    np.savez(file, **arrays)  # pyright: ignore[reportArgumentType] - its flags are no arrays


def on_arm(folder: Path, cpu: str = "max", threads: int = 1) -> None:
    """Run all networks of a folder on ARM, in one process."""
    program = REPOSITORY / "tests" / "emulation" / "arm_program.py"
    variables = {"PYTHONPATH": str(REPOSITORY / "build" / "named"), "REDPEBBLE_CACHE": str(folder / "cache")}
    done = subprocess.run(
        emulated(program, folder, threads, cpu=cpu, **variables), capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "aarch64", done.stderr


def assert_alike(found: Arrays, expected: Arrays, what: str) -> None:
    """Check shapes, kinds, and results: of integers all bits."""
    for one, right in zip(found, expected, strict=True):
        assert (one.shape, one.dtype) == (right.shape, right.dtype), what
        if right.dtype.kind in "iub":
            assert np.array_equal(one, right), what
        else:
            np.testing.assert_allclose(one, right, rtol=2e-5, atol=2e-5, err_msg=what)


def count(kind: str, target: str, calls: int) -> None:
    """Note calls of a kind of code on a target that gave the right results."""
    with CASES.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"kind": kind, "target": target, "calls": calls}) + "\n")
