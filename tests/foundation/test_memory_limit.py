"""Memory that a process may take: what asks for more gets an error, and is not killed."""

from pathlib import Path

import numpy as np
import pytest

from redpebble.foundation import memory_limit
from redpebble.foundation.memory_limit import available_memory, limited_memory

MEBIBYTE = 1 << 20


def test_more_than_is_available_is_refused_and_less_is_given() -> None:
    with limited_memory(64 * MEBIBYTE):
        np.ones(16 * MEBIBYTE, np.uint8)
        with pytest.raises(MemoryError):
            np.ones(96 * MEBIBYTE, np.uint8)
    np.ones(96 * MEBIBYTE, np.uint8)


def test_a_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_system = available_memory()
    assert of_system is not None
    assert of_system > MEBIBYTE
    limit, usage = tmp_path / "memory.max", tmp_path / "memory.current"
    monkeypatch.setattr(memory_limit, "CONTAINER", [(limit, usage)])
    usage.write_text(f"{MEBIBYTE}\n")
    limit.write_text(f"{3 * MEBIBYTE}\n")
    assert available_memory() == 2 * MEBIBYTE
    limit.write_text("max\n")
    assert available_memory() != 2 * MEBIBYTE
