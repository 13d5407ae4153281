"""Loops compiled in a process of their own, which keeps them in the folder of the cache and ends with its parent.

numba compiles under one lock and mostly under the interpreter's: in a thread it slows all others, and nothing stops it.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from threading import Thread
from typing import Any, Final

from .kept_loops import can_be_kept, is_kept

PATIENCE: Final = 0.02
"""Seconds between two questions for the time."""

_BEGIN: Final = f"import sys; sys.path[:] = sys.argv[1:]; from {__name__} import compile_as_told; compile_as_told()"
_processes: dict[bytes, subprocess.Popen[bytes]] = {}
"""Processes that were begun, by what they compile."""


def keep(function: Callable[..., object], loop: object, kinds: tuple[object, ...], is_late: Callable[[], bool]) -> bool:
    """Whether the loop of a function is kept for arguments of such types, or a process must compile it for itself.

    Before it is late another process is waited for that compiles it; one that fails leaves it to this one.
    """
    if is_kept(loop, kinds) or not can_be_kept(loop) or not _has_interpreter():
        return True
    told = pickle.dumps((function.__module__, function.__qualname__, kinds))
    process = _processes.get(told) or _begun(told)
    while process.poll() is None and not is_late():
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            continue
    return process.poll() is not None


def _has_interpreter() -> bool:
    """Whether a process can be begun that runs Python, not a program that contains it."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def _begun(told: bytes) -> subprocess.Popen[bytes]:
    nothing = subprocess.DEVNULL
    words = [sys.executable, "-c", _BEGIN, *sys.path]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing)
    assert process.stdin is not None
    process.stdin.write(told)
    process.stdin.flush()
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
