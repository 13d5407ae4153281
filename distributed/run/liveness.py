"""Dead and hanging ranks: the other ranks end, with one line that names the rank.

At the start a process waits inside of MPI, where no thread of Python's runs: its guard keeps the clock. Later a thread
of every rank sends a beat to the next rank in a ring, and expects one from the rank before. It goes on while the rank
computes or waits in MPI, and stops with the process. A rank that hears nothing for `patience` seconds aborts all ranks
through MPI's launcher. So does a rank that gets a signal to end: the thread hears of it while the main thread waits in
MPI. MPICH's launcher, told to abort, leaves a stopped process alone about once in twenty times; signals can reach it.
"""

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import numpy as np

from .guard import END_SIGNALS, EXIT_CODE, EndSignals, end_code
from .launcher import end_ranks

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

START_FACTOR: Final = 3.0
"""A start may take so many times what a rank may be silent later."""

BEATS_A_SECOND: Final = 4.0
DEFAULT_PATIENCE: Final = 10.0
"""Seconds without a beat after which a rank counts as dead."""

LAST_WORDS_SECONDS: Final = 0.3
KILL_SECONDS: Final = 0.5
"""Time of the launcher to end a rank that hangs before it is killed: it takes a kill for the cause of the end."""

BEAT, LAST_BEAT = 0, 1


class ProcessAddress(NamedTuple):
    """Identity of a process: its machine, its namespace (containers of one name may share the first), its number."""

    machine: str
    namespace: str
    process: int


def own_address() -> ProcessAddress:
    """Return the identity by which other processes find this one."""
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

    def kill_later(self) -> None:
        """End the process, if it is still there after a while in which this one may be ended as well."""
        if self.handle is not None and os.fork() == 0:
            try:
                os.setsid()
                time.sleep(LAST_WORDS_SECONDS + KILL_SECONDS)
                signal.pidfd_send_signal(self.handle, signal.SIGKILL)
            finally:
                os._exit(0)

    def close(self) -> None:
        """Give the handle back."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


class Watch:
    """The beats of one rank."""

    def __init__(self, comm: "Intracomm", patience: float, clean_up: Callable[[], None], signals: EndSignals) -> None:
        """Start to send and to listen, on a communicator of its own.

        Raises:
            ValueError: the patience is shorter than a few beats.
        """
        if patience < 4 / BEATS_A_SECOND:
            raise ValueError(f"patience: expected {4 / BEATS_A_SECOND} s or more, got {patience}")
        self._comm: Intracomm = comm.Dup()
        self._patience, self._clean_up = patience, clean_up
        self._before, self._next = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
        address = self._comm.sendrecv(own_address(), dest=self._next, source=self._before)
        self._process_before = LocalProcess.at(address)
        self._signals = signals
        self._sent: list[tuple[Request, object]] = []
        self._ended = self._stopping = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, together with all other ranks."""
        self._stopping = True
        self._signals.wake()
        self._thread.join()
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
        select.select([self._signals.woken], [], [], seconds)
        number = self._signals.next()
        if number is not None and number in END_SIGNALS:
            # the launcher, where another rank has ended all, asks first and kills then: that rank has said why
            time.sleep(LAST_WORDS_SECONDS)
            message = f"rank {self._comm.rank} was ended by {signal.Signals(number).name}"
            end_all(self._comm, message, self._clean_up, code=end_code(number))
        return self._stopping

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
    comm: "Intracomm",
    message: str,
    clean_up: Callable[[], None],
    hanging: LocalProcess | None = None,
    code: int = EXIT_CODE,
) -> NoReturn:
    """Say in one line why, and end the processes of all ranks; the launcher may not reach one that hangs."""
    print(f"error: {message}", file=sys.stderr, flush=True)
    if hanging is not None:
        hanging.kill_later()
    # the launcher passes the line on, unless it has to end everything first
    time.sleep(LAST_WORDS_SECONDS)
    # not before: the rank that writes would have an error of its own to tell
    clean_up()
    end_ranks(code)
    comm.Abort(code)
    # MPICH may come back from there
    os._exit(code)


@contextmanager
def watched(
    comm: "Intracomm",
    patience: float = DEFAULT_PATIENCE,
    clean_up: Callable[[], None] = lambda: None,
    signals: EndSignals | None = None,
) -> Generator[None]:
    """Watch the ranks of `comm` while the body runs; all must enter, and all leave, by the same way.

    `signals` are closed by who has opened them.
    """
    read = EndSignals() if signals is None else signals
    watch = Watch(comm, patience, clean_up, read)
    try:
        yield
    except BaseException as error:  # of this rank alone: the others would wait for it
        text = " ".join(str(error).split()) or type(error).__name__
        end_all(comm, f"rank {comm.rank}: {text}", clean_up)
    watch.close()
    if signals is None:
        read.close()
