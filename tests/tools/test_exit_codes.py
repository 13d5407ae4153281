"""Exit codes beside those of bad input: 1 says that a comparison failed, and nothing else does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from redpebble.models import zoo
from redpebble.tools import zoo_commands
from tests.support.command_line import MODEL_COMMANDS, exit_code

PROGRAM = (sys.executable, "-m", "redpebble")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.onnx"
    zoo.save(zoo.build("ffnn(depth=1,width=32,density=0.5)"), path)
    return path


@pytest.fixture(autouse=True)
def _own_cache(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDPEBBLE_CACHE", str(model.with_name("cache")))


def test_a_defect_of_ours_is_a_code_of_its_own_with_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise AttributeError("planted")

    monkeypatch.setattr(zoo_commands, "list_zoo", fail)
    assert exit_code(monkeypatch, "zoo", "--list") == 70
    assert capsys.readouterr().err.splitlines()[-1] == "AttributeError: planted"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("zoo", "--list"),
        *(pytest.param((name, "MODEL"), marks=pytest.mark.slow) for name in ("check", "explain", "bench")),
    ],
)
def test_output_that_nobody_reads_or_takes_is_no_comparison_that_failed(command: tuple[str, ...], model: Path) -> None:
    words = [*PROGRAM, *(str(model) if word == "MODEL" else word for word in command)]
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb") as unread:
        assert subprocess.run(words, stdout=unread, stderr=subprocess.DEVNULL, check=False).returncode == 141
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "error: [Errno 28] No space left on device\n")
    closed = subprocess.run(["/bin/sh", "-c", '"$@" >&-', "sh", *words], stderr=subprocess.PIPE, text=True, check=False)
    assert (closed.returncode, closed.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("command", MODEL_COMMANDS)
def test_every_command_ends_with_0_where_nothing_is_wrong(
    command: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_code(monkeypatch, command, model, *MODEL_COMMANDS[command]) == 0
