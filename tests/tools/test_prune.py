"""The command `prune`: what it writes, and what it refuses in one line with exit code 2, nothing written."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from redpebble.models import zoo
from redpebble.pruning.solving.structures import STRUCTURES, Mask, Scores, Structure
from redpebble.tools.pruning_commands import milliseconds
from tests.frontend.reading.test_limits import TOO_LARGE
from tests.pruning.dense_networks import branched_network, samples
from tests.support.command_line import exit_code

WRONG = {
    "--sparsity 0.5 --loss 0.1": "goal: expected one of --speedup",
    "": "goal: expected one of --speedup, --time, --sparsity, --loss",
    "--sparsity 0.5 --structure odd": "structure: expected one of free, equal, ",
    "--sparsity 0.5 --method odd": "method: expected one of admm, ",
    "--sparsity 0.5 --keep odd": "layer to keep: expected one of left, right, deep, head",
    "--time 3": "time: expected one such as 3ms, 250us or 0.1s, got '3'",
    "--sparsity 0.5 --stages 2": "stages: expected 1, or more together with finetune, got 2",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path / "cache"))
    zoo.save(branched_network(), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=samples(80))
    return tmp_path


@pytest.mark.parametrize("words", WRONG)
def test_what_means_nothing_is_refused(
    words: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, *f"prune m.onnx o.onnx --data d.npz {words}".split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {WRONG[words]}")
    assert not (folder / "o.onnx").exists()


WRONG_MODELS = {
    "entries made of one": "expected at most 67108864 entries, got 8589934592 of 1",
    "outer product": "no layer to prune",
}


@pytest.mark.parametrize("name", WRONG_MODELS)
def test_a_model_without_a_layer_to_prune_is_refused(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "m.onnx").write_bytes(TOO_LARGE[name][0].SerializeToString())
    assert exit_code(monkeypatch, *["prune", "m.onnx", "o.onnx", "--data", "d.npz", "--sparsity", "0.5"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert WRONG_MODELS[name] in line
    assert not (folder / "o.onnx").exists()


WRONG_DATA: dict[str, tuple[dict[str, NDArray[np.generic]], str]] = {
    "names": ({"z": samples(80)}, "expected arrays for x in the data, got z"),
    "more names": ({"x": samples(80), "y": samples(80)}, "expected arrays for x in the data, got x, y"),
    "shape": ({"x": samples(80)[:, :9]}, "input 'x' of the data: expected shape (any, 96), got (80, 9)"),
    "type": ({"x": samples(80).astype(np.float64)}, "input 'x' of the data: expected float32, got float64"),
    "nan": ({"x": samples(80) * np.float32(np.nan)}, "input 'x' of the data: expected finite values, got NaN"),
    "few": ({"x": samples(47)}, "layer left of 96 inputs: expected 48 rows of data or more, "),
    "none": ({"x": samples(0)}, "expected some hundred samples in the data, got none"),
}


@pytest.mark.parametrize("name", WRONG_DATA)
def test_data_that_does_not_fit_is_refused(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays, message = WRONG_DATA[name]
    np.savez(folder / "wrong.npz", allow_pickle=False, **arrays)
    assert exit_code(monkeypatch, *["prune", "m.onnx", "o.onnx", "--data", "wrong.npz", "--sparsity", "0.5"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}")
    assert sorted(path.name for path in folder.glob("*.onnx")) == ["m.onnx"]


@pytest.mark.parametrize("data", ["m.onnx", "lost.npz"])
def test_what_is_no_data_is_refused(
    data: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, "prune", "m.onnx", "o.onnx", "--data", data, "--sparsity", "0.5") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (folder / "o.onnx").exists()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--data d.npz --loss 0.2 --rows 16 --keep deep --seed 3"
    for name in ("one", "two"):
        report = f"--report {name}.json"
        assert exit_code(monkeypatch, *f"prune m.onnx {name}.onnx {words} {report}".split()) == 0
    assert (folder / "one.onnx").read_bytes() == (folder / "two.onnx").read_bytes()
    content = json.loads((folder / "one.json").read_text())
    assert {layer["name"] for layer in content["layers"]} == {"left", "right"}
    assert content["loss"] <= 0.2
    assert content["rows"] == 16
    assert content["parameter_efficiency"] > content["dense_efficiency"]
    assert content["goal"] == {"loss": 0.2}
    assert content["bytes"] == sum(min(6 * layer["connections"], 4 * 96 * 96) for layer in content["layers"])
    assert content["inputs"] == "x 16x96"
    low, high = content["loss_interval"]
    assert low < content["loss"] < high


def test_the_terminal_says_what_is_known_and_what_comes_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "prune m.onnx o.onnx --data d.npz --structure 2:8 --method magnitude --rows 16"
    assert exit_code(monkeypatch, *words.split()) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "ms for x 16x96)" in said
    assert "% with 99% confidence, on 80 samples, cross-validated in 5 folds" in said
    assert "warning: 80 samples are few: other inputs may lose" in said
    assert "as large as before until redpebble optimize o.onnx o-optimized.onnx" in said
    assert exit_code(monkeypatch, "optimize", "o.onnx", "o-optimized.onnx") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "with 99% confidence, on 80 samples" in said
    assert "quality 1" not in said
    assert (folder / "o-optimized.onnx").stat().st_size < 0.6 * (folder / "o.onnx").stat().st_size


def test_an_interrupt_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(scores: Scores, density: float) -> Mask:
        signal.raise_signal(signal.SIGINT)
        return scores > density

    (folder / "old.onnx").write_bytes(b"as it was")
    before = sorted(path.name for path in folder.iterdir())
    with STRUCTURES.extended({"interrupted": lambda _: Structure(interrupted)}):
        words = "--data d.npz --sparsity 0.5 --structure interrupted --report page.html"
        assert exit_code(monkeypatch, *f"prune m.onnx old.onnx {words}".split()) == 130
    assert sorted(path.name for path in folder.iterdir()) == before
    assert (folder / "old.onnx").read_bytes() == b"as it was"


def test_times_have_units() -> None:
    assert [milliseconds(text) for text in ("3ms", "250us", "0.1s")] == [3.0, 0.25, 100.0]
