"""Ranks that hang before they can watch each other: a process that waits too long for the others to start ends itself.

Who waits inside of MPI's start runs no thread of Python's, so the clock is kept by a child process, which does nothing
but wait for its parent to be ready.
"""

import os
import select
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, NoReturn

WAITS: Final = 3.0
"""A start may take so many times what a rank may be silent later."""


@contextmanager
def started_within(seconds: float) -> Generator[None]:
    """End this process, with one line, unless the body is through after so many seconds."""
    ready, write = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        os.close(write)
        _guard(ready, parent, seconds)
    os.close(ready)
    try:
        yield
    finally:
        os.close(write)
        os.waitpid(child, 0)


def _guard(ready: int, parent: int, seconds: float) -> NoReturn:
    """Wait until the other end of the pipe is closed, by its owner or by its end."""
    if not select.select([ready], [], [], seconds)[0]:
        message = f"error: not all ranks have started within {seconds:g} s\n"
        os.write(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2, message.encode())
        os.kill(parent, signal.SIGKILL)
    os._exit(0)
