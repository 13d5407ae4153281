"""Through the command line: what is wrong with a model is one line and exit code 2, and nothing is left behind."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.end_to_end.malformed_models import INVALID, UNSUPPORTED, WEIGHT, model, written
from tests.support.command_line import exit_code

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> "Run":
    return Run(monkeypatch, capfd)


class Run:
    """The command line in this process; capture is by file descriptor, so that C++ libraries are heard, too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
        self._monkeypatch = monkeypatch
        self._capfd = capfd

    def __call__(self, *words: str | Path) -> tuple[int, str]:
        """Return the exit code and what was written to standard error."""
        self._capfd.readouterr()
        return exit_code(self._monkeypatch, *words), self._capfd.readouterr().err


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*"))


def assert_one_line(code: int, error: str) -> None:
    assert code == 2
    assert error.startswith("error: ")
    assert error.endswith("\n")
    assert error.count("\n") == 1
    assert "Traceback" not in error


@pytest.mark.parametrize("command", ["optimize", "check", "explain"])
@pytest.mark.parametrize("name", INVALID)
def test_a_model_that_is_broken_is_one_line_and_leaves_no_file(
    name: str, command: str, run: Run, tmp_path: Path
) -> None:
    path = INVALID[name](tmp_path)
    before = files(tmp_path)
    outputs = [tmp_path / "out.onnx"] if command == "optimize" else ["--report", tmp_path / "report.json"]
    assert_one_line(*run(command, path, *outputs))
    assert files(tmp_path) == before


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_model_without_native_code_is_one_line(name: str, run: Run, tmp_path: Path) -> None:
    path = UNSUPPORTED[name](tmp_path)
    code, error = run("check", path, "--way", "compile")
    assert_one_line(code, error)
    assert "expected" in error or "onnxruntime" in error


@pytest.mark.parametrize("folder", ["nowhere", "file"])
def test_a_folder_that_cannot_be_written_to_is_one_line(folder: str, run: Run, tmp_path: Path) -> None:
    path = written(tmp_path, model())
    (tmp_path / "file").write_text("not a folder")
    before = files(tmp_path)
    assert_one_line(*run("optimize", path, tmp_path / folder / "out.onnx"))
    assert_one_line(*run("optimize", path, path.parent / "out.onnx", "--report", tmp_path / folder / "report.json"))
    assert_one_line(*run("zoo", "digits", "-o", tmp_path / folder / "out.onnx"))
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "words, message",
    [
        (["check", "IN", "--batch", "one"], "expected numbers such as 1,32, got 'one'"),
        (["check", "IN", "--input-shape", "x"], "shape: expected NAME:N,N such as x:1,64, got 'x'"),
        (["check", "IN", "--input-shape", "q:1,4"], "expected a shape for x, got one for 'q'"),
        (["check", "IN", "--input-shape", "x:1,5"], "onnxruntime: "),
        (
            ["optimize", "IN", "OUT", "--skip-passes", "pebble-frobnicate"],
            "pass: expected one of ",
        ),
        (["zoo", "lenet", "-o", "OUT"], "model of the zoo: expected one of "),
    ],
)
def test_an_unexpected_value_is_one_line(words: list[str], message: str, run: Run, tmp_path: Path) -> None:
    places = {"IN": written(tmp_path, model()), "OUT": tmp_path / "out.onnx"}
    code, error = run(*[places.get(word, word) for word in words])
    assert_one_line(code, error)
    assert message in error
    assert not places["OUT"].exists()


def other_weights(folder: Path, array: np.ndarray) -> Path:
    proto = onnx.ModelProto()
    proto.CopyFrom(model())
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "w"))
    path = folder / "other.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_models_that_differ_are_exit_code_1(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path, model())
    assert run("check", path, "--against", other_weights(tmp_path, WEIGHT + 0.01)) == (1, "")
    assert run("check", path, "--against", other_weights(tmp_path, WEIGHT * 1.000001)) == (0, "")
    assert run("check", path) == (0, "")


def test_a_model_to_compare_with_that_is_broken_is_one_line(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(b"text")
    assert_one_line(*run("check", written(tmp_path, model()), "--against", other))


@pytest.mark.slow
def test_a_process_of_its_own_ends_the_same_way(tmp_path: Path) -> None:
    path = INVALID["truncated"](tmp_path)
    command = [sys.executable, "-c", "from redpebble.tools.main import main; main()", "check", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert_one_line(ended.returncode, ended.stderr)
    assert ended.stdout == ""
