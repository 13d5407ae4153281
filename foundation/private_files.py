"""Files that nobody but the user can have written: what a process takes for its own work of another day.

Whoever can put native code into the cache has it run by whoever compiles the same model. So a folder and a file count
only where they belong to the user (or to root, who may replace the interpreter as well) and others cannot write to
them; no link is followed, and what was checked is what is read, by one descriptor.
"""

import os
import stat
from pathlib import Path
from typing import Final, NoReturn

from .errors import RedpebbleError

ROOT: Final = 0


class UntrustedFileError(RedpebbleError, PermissionError):
    """A file or folder that others can have written; the message says why."""


def private_folder(folder: Path) -> None:
    """Create a private folder, or check the permissions of an existing one.

    Raises:
        UntrustedFileError: others can write to it.
        OSError: it cannot be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        os.close(_open_folder(folder))


def open_private(path: Path) -> int:
    """Return a descriptor to read a file by, which the caller closes.

    Raises:
        UntrustedFileError: it is no plain file, or others can write to it or to its folder.
        OSError: it cannot be opened.
    """
    folder = _open_folder(path.parent)
    try:
        # a pipe would be waited for
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(path.name, flags, dir_fd=folder)
    finally:
        os.close(folder)
    _check(file, path)
    return file


def read_private(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        UntrustedFileError: it is no plain file, or others can write to it or to its folder.
        OSError: it cannot be read.
    """
    with open(open_private(path), "rb") as file:
        return file.read()


def _open_folder(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _check(descriptor, folder)
    return descriptor


def _check(descriptor: int, path: Path) -> None:
    """Raise, and close the descriptor, if anyone but the user can write to its file."""
    found, user = os.fstat(descriptor), os.geteuid()
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        _refuse(descriptor, f"{path} is no plain file")
    if found.st_uid not in (user, ROOT):
        _refuse(descriptor, f"{path}: expected owner {user} or root, got user {found.st_uid}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        _refuse(descriptor, f"{path}: expected only its owner to write to it, got others (try `chmod go-w`)")


def _refuse(descriptor: int, message: str) -> NoReturn:
    os.close(descriptor)
    raise UntrustedFileError(message)
