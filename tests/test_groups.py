"""Tests that one process runs, for what they share."""

from pathlib import Path

import pytest

from tests.conftest import MEASURED, SEARCHES, SOURCES

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("member", [*SEARCHES, *SOURCES, *MEASURED])
def test_what_is_kept_together_exists(member: str) -> None:
    file, _, name = member.partition("::")
    assert (ROOT / file).exists()
    assert not name or f"def {name.partition('[')[0]}" in (ROOT / file).read_text()
