"""One case in a process of its own, so that an abort, a hang or a flood ends nothing else."""

import contextlib
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.fuzzing.fuzzer import Fuzzer

WAITING = 6
"""Seconds on the clock for each second of CPU time that a case may use: other programs run on the machine, too."""

LOG, WORD = "log.txt", "outcome.txt"


class Outcome(NamedTuple):
    """What became of a case: a word that is counted, or what went wrong."""

    word: str
    problem: str = ""


def outcome_of(fuzzer: Fuzzer, work: Callable[[], str], folder: Path) -> Outcome:
    """The outcome of `work` in a forked process; what it prints is in the folder's log afterwards."""
    sys.stdout.flush()  # or it would be written by both
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _become_case(fuzzer, work, folder)
    status = _status_within(child, WAITING * fuzzer.seconds)
    if status is None:
        return Outcome("", f"hangs: not done after {WAITING * fuzzer.seconds} s")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        hang = f", {fuzzer.seconds} s of CPU time are used up" if number == signal.SIGXCPU else ""
        return Outcome("", f"ended by {signal.Signals(number).name}{hang}")
    if os.WEXITSTATUS(status) != 0:
        return Outcome("", _last_line(folder / LOG))
    return Outcome((folder / WORD).read_text())


def _become_case(fuzzer: Fuzzer, work: Callable[[], str], folder: Path) -> None:
    """Do the work and end; never returns into the parent's code."""
    code = 1
    try:
        os.setpgid(0, 0)  # so that whatever it starts ends with it
        log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (fuzzer.seconds, fuzzer.seconds + 5))
        resource.setrlimit(resource.RLIMIT_AS, (fuzzer.memory, fuzzer.memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        (folder / WORD).write_text(work())
        code = 0
    except BaseException:
        sys.stdout.flush()
        sys.stderr.flush()
        # not through sys.stderr, which may lead elsewhere, as under pytest
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _status_within(child: int, seconds: float) -> int | None:
    """How a process ended; None where it had to be killed."""
    end, pause, ended = time.monotonic() + seconds, 0.001, False
    try:
        while time.monotonic() < end:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                ended = True
                return status
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        return None
    finally:
        # also where this process is told to end
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if not ended:
            os.waitpid(child, 0)


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "ended without a word"


def emptied(folder: Path) -> Path:
    """The folder with nothing in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
