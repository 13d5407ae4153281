"""Files in the cache that end with a digest of what they hold, so that a damaged one is made again."""

import hashlib
from pathlib import Path

from redpebble.foundation.atomic_files import replacing

TAIL_BYTES = hashlib.sha256().digest_size


def read_checked(path: Path) -> bytes | None:
    """Return what `write_checked` wrote, without the digest; None where there is no such file or it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    whole = hashlib.sha256(content[:-TAIL_BYTES]).digest() == content[-TAIL_BYTES:]
    return content[:-TAIL_BYTES] if whole else None


def write_checked(path: Path, content: bytes) -> None:
    """Write `content` and its digest, which a loader of code does not look at; the folder is made where it is missing.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, private=True) as file:
        file.write(content + hashlib.sha256(content).digest())
