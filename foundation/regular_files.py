"""Files that end: reading one never waits for whoever is to write into a pipe, and never goes on for ever."""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO


@contextmanager
def open_regular(path: Path) -> Generator[BinaryIO]:
    """Open a file to read its bytes.

    Raises:
        OSError: it cannot be read, or is a pipe, a device or a folder.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        if not S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        yield file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
