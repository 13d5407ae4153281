"""The file that holds a model: one that ends, and no larger than a protobuf message can be."""

import os
from pathlib import Path
from typing import Final

from ...foundation.regular_files import open_regular
from ..errors import InvalidModelError

PROTOBUF_LIMIT: Final = 2**31 - 1
"""Bytes that one protobuf message can hold."""

OVERRIDABLE_SINCE: Final = 4
"""IR version since which an initializer that is also a graph input is only its default."""


def read_file(path: Path) -> bytes:
    """Return the bytes of a model's own file.

    Raises:
        InvalidModelError: it cannot be read, is none that ends, or larger than any protobuf message.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > PROTOBUF_LIMIT:
                raise InvalidModelError(f"expected at most {PROTOBUF_LIMIT} bytes in one file, got {size} in '{path}'")
            return file.read(size)  # which takes the room for so many bytes at once
    except OSError as error:
        raise InvalidModelError(f"'{path}' cannot be read: {(error.strerror or '').lower()}") from error
    except ValueError as error:
        raise InvalidModelError(f"{str(path)!r} cannot be read: {error}") from error
