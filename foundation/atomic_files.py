"""Files and folders that are written completely or not at all.

What is unfinished lies beside what it becomes, under a name that nobody else has, and is removed after an exception.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk or a quota that is used up: the system does not say of which file."""


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Generator[BinaryIO]:
    """Open a file that takes the place of `path` at the end; after an exception `path` is as it was before.

    A private file can be read and written by its owner alone.

    Raises:
        OSError: the file cannot be written.
    """
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: {path.parent} is no folder")
    part = _unfinished(path)
    mode = 0o600 if private else 0o666
    try:
        with open(part, "xb", opener=partial(os.open, mode=mode)) as file:
            yield file
        part.replace(path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL:
            raise OSError(f"cannot write {path}: {error.strerror}") from error
        raise


def write_text(path: Path, text: str) -> None:
    """Write a file of UTF-8.

    Raises:
        OSError: the file cannot be written.
    """
    with replacing(path) as file:
        file.write(text.encode())


@contextmanager
def replacing_folder(path: Path) -> Generator[Path]:
    """Make a folder that takes the place of the folder `path`, and of all in it, at the end.

    Raises:
        OSError: the folder cannot be written.
    """
    with _temporary_folder(path) as folder:
        yield folder
        before = _unfinished(path)
        # a folder that is removed before the new one has its name would be lost to whoever is killed in between
        if path.exists():
            path.rename(before)
        try:
            folder.replace(path)
        except BaseException:
            if before.exists():
                before.rename(path)
            raise
        shutil.rmtree(before, ignore_errors=True)


@contextmanager
def replacing_files(path: Path) -> Generator[Path]:
    """Make a folder for a file named as `path` and those that belong to it, which are moved beside `path` at the end.

    The file itself is moved last: one whose companions are missing would be half-written.

    Raises:
        OSError: the files cannot be written.
    """
    with _temporary_folder(path) as folder:
        yield folder
        for file in sorted(folder.iterdir(), key=lambda file: file.name == path.name):
            file.replace(path.parent / file.name)


@contextmanager
def _temporary_folder(path: Path) -> Generator[Path]:
    folder = _unfinished(path)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unfinished(path: Path) -> Path:
    return path.absolute().with_name(f".{path.name}.{secrets.token_hex(8)}.part")
