"""Ranks that die or hang: all others end, with one line that says which.

At the start a process waits inside of MPI, where no thread of Python's runs: a child process, which does nothing but
wait for its parent to be ready, keeps the clock, and ends a parent that is too late. Later a thread of every rank sends
a beat to the next rank in a ring, and expects one from the rank before. It goes on while the rank computes or waits in
MPI, and stops with the process. Who hears nothing for `patience` seconds aborts all ranks through MPI's launcher.
So does who is asked to end by a signal: the thread is told of it also while the main one waits in MPI.
MPICH's launcher, told to abort, leaves a stopped process alone about once in twenty times; signals can reach it.
"""

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import numpy as np

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

START_FACTOR: Final = 3.0
"""A start may take so many times what a rank may be silent later."""

BEATS_A_SECOND: Final = 4.0
DEFAULT_PATIENCE: Final = 10.0
"""Seconds without a beat after which a rank counts as dead."""

LAST_WORDS_SECONDS: Final = 0.3
EXIT_CODE: Final = 2
BEAT, LAST_BEAT = 0, 1
END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None


@contextmanager
def started_within(seconds: float) -> Generator[None]:
    """End this process, with one line, unless the body is through after so many seconds."""
    # inside of MPI no handler of Python's would run
    handlers = _with_handlers(signal.SIG_DFL)
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
        _restore(handlers)


def _with_handlers(handler: Handler) -> dict[signal.Signals, Handler]:
    """Let signals that ask a process to end be handled otherwise; return how they were, nothing outside of the main
    thread, which alone may change it.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, handler) for number in END_SIGNALS}


def _pass(number: int, frame: FrameType | None) -> None:
    """Ignore a signal, which the thread that watches reads."""


def _restore(handlers: Mapping[signal.Signals, Handler]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _guard(ready: int, parent: int, seconds: float) -> NoReturn:
    """Wait until the other end of the pipe is closed, by its owner or by its end."""
    if not select.select([ready], [], [], seconds)[0]:
        message = f"error: not all ranks have started within {seconds:g} s\n"
        os.write(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2, message.encode())
        os.kill(parent, signal.SIGKILL)
    os._exit(0)


class ProcessAddress(NamedTuple):
    """Identity of a process: its machine, its namespace (containers of one name may share the first), its number."""

    machine: str
    namespace: str
    process: int


def own_address() -> ProcessAddress:
    """Return what other processes find this one by."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return ProcessAddress(socket.gethostname(), namespace, os.getpid())


@dataclass
class LocalProcess:
    """A process of this machine, or nothing when it is elsewhere or the system has no handles of processes."""

    handle: int | None

    @classmethod
    def at(cls, address: ProcessAddress) -> "LocalProcess":
        """Open the process at an address."""
        if address != own_address()._replace(process=address.process) or not hasattr(os, "pidfd_open"):
            return cls(None)
        try:
            return cls(os.pidfd_open(address.process))
        except OSError:
            return cls(None)

    def kill(self) -> None:
        """End the process, if it is still there."""
        if self.handle is not None:
            with suppress(OSError):
                signal.pidfd_send_signal(self.handle, signal.SIGKILL)

    def close(self) -> None:
        """Give the handle back."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


class Watch:
    """The beats of one rank."""

    def __init__(self, comm: "Intracomm", patience: float, clean_up: Callable[[], None]) -> None:
        """Start to send and to listen, on a communicator of its own.

        Raises:
            ValueError: the patience is shorter than a few beats.
        """
        if patience < 4 / BEATS_A_SECOND:
            raise ValueError(f"patience is {patience} s, expected {4 / BEATS_A_SECOND} or more")
        self._comm: Intracomm = comm.Dup()
        self._patience, self._clean_up = patience, clean_up
        self._before, self._next = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
        address = self._comm.sendrecv(own_address(), dest=self._next, source=self._before)
        self._process_before = LocalProcess.at(address)
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._sent: list[tuple[Request, object]] = []
        self._ended = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._handlers = _with_handlers(_pass)
        self._wake_before = signal.set_wakeup_fd(self._wake) if self._handlers else -1
        self._thread.start()

    def close(self) -> None:
        """Stop, together with all other ranks."""
        os.write(self._wake, bytes([0]))
        self._thread.join()
        if self._handlers:
            signal.set_wakeup_fd(self._wake_before)
            _with_handlers(signal.SIG_DFL)
        if self._comm.size > 1:
            self._send(LAST_BEAT)
            heard = time.monotonic()
            while not self._ended:
                heard = self._listen(heard)
                time.sleep(0.001)
            for request, _ in self._sent:
                request.Wait()
        self._process_before.close()
        self._comm.Free()
        _restore(self._handlers)
        os.close(self._woken)
        os.close(self._wake)

    def _watch(self) -> None:
        heard = looked = time.monotonic()
        while not self._asked_to_stop(1 / BEATS_A_SECOND):
            if self._comm.size == 1:
                continue
            now = time.monotonic()
            if now - looked > self._patience / 2:
                heard = now  # this process itself was stopped for a while
            looked = now
            self._send(BEAT)
            heard = self._listen(heard)

    def _asked_to_stop(self, seconds: float) -> bool:
        """Wait so long, unless `close` wakes this thread; end all ranks where a signal does."""
        if not select.select([self._woken], [], [], seconds)[0]:
            return False
        (number,) = os.read(self._woken, 1)
        if number in END_SIGNALS:
            self._clean_up()
            # the launcher, where another rank has ended all, asks first and kills then: that rank has said why
            time.sleep(LAST_WORDS_SECONDS)
            message = f"rank {self._comm.rank} was ended by {signal.Signals(number).name}"
            end_all(self._comm, message, self._clean_up)
        return number == 0

    def _send(self, beat: int) -> None:
        message = np.array([beat], dtype=np.uint8)
        self._sent = [entry for entry in self._sent if not entry[0].Test()]
        self._sent.append((self._comm.Isend(message, dest=self._next), message))

    def _listen(self, heard: float) -> float:
        """Return when the last beat was heard; end all ranks when that was too long ago."""
        message = np.empty(1, dtype=np.uint8)
        while not self._ended and self._comm.Iprobe(source=self._before):
            self._comm.Recv(message, source=self._before)
            self._ended = bool(message[0] == LAST_BEAT)
            heard = time.monotonic()
        if not self._ended and time.monotonic() - heard > self._patience:
            message = f"rank {self._before} has not answered for {self._patience:g} s"
            end_all(self._comm, message, self._clean_up, self._process_before)
        return heard


def end_all(
    comm: "Intracomm", message: str, clean_up: Callable[[], None], hanging: LocalProcess | None = None
) -> NoReturn:
    """Say in one line why, and end the processes of all ranks; the launcher may not reach one that hangs."""
    clean_up()
    print(f"error: {message}", file=sys.stderr, flush=True)
    # the launcher passes the line on, unless it has to end everything first
    time.sleep(LAST_WORDS_SECONDS)
    if hanging is not None:
        hanging.kill()
    comm.Abort(EXIT_CODE)
    # MPICH may come back from there
    os._exit(EXIT_CODE)


@contextmanager
def watched(
    comm: "Intracomm", patience: float = DEFAULT_PATIENCE, clean_up: Callable[[], None] = lambda: None
) -> Generator[None]:
    """Watch the ranks of `comm` while the body runs; all must enter, and all leave, by the same way."""
    watch = Watch(comm, patience, clean_up)
    try:
        yield
    except BaseException as error:  # of this rank alone: the others would wait for it
        text = " ".join(str(error).split()) or type(error).__name__
        end_all(comm, f"rank {comm.rank}: {text}", clean_up)
    watch.close()
