"""Where only one folder can be written to, without a home, /dev/shm or AVX, all works; a warning says what it costs."""

import sys
from pathlib import Path

import pytest

from tests.support.sandbox import ROOT, sandboxed

START = f"""
import runpy, sys
sys.path.insert(0, {str(ROOT)!r})
runpy.run_module("tests.end_to_end.place_program", run_name="__main__")
"""
WARNING = "warning: compiling a search, which takes some seconds, in each process: there is no folder to keep it in\n"


def done(room: Path, cpu: str, *deeds: str) -> tuple[str, str]:
    """What the program prints, and what the command line warns of."""
    ran = sandboxed(room, sys.executable, "-c", START, str(room / "open"), cpu, *deeds, OPENBLAS_NUM_THREADS="1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout, ran.stderr


@pytest.mark.slow
def test_networks_compile_and_run_in_a_closed_place_without_avx(tmp_path: Path) -> None:
    assert WARNING not in done(tmp_path, "generic", "python")[0]
    assert list((tmp_path / "open").iterdir()) == []


@pytest.mark.slow
def test_the_provider_runs_and_the_first_search_says_once_that_it_is_compiled(tmp_path: Path) -> None:
    said, _ = done(tmp_path, "host", "python", "provider", "orders")
    assert said.count(WARNING) == 1
    assert list((tmp_path / "open").iterdir()) == []


@pytest.mark.slow
def test_commands_end_well_in_a_closed_place_without_avx(tmp_path: Path) -> None:
    _, said = done(tmp_path, "generic", "commands")
    assert said.count(WARNING) == 1
    assert {"m.onnx", "o.onnx", "p.onnx", "code.pebble", "order.npz", "parts", "report.html"} <= {
        path.name for path in (tmp_path / "open").iterdir()
    }
