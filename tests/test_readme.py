"""The README's map and length; that its code runs is held with the other pages, in test_pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_WORDS = 1300


def test_every_folder_of_the_map_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), target


def test_it_can_be_read_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= MOST_WORDS
