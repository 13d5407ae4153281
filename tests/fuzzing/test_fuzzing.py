"""The fuzzers run, find faults that are planted, and what they saved can be run again."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzzing.fuzzers import FUZZERS
from tests.fuzzing.random_masks import LAYERS
from tests.fuzzing.runs import Run, replay
from tests.fuzzing.sessions import CONTEXTS, NODES, PROVIDER

ROOT = Path(__file__).parents[2]


def fuzz(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzzing", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_lost_bias_is_found_and_its_case_can_be_run_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = Run([LAYERS], tmp_path, "lost-bias")
    run.go_on(60, 2, 1)
    assert run.wrong == 1
    (case,) = tmp_path.iterdir()
    assert f"replay {case}" in capfd.readouterr().out
    assert json.loads((case / "case.json").read_text()) == {"fuzzer": "kernels", "seed": 2}
    assert not replay(case).problem
    assert "values are wrong" in replay(case, "lost-bias").problem


@pytest.mark.slow
def test_sessions_are_attacked_and_nothing_is_wrong(tmp_path: Path) -> None:
    run = Run([NODES, PROVIDER, CONTEXTS], tmp_path)
    run.go_on(300, 1, 3)
    assert not run.wrong, run.summary()
    assert all(run.counts[one.name].total() == 1 for one in (NODES, PROVIDER, CONTEXTS)), run.summary()


FOUND = (
    ("lost-bias", "kernels", 1),
    ("lost-bias", "masks", 1),
    ("lost-bias", "graphs", 15),
    ("wrong-index", "kernels", 1),
    ("wrong-index", "masks", 1),
    ("race", "calls", 1),
    ("lost-activation", "graphs", 1),
    ("escaping-error", "damaged-models", 1),
    ("unchecked-code", "caches", 1),
    ("unchecked-code", "contexts", 1),
    ("unchecked-nodes", "nodes", 11),
    ("unchecked-parts", "parts", 1),
)
"""A fault, the fuzzer that finds it, and the seed of a case that is soon followed by one in which it does."""


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "fuzzer", "first"), FOUND)
def test_a_fault_is_found(fault: str, fuzzer: str, first: int, tmp_path: Path) -> None:
    run = Run([one for one in FUZZERS if one.name == fuzzer], tmp_path, fault)
    for seed in range(first, first + 30):
        run.go_on(100, seed, 1)
        if run.wrong:
            return
    pytest.fail(run.summary())


@pytest.mark.slow
def test_all_fuzzers_find_nothing_and_say_what_they_did(tmp_path: Path) -> None:
    found = fuzz("300", "--cases", str(len(FUZZERS)), "--folder", tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr
    for fuzzer in FUZZERS:
        assert re.search(rf"\n{fuzzer.name} +1 +0 ", found.stdout), found.stdout
