"""Loops compiled in a process of their own, which keeps them in the folder of the cache and ends with its parent.

numba compiles under one lock and mostly under the interpreter's: in a thread it slows all others, and nothing stops it.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import Any, Final

from .kept_loops import can_be_kept, is_kept
from .python_process import python_process

PATIENCE: Final = 0.02
"""Seconds between two questions for the time."""

_processes: dict[bytes, subprocess.Popen[bytes]] = {}
"""Processes that were begun, by what they compile."""


def keep(function: Callable[..., object], loop: object, kinds: tuple[object, ...], is_late: Callable[[], bool]) -> bool:
    """Whether the loop of a function is kept for arguments of such types, or a process must compile it for itself.

    Before it is late another process is waited for that compiles it; one that fails leaves it to this one.
    """
    if is_kept(loop, kinds) or not can_be_kept(loop):
        return True
    told = pickle.dumps((function.__module__, function.__qualname__, kinds))
    process = _processes.get(told) or _begun(told)
    if process is None:
        return True
    while process.poll() is None and not is_late():
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            continue
    return process.poll() is not None


def _begun(told: bytes) -> subprocess.Popen[bytes] | None:
    """Begin a process that compiles what it is told; None where none can be begun."""
    process = python_process(__name__, compile_as_told.__name__)
    if process is not None:
        assert process.stdin is not None
        # one that has ended by now has compiled nothing, which is seen later
        with suppress(BrokenPipeError):
            process.stdin.write(told)
        _processes[told] = process
    return process


def compile_as_told() -> None:
    """Compile the loop that is named on standard input, whose end is that of the parent, and of this process."""
    module, name, kinds = pickle.load(sys.stdin.buffer)
    Thread(target=_end_with_input, daemon=True).start()
    loop: Any = getattr(import_module(module), name)
    loop.compiled.compile(kinds)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)
