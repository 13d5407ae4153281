"""Files in the cache that end with a digest of their content, so that a damaged file is made again."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ...foundation.atomic_files import replacing
from ...foundation.private_files import private_folder, read_private

TAIL_BYTES = hashlib.sha256().digest_size


def kept(path: Path, make: Callable[[], bytes]) -> bytes:
    """Return the content of `path`; if missing or damaged, make it, and store it if possible."""
    found = recalled(path)
    if found is not None:
        return found
    made = make()
    keep(path, made)
    return made


def recalled(path: Path) -> bytes | None:
    """Return the content of `path`, None if missing or damaged."""
    with suppress(OSError):
        content = read_private(path)
        if hashlib.sha256(content[:-TAIL_BYTES]).digest() == content[-TAIL_BYTES:]:
            return content[:-TAIL_BYTES]
    return None


def keep(path: Path, content: bytes) -> None:
    """Keep bytes at `path`, where that can be done."""
    with suppress(OSError):
        private_folder(path.parent)
        with replacing(path, private=True) as file:
            file.write(content + hashlib.sha256(content).digest())
