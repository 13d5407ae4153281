"""Work on a terminal: what is done, for how long, and what is about left of it by what it took before."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from redpebble.runtime.store.json_cache import remember
from redpebble.runtime.store.kept_files import kept_files
from redpebble.tools.console import working as module
from redpebble.tools.console.working import SMALL_BYTES, Run, expected_seconds, recalled_runs, working

MB = 1 << 20


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StringIO:
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path / "cache"))
    shown = StringIO()
    monkeypatch.setattr(module, "progress_console", Console(file=shown, force_terminal=True, width=80))
    return shown


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(bytes(2 * MB))
    return path


def test_a_terminal_shows_what_is_done_and_a_file_does_not(stream: StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    with working("tuning"):
        pass
    assert "tuning" in stream.getvalue()
    plain = StringIO()
    monkeypatch.setattr(module, "progress_console", Console(file=plain, force_terminal=False))
    with working("tuning"):
        pass
    assert plain.getvalue() == ""


def test_the_first_time_is_told_by_another_machine(stream: StringIO, model: Path) -> None:
    with working("compiling", model):
        pass
    assert "about 1 s left" in stream.getvalue()


def test_the_second_time_says_what_is_left(
    stream: StringIO, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST_SECONDS", 0.0)
    with working("comparing", model):
        pass
    assert " left" not in stream.getvalue()
    (kept,) = kept_files(tmp_path / "cache")
    assert kept.path.name.startswith("durations-")
    with working("comparing", model):
        pass
    assert "comparing m.onnx" in stream.getvalue()
    assert " left" in stream.getvalue() or "longer than the 1 s expected" in stream.getvalue()


def test_what_ends_early_or_at_once_is_not_remembered(stream: StringIO, model: Path, tmp_path: Path) -> None:
    with working("compiling", model):
        pass
    with pytest.raises(ValueError, match="broken"), working("compiling", model):
        raise ValueError("broken")
    assert kept_files(tmp_path / "cache") == []


def test_the_model_nearest_in_size_tells_the_time() -> None:
    assert expected_seconds([], MB) is None
    runs = [Run(4 * MB, 8.0), Run(100 * MB, 50.0)]
    assert expected_seconds(runs, 4 * MB) == 8.0
    assert expected_seconds(runs, 200 * MB) == 100.0
    assert expected_seconds([Run(100, 3.0)], 200) == 3.0, "below, it is the start that takes the time"
    assert expected_seconds([Run(0, 3.0)], 2 * SMALL_BYTES) == 6.0


@pytest.mark.parametrize("content", [5, [1], [["a", "b"]], {"x": 1}, [[1, 2, 3]]])
def test_a_damaged_memory_counts_as_none(content: object, tmp_path: Path) -> None:
    remember(tmp_path, "durations", content)
    assert recalled_runs(tmp_path, "durations") == []
