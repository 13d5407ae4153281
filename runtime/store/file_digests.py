"""Digests of files that are remembered beside the files' size, inode and times of change.

A digest is taken for granted while those are the same, as make and git do: reading and hashing would take longer than
all else that is done with code that was compiled before.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from .json_cache import recall, remember

SETTLED_SECONDS: Final = 2.0
"""Since a file's last change, before its digest is remembered: the coarsest clock of a file system counts by 2 s."""

Stamp = list[str | int]
"""A file's name, size, inode, and when content and state changed, in ns."""


def stamp(name: str, path: str | Path) -> Stamp:
    """Return a stamp that changes with a file.

    Raises:
        OSError: there is no such file.
    """
    stat = os.stat(path)
    return [name, stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns]


def recalled_digest(memory: Path, name: str, stamps_of: Callable[[Sequence[str]], list[Stamp]]) -> bytes | None:
    """Return the digest remembered under `name`, or None where the files are not as they were; `stamps_of` their names.

    Raises:
        OSError: a file is missing.
    """
    known = recall(memory, name)
    if known is None or known["stamps"] != stamps_of([str(one[0]) for one in known["stamps"]]):
        return None
    return bytes.fromhex(known["digest"])


def remember_digest(memory: Path, name: str, digest: bytes, stamps: list[Stamp], begun: int) -> None:
    """Remember the digest of files that were read since `begun`, in ns, and had these stamps afterwards.

    A file that changes again within the same tick of its clock would look the same: nothing is remembered then.
    """
    if all(int(one[-1]) < begun - SETTLED_SECONDS * 1e9 for one in stamps):
        remember(memory, name, {"digest": digest.hex(), "stamps": stamps})
