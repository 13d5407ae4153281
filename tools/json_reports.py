"""Results as JSON: what `--report` writes; `docs/reference/reports.md` lists the keys of each command."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import redpebble
from redpebble.foundation.atomic_files import write_text


def write_report(path: Path | None, command: str, content: Mapping[str, Any]) -> None:
    """Write what a command found, behind its name and our version; nothing where there is no path.

    Raises:
        OSError: the file cannot be written.
    """
    if path is not None:
        whole = {"command": command, "redpebble": redpebble.__version__} | dict(content)
        write_text(path, json.dumps(whole, indent=2) + "\n")
