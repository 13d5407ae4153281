"""The compiler's sources are not read again while nothing about them has changed."""

import json
import os
import time
from pathlib import Path

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
