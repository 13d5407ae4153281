"""A pool of threads for one network: Python's threads, which stay in native code until the pool is closed.

A process made by `fork` has none of its parent's threads, and its locks are as they were at that instant. There a pool
begins anew with the first call that wants it: children that make no call get no threads.
"""

import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..lowering.calls.pool import pool_bytes
from ..lowering.calls.python_call import Entry
from .call_code import call_code
from .jit import MachineCode
from .memory import address_of, aligned_bytes


class NativeCall:
    """Code and its frame; `run` is looked up for each call, since after a fork it is another one for once."""

    __slots__ = ("__weakref__", "direct", "run")

    def __init__(self, run: Callable[[], object]) -> None:
        self.run = run
        self.direct: NDArray[np.int64] | None = None
        """The words of `python_call.Entry` by which the interpreter makes the call without us, where there are any."""

    def allow_direct(self, *, allowed: bool) -> None:
        """Say whether the interpreter may make the call without us: else it finds that the call is under way."""
        if self.direct is not None:
            self.direct[Entry.busy] = int(not allowed)


class ThreadPool:
    """`threads` - 1 workers beside the thread that makes a call; they end when the pool is collected."""

    def __init__(self, threads: int) -> None:
        """Start the workers."""
        self.threads = threads
        self._state = aligned_bytes(pool_bytes(threads))
        self.address = address_of(self._state)
        self._calls = weakref.WeakKeyDictionary[NativeCall, Callable[[], object]]()
        self._lock = threading.Lock()
        self._start()
        _POOLS.add(self)

    def add(self, call: NativeCall) -> None:
        """Remember a call on this pool; it lives no longer for that."""
        with self._lock:
            self._begin_where_forgotten()
            self._calls[call] = call.run

    def _start(self) -> None:
        code = call_code()
        self._state[...] = 0
        code.functions["start"](self.address, self.threads)
        serve = code.functions["serve"]
        workers = [threading.Thread(target=serve, args=(self.address,), daemon=True) for _ in range(1, self.threads)]
        for worker in workers:
            worker.start()
        self._finalizer = weakref.finalize(self, _close, code, self._state, workers)

    def forget_workers(self) -> None:
        """Let the next call start the workers: this process is new, and they are its parent's."""
        self._lock = threading.Lock()
        self._finalizer.detach()
        for call in self._calls:
            call.run = partial(self._begin_anew, call)
            call.allow_direct(allowed=False)

    def _begin_anew(self, call: NativeCall) -> object:
        with self._lock:
            self._begin_where_forgotten()
        return call.run()

    def _begin_where_forgotten(self) -> None:
        if self._finalizer.alive:
            return
        self._start()
        for known, run in self._calls.items():
            known.run = run
            known.allow_direct(allowed=True)


def _close(code: MachineCode, state: NDArray[np.uint8], workers: list[threading.Thread]) -> None:
    """End the workers when no call has them, nor gets them; code and state must outlive them."""
    code.functions["stop"](address_of(state))
    for worker in workers:
        worker.join()


_POOLS: Final = weakref.WeakSet[ThreadPool]()
"""All pools of this process, which a fork has to find."""


def _forget_workers() -> None:
    for pool in _POOLS:
        pool.forget_workers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)
