"""Numbers that would check or measure nothing, and options that mean nothing, are refused before any work."""

from pathlib import Path

import pytest

import redpebble
from redpebble.foundation.threads import usable_threads
from redpebble.models import zoo
from redpebble.tools import main as cli

MODEL = "ffnn(depth=1,width=8,density=0.5)"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.onnx"
    zoo.save(zoo.build(MODEL), path)
    return path


@pytest.mark.parametrize(
    "words, message",
    [
        (("check", "--runs", "0"), "runs to compare: expected 1 or more, got 0"),
        (("check", "--batch", "1,0"), "batches: expected 1 or more each, got 1, 0"),
        (("check", "--rtol", "nan"), "rtol: expected 0 or more, as nothing would differ, got nan"),
        (("bench", "--batch", "0"), "batches: expected 1 or more each, got 0"),
        (("bench", "--threads", "0"), "threads: expected 1 or more each, got 0"),
        (("bench", "--seconds", "-1"), "expected 0 seconds or more to measure, got -1.0"),
        (("bench", "--seconds", "nan"), "expected 0 seconds or more to measure, got nan"),
    ],
)
def test_they_are_refused_in_one_line(
    words: tuple[str, ...],
    message: str,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["redpebble", words[0], str(model), *words[1:]])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert capsys.readouterr().err == f"error: {message}\n"


def test_targets_that_do_not_exist_are_refused(model: Path) -> None:
    with pytest.raises(ValueError, match=r"target: expected a CpuTarget such as .*, got 'avx9'"):
        redpebble.compile(model, target="avx9", cache=False)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="target: expected 'portable' or 'ort', got 'native'"):
        redpebble.optimize(model, target="native")  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
def test_more_threads_than_cpus_are_warned_of(model: Path, tmp_path: Path) -> None:
    count = usable_threads()
    with pytest.warns(UserWarning, match=f"threads is {count + 1}, and this process may use {count} CPUs"):
        redpebble.compile(model, threads=count + 1, cache=tmp_path / "cache")
