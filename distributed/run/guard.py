"""A process beside each rank, which does what the rank cannot do while it waits inside of MPI, or when it is killed.

It is forked before MPI starts, belongs to a session of its own, which the launcher does not end, and ends with its
rank.
"""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from .launcher import end_ranks, own_rank

EXIT_CODE: Final = 2
END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
TURN_SECONDS: Final = 0.5
"""A rank speaks so much later than the one before where all have the same to say."""

STARTED, DONE, REMOVE = b"started", b"done", b"remove "

Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None


class EndSignals:
    """Signals that ask this process to end: bytes in a pipe, which other threads and processes can read.

    No handler of Python's runs while the main thread, which alone may set one, waits inside of MPI.
    """

    def __init__(self) -> None:
        """Take the signals from here on, in the main thread."""
        self.woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self.woken, False)
        self._handlers: Mapping[signal.Signals, Handler] = {}
        self._wake_before = -1
        if threading.current_thread() is threading.main_thread():
            self._handlers = {number: signal.signal(number, _pass) for number in END_SIGNALS}
            self._wake_before = signal.set_wakeup_fd(self._wake)

    def close(self) -> None:
        """Let signals have the effect that they had before."""
        if self._handlers:
            signal.set_wakeup_fd(self._wake_before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self.woken)
        os.close(self._wake)

    def wake(self) -> None:
        """Wake who waits for a signal, without one."""
        os.write(self._wake, bytes([0]))

    def next(self) -> int | None:
        """Return the number of a signal that has come, 0 for `wake`, None where none has."""
        try:
            return os.read(self.woken, 1)[0]
        except BlockingIOError:
            return None


def _pass(number: int, frame: FrameType | None) -> None:
    """Ignore a signal, which is read from the pipe."""


def end_code(number: int) -> int:
    """Return the exit code of a program that a signal ended."""
    return 128 + number


class Guard:
    """The guard process of this rank, and the pipe to it."""

    def __init__(self, write: int) -> None:
        """Tell it by a pipe."""
        self._write = write

    def started(self) -> None:
        """Let this process take as long as it likes from here on."""
        self._tell(STARTED)

    def remove_at_end(self, files: Sequence[Path]) -> None:
        """Have files removed when this process ends before its work is done."""
        for file in files:
            self._tell(REMOVE + os.fsencode(file.absolute()))

    def done(self) -> None:
        """Leave everything as it is."""
        self._tell(DONE)

    def _tell(self, line: bytes) -> None:
        with suppress(BrokenPipeError):
            os.write(self._write, line + b"\0")


@contextmanager
def guarded(seconds: float, signals: EndSignals) -> Generator[Guard]:
    """Have a guard while the body runs, which ends this process unless it has started after so many seconds."""
    ready, write = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        os.close(write)
        _guard(ready, parent, seconds, signals)
    os.close(ready)
    guard = Guard(write)
    try:
        yield guard
        guard.done()
    finally:
        os.close(write)
        os.waitpid(child, 0)


def _guard(ready: int, parent: int, seconds: float, signals: EndSignals) -> NoReturn:
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in END_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        said = _said_at_start(ready, parent, seconds, signals)
        while chunk := os.read(ready, 1 << 16):
            said += chunk
        lines = said.split(b"\0")
        if DONE not in lines:
            for line in lines:
                if line.startswith(REMOVE):
                    with suppress(OSError):
                        os.unlink(line.removeprefix(REMOVE))
    finally:
        os._exit(0)


def _said_at_start(ready: int, parent: int, seconds: float, signals: EndSignals) -> bytes:
    """Return the parent's bytes up to its start or end; end the parent if it is late, or at a signal."""
    limit, said = time.monotonic() + seconds + TURN_SECONDS * min(own_rank() or 0, 5), b""
    while STARTED not in said.split(b"\0"):
        found = select.select([ready, signals.woken], [], [], max(0.0, limit - time.monotonic()))[0]
        if ready in found:
            chunk = os.read(ready, 1 << 16)
            if not chunk:
                break
            said += chunk
        elif not found:
            _end(parent, f"not all ranks have started within {seconds:g} s", EXIT_CODE)
        elif number := signals.next():
            rank = own_rank()
            who = "" if rank is None else f"rank {rank} was "
            _end(parent, f"{who}ended by {signal.Signals(number).name}", end_code(number))
    return said


def _end(parent: int, message: str, code: int) -> NoReturn:
    os.write(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2, f"error: {message}\n".encode())
    end_ranks(code)
    os.kill(parent, signal.SIGKILL)
    os._exit(0)
