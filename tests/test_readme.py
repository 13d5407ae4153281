"""The README's example runs and prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_example_prints_what_the_readme_shows() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```\nprints\n```\n(.*?)```", text, re.DOTALL)
    assert found is not None
    code, shown = found.groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue() == shown


def test_every_folder_of_the_map_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), target
