"""Small results on disk, as JSON with a format version; a file that cannot be used counts as none."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...foundation.atomic_files import replacing
from ...foundation.private_files import private_folder, read_private

CONTENT_VERSION = 2
"""Version of all that is remembered; raised when its meaning changes."""

Json = Any
"""A value that the json module reads and writes."""


def recall(folder: Path, name: str) -> Json | None:
    """Return the content stored under `name`; None if it is missing or of another format."""
    try:
        content = json.loads(read_private(folder / f"{name}.json"))
        return content["content"] if content["format"] == CONTENT_VERSION else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def recall_list(folder: Path, name: str) -> list[Json]:
    """Return the list that was remembered under `name`; an empty one where there is none."""
    content = recall(folder, name)
    return [*content] if isinstance(content, list) else []


def remember(folder: Path, name: str, content: Json) -> None:
    """Keep `content` under `name`; a folder that cannot be written to is no error, it will be worked out again."""
    text = json.dumps({"format": CONTENT_VERSION, "content": content}, indent=1)
    with suppress(OSError):
        private_folder(folder)
        with replacing(folder / f"{name}.json", private=True) as file:
            file.write(text.encode())
