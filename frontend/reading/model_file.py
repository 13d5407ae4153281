"""The file that holds a model: one that ends, and no larger than a protobuf message can be."""

import os
from pathlib import Path
from stat import S_ISREG
from typing import Final

from redpebble.frontend.errors import InvalidModelError

PROTOBUF_LIMIT: Final = 2**31 - 1
"""Bytes that one protobuf message can hold."""


def read_file(path: Path) -> bytes:
    """Return the bytes of a model's own file.

    Raises:
        InvalidModelError: it cannot be read, is none that ends, or larger than any protobuf message.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            stat = os.fstat(file.fileno())
            if not S_ISREG(stat.st_mode):
                raise InvalidModelError(f"'{path}' cannot be read: it is no regular file")
            if stat.st_size > PROTOBUF_LIMIT:
                raise InvalidModelError(f"'{path}' has {stat.st_size} bytes, accepted are {PROTOBUF_LIMIT} in one file")
            return file.read(PROTOBUF_LIMIT + 1)
    except OSError as error:
        raise InvalidModelError(f"'{path}' cannot be read: {(error.strerror or '').lower()}") from error
    except ValueError as error:
        raise InvalidModelError(f"{str(path)!r} cannot be read: {error}") from error


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for whoever is to write into it, should it be a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)
