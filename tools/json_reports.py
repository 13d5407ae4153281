"""Results as JSON: what `--report` writes and `--json` shows; `docs/reference/reports.md` lists the keys."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..foundation.atomic_files import write_text

STANDARD_OUTPUT: Final = Path("-")
"""A report that is printed, in place of what is there to be read."""


def write_report(path: Path | None, command: str, content: Mapping[str, Any]) -> None:
    """Write what a command found, behind its name and our version; print it for `-`, do nothing without a path.

    Raises:
        OSError: the file cannot be written.
    """
    if path is None:
        return
    from .. import __version__

    text = json.dumps({"command": command, "redpebble": __version__} | dict(content), indent=2)
    if path == STANDARD_OUTPUT:
        print(text)
    else:
        write_text(path, text + "\n")
