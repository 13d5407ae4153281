"""Ranks say how long they take, and what messages between them cost."""

import json
import sys
from pathlib import Path

import pytest

from redpebble.models.zoo import build
from tests.distributed.launching import Case, mpiexec, write_case

TIMING = (sys.executable, "-m", "redpebble.distributed.run.run_times")

pytestmark = pytest.mark.slow


def said(ranks: int, *arguments: str) -> dict[str, float]:
    """What the first rank prints: one line, for all of them."""
    done = mpiexec(ranks, *TIMING, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_messages_take_a_latency_and_have_a_bandwidth() -> None:
    found = said(2)
    assert 0 < found["latency"] < 1
    assert found["bandwidth"] > 0


@pytest.mark.parametrize(("kind", "ranks"), [("rows", 2), ("batch", 2), ("layers", 1)])
def test_runs_are_counted_and_the_fastest_is_no_slower_than_the_median(kind: str, ranks: int, tmp_path: Path) -> None:
    write_case(tmp_path / "case", build("ffnn(depth=2, width=24, density=0.2)"), Case(kind, ranks, ()))
    found = said(ranks, str(tmp_path / "case" / "parts"), "17", "0.05")
    assert found["runs"] >= 1
    assert 0 < found["fastest"] <= found["median"]
