"""Files in the cache that end with a digest of what they hold, so that a damaged one is made again."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from redpebble.foundation.atomic_files import replacing
from redpebble.foundation.private_files import private_folder, read_private

TAIL_BYTES = hashlib.sha256().digest_size


def kept(path: Path, make: Callable[[], bytes]) -> bytes:
    """Return what is kept at `path`; where there is nothing of use, make it, and keep it where that can be done."""
    with suppress(OSError):
        content = read_private(path)
        if hashlib.sha256(content[:-TAIL_BYTES]).digest() == content[-TAIL_BYTES:]:
            return content[:-TAIL_BYTES]
    made = make()
    with suppress(OSError):
        private_folder(path.parent)
        with replacing(path, private=True) as file:
            file.write(made + hashlib.sha256(made).digest())
    return made
