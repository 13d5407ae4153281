"""Files that are written completely or not at all."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """Open a file that takes the place of `path` at the end; after an exception `path` is as it was before.

    Raises:
        OSError: the file cannot be written.
    """
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: {path.parent} is no folder")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
