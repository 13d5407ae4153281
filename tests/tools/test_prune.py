"""The command `prune`: what it writes, and what it refuses in one line with exit code 2, nothing written."""

from pathlib import Path

import numpy as np
import pytest

from redpebble.models import zoo
from redpebble.tools.pruning.command import milliseconds
from tests.pruning.dense_networks import branched_network, samples
from tests.support.command_line import exit_code

WRONG = {
    "--sparsity 0.5 --loss 0.1": "goal is sparsity, loss, accepted is one of",
    "--sparsity 0.5 --structure odd": "unknown structure 'odd', accepted are free, equal",
    "--sparsity 0.5 --method odd": "unknown method 'odd', accepted are admm",
    "--sparsity 0.5 --keep odd": "no layer 'odd' to keep, accepted are left, right, deep, head",
    "--time 3": "time is '3', accepted is one such as 3ms, 250us or 0.1s",
    "--sparsity 0.5 --finetune 1": "the model is no chain of layers",
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


def test_data_that_is_none_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(folder / "nan.npz", x=np.full((80, 96), np.nan, np.float32))
    for name in ("nan.npz", "m.onnx", "lost.npz"):
        assert exit_code(monkeypatch, "prune", "m.onnx", "o.onnx", "--data", name, "--sparsity", "0.5") == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert sorted(path.name for path in folder.glob("*.onnx")) == ["m.onnx"]


def test_times_have_units() -> None:
    assert [milliseconds(text) for text in ("3ms", "250us", "0.1s")] == [3.0, 0.25, 100.0]
