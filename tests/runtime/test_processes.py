"""Networks with threads in processes that fork and that end."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(cache: Path, *scenarios: str) -> None:
    """Run the program, which hangs where something is wrong."""
    # children of threads, and more threads than CPUs, are what it is about
    quiet = ("-W", "ignore::DeprecationWarning", "-W", "ignore:threads is:UserWarning")
    words = [sys.executable, *quiet, "-m", "tests.runtime.process_program", *scenarios]
    environment = {"XDG_CACHE_HOME": str(cache), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_children_of_a_process_with_threads_run_its_networks_and_interpreters_end_while_calls_run(
    tmp_path: Path,
) -> None:
    run(tmp_path, "forks", "forks of short calls", "fork", "few ends")


@pytest.mark.slow
def test_children_that_are_spawned_run_networks_of_the_cache(tmp_path: Path) -> None:
    run(tmp_path, "spawn")


@pytest.mark.slow
def test_many_interpreters_end_while_calls_run(tmp_path: Path) -> None:
    run(tmp_path, "many ends")


@pytest.mark.slow
def test_interpreters_end_while_calls_run_and_other_processes_want_all_cpus(tmp_path: Path) -> None:
    run(tmp_path, "loaded ends")
