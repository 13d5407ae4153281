"""The table of real networks: what gains most stands first, and what others disturbed is marked."""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from redpebble.bench.suites import real_networks
from redpebble.bench.suites.real_networks import BATCHES, KINDS, Measured, by_ratio, networks_of, publish, table


def rows_of(title: str, ratio: float, *, steady: bool = True) -> list[Measured]:
    return [Measured(title, batch, 1, 2000.0 * ratio, 2000.0, steady, 4_000_000, 1_000_000) for batch in BATCHES]


WHERE = "a CPU (znver5), onnxruntime 1.32.0"
ROWS = by_ratio([*rows_of("slow", 1.5), *rows_of("fast", 4.0, steady=False)])


def test_what_gains_most_stands_first_and_disturbed_times_have_a_star() -> None:
    lines = table(ROWS, WHERE)
    assert lines[2] == "| fast | **4.0x** (8 → 2) * | **4.0x** (8 → 2) * | 4.0 → 1.0 |"
    assert lines[3] == "| slow | **1.5x** (3 → 2) | **1.5x** (3 → 2) | 4.0 → 1.0 |"
    assert lines[-1].endswith("* others used the machine meanwhile.")


def test_each_sparsity_has_columns_of_its_own() -> None:
    fewer = [replace(row, sparsity=0.7, ours_us=4000.0) for row in rows_of("fast", 4.0)]
    lines = table(by_ratio([*rows_of("fast", 4.0), *fewer]), WHERE, times=False)
    heads = [f"batch {batch}, {zeros} % zeros" for zeros in (90, 70) for batch in BATCHES]
    assert lines[0] == f"| network | {' | '.join(heads)} | file (MB) |"
    assert lines[2] == "| fast | **4.0x** | **4.0x** | **2.0x** | **2.0x** | 4.0 \N{RIGHTWARDS ARROW} 1.0 |"
    assert lines[-1].startswith("90 % or 70 % of the weights")


def test_kinds_of_networks_are_measured_with_the_published_ones() -> None:
    assert set(KINDS) <= set(networks_of(["published"]))
    assert networks_of(["waves"]) == [network for network in KINDS if network.export.startswith("waves")]


def test_pages_and_picture_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages, picture = [tmp_path / "a.md", tmp_path / "b.md"], tmp_path / "pictures" / "bars.svg"
    for name, page in zip(("SHORT_RESULTS", "RESULTS"), pages, strict=True):
        page.write_text("before\n<!-- results: begin -->\nold\n<!-- results: end -->\nafter\n")
        monkeypatch.setattr(real_networks, name, replace(getattr(real_networks, name), page=page))
    monkeypatch.setattr(real_networks, "PICTURE", picture)
    monkeypatch.setattr(real_networks, "IN_README", frozenset(["fast"]))
    publish(ROWS, WHERE)
    short, whole = (page.read_text() for page in pages)
    assert "old" not in short + whole
    assert "| fast | **4.0x** * | **4.0x** * | 4.0 → 1.0 |" in short
    assert "slow" not in short
    assert "| slow | **1.5x** (3 → 2) | **1.5x** (3 → 2) | 4.0 → 1.0 |" in whole
    assert f"are zeros; {WHERE}, 1 thread; fastest rounds." in short
    assert short.endswith("<!-- results: end -->\nafter\n")
    assert "fast" in picture.read_text()


def test_a_kept_result_names_the_machine_that_it_was_measured_on(tmp_path: Path) -> None:
    machine = {"model": "another CPU", "cpu": "sapphirerapids", "onnxruntime": "1.30.0"}
    kept = tmp_path / "rows.json"
    kept.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in ROWS]}))
    command = [sys.executable, "-m", "redpebble.bench.suites.real_networks", "--result", str(kept)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "another CPU (sapphirerapids), onnxruntime 1.30.0, 1 thread" in " ".join(printed.split())
