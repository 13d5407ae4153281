"""`bench --trace`: Chrome trace events of passes, and of the nodes of both sessions."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from redpebble.models import zoo
from redpebble.tools.benching.tracing import CALLS
from tests.support.command_line import exit_code


@pytest.mark.parametrize("spec", ["ffnn(depth=2, width=256, density=0.1)", "ffnn(depth=2, width=256, density=1.0)"])
def test_a_trace_has_passes_and_nodes_in_order(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, target = tmp_path / "m.onnx", tmp_path / "t.json"
    zoo.save(zoo.build(spec), model)
    words = ("--batch", "3", "--seconds", "0", "--callers", "0", "--trace", target)
    assert exit_code(monkeypatch, "bench", model, *words) == 0
    content = json.loads(target.read_text())
    tracks = {one["pid"]: one["args"]["name"] for one in content["traceEvents"] if one["name"] == "process_name"}
    assert [*tracks.values()] == ["redpebble compiles", "redpebble.session", "onnxruntime"]
    events = [[one for one in content["traceEvents"] if one["ph"] == "X" and one["pid"] == pid] for pid in tracks]
    assert all(one["dur"] >= 0 and one["ts"] >= 0 for part in events for one in part)
    compiling, session, plain = events
    passes = [one for one in compiling if one["cat"] == "pass"]
    assert "pebble-fuse-layers" in {one["name"] for one in passes} or "0.1" not in spec
    ends = [(one["ts"], one["ts"] + one["dur"]) for one in compiling]
    assert all(begin == pytest.approx(before) for (_, before), (begin, _) in pairwise(ends))
    for part in (session, plain):
        assert sum(one["name"] == "model_run" for one in part) == CALLS
    operators = {one["args"].get("op_name", "") for one in session if one["cat"] == "Node"}
    taken = "0.1" in spec
    assert any(name.startswith("SparseNetwork") for name in operators) == taken
    assert any(one["cat"] == "emission" for one in compiling) == taken
    assert "Gemm" in {one["args"].get("op_name") for one in plain} or not taken


def test_a_trace_is_no_model_and_its_folder_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "m.onnx"
    zoo.save(zoo.build("resmlp(depth=1, width=16)"), model)
    assert exit_code(monkeypatch, "bench", model, "--trace", tmp_path / "no" / "t.json") == 2
    assert "is no folder" in capsys.readouterr().err
