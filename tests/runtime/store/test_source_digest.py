"""The compiler's sources are not read again while nothing about them has changed."""

import json
import os
import time
from pathlib import Path

import pytest

from redpebble.runtime.store import cache
from redpebble.runtime.store.cache import SETTLED_SECONDS, source_digest


def test_a_digest_is_remembered_until_a_source_changes_whatever_its_size_and_time(tmp_path: Path) -> None:
    source, memory = tmp_path / "a.py", tmp_path / "memory"
    source.write_text("one = 1\n")
    files = {"a.py": str(source)}
    source_digest(files, memory)
    assert not memory.exists()  # it was changed a moment ago
    time.sleep(max(0.0, source.stat().st_ctime + SETTLED_SECONDS + 0.1 - time.time()))
    digest = source_digest(files, memory)
    [note] = memory.iterdir()
    content = json.loads(note.read_text())
    content["content"]["digest"] = "00" * 32
    note.write_text(json.dumps(content))
    assert source_digest(files, memory) == bytes(32) != digest
    before = source.stat()
    source.write_text("one = 2\n")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source_digest(files, memory) not in {bytes(32), digest}


def test_a_process_whose_sources_were_replaced_shares_nothing_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = tmp_path / "a.py"
    source.write_text("one = 1\n")
    monkeypatch.setattr(cache, "source_files", lambda: {"a.py": str(source)})
    fingerprint, changed = cache.compiler_fingerprint.__wrapped__, source.stat().st_ctime_ns
    monkeypatch.setattr(cache, "LOADED", changed)
    assert fingerprint() == fingerprint()
    assert not caplog.records
    # as pip does: another file takes the place of the one that was loaded, with any time of its content
    replaced = tmp_path / "b.py"
    replaced.write_text("one = 1\n")
    os.utime(replaced, ns=(0, 0))
    time.sleep(0.02)
    replaced.replace(source)
    assert fingerprint() != fingerprint()
    assert "expected a restart" in caplog.text
