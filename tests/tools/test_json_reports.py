"""JSON of every command, with the keys that `docs/reference/reports.md` lists."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import redpebble
from redpebble.models import zoo
from redpebble.tools import main as cli
from redpebble.tools.console.console import console
from tests.support.command_line import exit_code

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "reports.md"

LINES = {
    "optimize": "optimize m.onnx o.onnx",
    "compile": "compile m.onnx",
    "prune": "prune wide.onnx o.onnx --data d.npz --sparsity 0.9 --rows 8",
    "distil": "distil m.onnx o.onnx --teacher m.onnx --data t.npz --labels y --steps 2 --batch 8",
    "finetune": "finetune m.onnx o.onnx --data t.npz --labels y --epochs 1 --batch 8",
    "check": "check m.onnx --runs 1 --batch 1",
    "bench": "bench m.onnx --seconds 0 --batch 1",
    "tune": "tune --show",
    "explain": "explain m.onnx --seconds 0",
    "explain, a sweep": "explain m.onnx --memory 5,20 --seconds 0",
    "schedule": "schedule m.onnx --memory 9 --save order.npz --seconds 0",
    "partition": "partition m.onnx -p 2 -o parts --plan batch",
    "simulate": "simulate m.onnx -p 1,2",
    "zoo": "zoo --list",
    "cache show": "cache show",
    "cache clean": "cache clean",
}
"""A command as the page names it -> a line that runs it on a small model; `run` is with distributed/run."""


def documented() -> dict[str, list[str]]:
    rows = re.findall(r"^\| `([a-z ]+)`(, a sweep)? \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    return {f"{name}{sweep}": re.findall(r"`([a-z_]+)`", keys) for name, sweep, keys in rows}


def test_every_command_is_documented_and_tried() -> None:
    commands = {one.name or one.callback.__name__ for one in cli.app.registered_commands if one.callback}
    assert {*documented()} == {*LINES} | {"run"} >= commands
    assert {line.partition(" ")[0] for line in LINES.values()} == {*commands, "cache"} - {"run"}


def test_json_of_every_command_is_all_it_prints_and_has_the_documented_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "quiet", False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path / "cache"))
    zoo.save(zoo.build("ffnn(depth=1,width=8,density=0.5)"), tmp_path / "m.onnx")
    zoo.save(zoo.build("ffnn(depth=1,width=72,density=1.0)"), tmp_path / "wide.onnx")
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).random((80, 72), dtype=np.float32))
    rows = np.random.default_rng(0).random((16, 8), dtype=np.float32)
    np.savez(tmp_path / "t.npz", x=rows, y=rows)
    keys = documented()
    for name, line in LINES.items():
        if name == "distil" and find_spec("torch") is None:
            continue
        assert exit_code(monkeypatch, *line.split(), "--json") == 0
        report = json.loads(capfd.readouterr().out)
        assert report["command"] == name.removesuffix(", a sweep")
        assert report["redpebble"] == redpebble.__version__
        wanted = keys[name] if name != "tune" else ["machine"]
        inner = {key for models in report.get("models", []) for key in models}
        assert {*wanted} <= {*report} | inner, name


def test_json_alone_holds_where_measurements_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "quiet", False)
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path))
    assert exit_code(monkeypatch, "--json", "tune", "--reset") == 0
    assert json.loads(capfd.readouterr().out)["files"] == 0


def test_the_report_of_a_model_of_the_zoo_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_code(monkeypatch, "zoo", "ffnn(depth=1,width=8)", "-o", "m.onnx", "--report", "r.json") == 0
    assert [model["name"] for model in json.loads(Path("r.json").read_text())["models"]] == ["ffnn"]
