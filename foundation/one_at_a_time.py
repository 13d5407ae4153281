"""Work that several processes would do at once, for one cache: one does it, and the others wait for its result."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # no such locks on this system: each process does the work
    fcntl = None

from .private_files import private_folder


@contextmanager
def one_at_a_time(result: Path | None) -> Generator[None]:
    """Hold the lock of a file of the cache; a caller looks for the file once more, since others may have made it.

    Threads wait for each other as processes do. The lock of a process that ends, however it ends, is free. Where the
    cache cannot be written to, and for no file, nobody waits.
    """
    lock = None if result is None else _opened(result.with_name(f"{result.name}.lock"))
    if lock is None or result is None or fcntl is None:
        yield
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        # who waits for this file holds it open, and who comes later makes another: at worst both do the work
        with suppress(OSError):
            os.unlink(result.with_name(f"{result.name}.lock"))
        # not by closing it alone: a child of `fork` may have it, too
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _opened(path: Path) -> int | None:
    try:
        private_folder(path.parent)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
