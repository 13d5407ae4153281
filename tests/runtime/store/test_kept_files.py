"""The cache keeps within its limit, and removes what was used longest ago."""

import logging
import os
import time
from pathlib import Path

import numpy as np
import pytest

import redpebble
from redpebble.models.zoo import build, save
from redpebble.runtime.store.cache import default_folder
from redpebble.runtime.store.kept_files import LIMIT_BYTES, kept_files, make_room, note_use, size_limit

DAY = 24 * 3600


def file_of(folder: Path, letter: str, size: int, days_ago: float) -> Path:
    path = folder / f"{letter * 40}.pebble"
    path.write_bytes(bytes(size))
    used = time.time() - days_ago * DAY
    os.utime(path, (used, used))
    return path


def test_what_was_used_longest_ago_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, middle, new = (file_of(tmp_path, letter, 400, days) for letter, days in (("a", 9), ("b", 5), ("c", 1)))
    monkeypatch.setenv("REDPEBBLE_CACHE_LIMIT", "1KB")
    make_room(tmp_path, new)
    assert [file.path for file in kept_files(tmp_path)] == [middle, new]
    assert not old.exists()


def test_a_used_file_stays_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, middle, new = (file_of(tmp_path, letter, 400, days) for letter, days in (("a", 9), ("b", 5), ("c", 1)))
    note_use(old)
    monkeypatch.setenv("REDPEBBLE_CACHE_LIMIT", "1KB")
    make_room(tmp_path, new)
    assert not middle.exists()
    assert old.exists()


def test_the_new_file_foreign_ones_and_measurements_are_spared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = file_of(tmp_path, "c", 4000, 0)
    foreign, measured = tmp_path / "photo.pebble", tmp_path / "tuning-0123456789abcdef.json"
    for file in (foreign, measured):
        file.write_bytes(bytes(4000))
    monkeypatch.setenv("REDPEBBLE_CACHE_LIMIT", "1KB")
    make_room(tmp_path, new)
    assert all(file.exists() for file in (new, foreign, measured))


@pytest.mark.slow
def test_compiling_keeps_within_the_limit_and_goes_on_working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path))
    monkeypatch.setenv("REDPEBBLE_CACHE_LIMIT", "0")
    x = np.ones((2, 16), dtype=np.float32)
    paths = [tmp_path / f"{seed}.onnx" for seed in range(2)]
    for seed, path in enumerate(paths):
        save(build("ffnn(depth=1, width=16)", seed=seed), path)
    networks = [redpebble.compile(path) for path in paths]
    assert len([*tmp_path.glob("*.pebble")]) == 1
    assert [network.run(None, {"x": x})[0].shape for network in networks] == [(2, 16), (2, 16)]


@pytest.mark.parametrize(("text", "expected"), [("500MB", 500 * 10**6), ("1.5 gib", 3 << 29), ("4096", 4096), ("0", 0)])
def test_a_limit_is_read_with_its_unit(text: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDPEBBLE_CACHE_LIMIT", text)
    assert size_limit() == expected


def test_a_limit_that_makes_no_sense_is_told_and_the_default_counts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("REDPEBBLE_CACHE_LIMIT", "much")
    with caplog.at_level(logging.WARNING, logger="redpebble"):
        assert size_limit() == LIMIT_BYTES
    assert "REDPEBBLE_CACHE_LIMIT: expected a size such as 500MB, got 'much'" in caplog.text


def test_the_folder_is_the_one_that_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDPEBBLE_CACHE", str(tmp_path / "here"))
    assert default_folder() == tmp_path / "here"
    monkeypatch.setenv("REDPEBBLE_CACHE", "")
    assert default_folder().name == "redpebble"


def test_a_folder_that_is_missing_holds_nothing(tmp_path: Path) -> None:
    assert kept_files(tmp_path / "none") == []
