"""Code for the sizes that calls have: made in the background, one size at a time, and kept for those used last.

```
a call of a new size          ->  requested: onnxruntime serves this call, and all of its size until there is code
the size requested most often ->  compiled by a process of its own, kept in the cache
code in the cache             ->  a session, made here in some milliseconds, which serves the calls from then on
```
"""

import atexit
import os
import sys
from _thread import start_new_thread
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Event, Lock
from typing import Final, NamedTuple

import onnxruntime

from ..foundation.log import LOG
from .compiling_process import CompilingProcess
from .counters import Name, count, counted_into
from .custom_ops.node import one_line
from .session_arguments import Sizes, Wanted

Key = tuple[tuple[str, int], ...]
"""Sizes by the names of axes."""


class Opening(NamedTuple):
    """The functions that find and make a session for calls of certain sizes."""

    is_cached: Callable[[Sizes], bool]
    """Whether the cache has the model that there is for them; raises ValueError if that is not the same any more."""
    make: Callable[[Sizes], onnxruntime.InferenceSession | None]
    """Makes it, from the cache where it can; None where nothing is gained by it."""


MOST_KEPT: Final = 32
"""Sessions for one size each that are kept at a time, those used last."""

MOST_BYTES: Final = 1 << 30
"""Bytes that they may take together, each as many as the model, but for `FEWEST_SIZES`."""

FEWEST_SIZES: Final = 2

EAGER_SIZES: Final = 8
"""Sizes that code is made for when they first come; from then on, when they come for the second time."""

MOST_REQUESTS: Final = 256
"""Sizes that wait at a time: what comes once is forgotten."""

LINGER_SECONDS: Final = 30.0
"""Time without requests after which the thread that makes code, and the process that compiles for it, end."""

POLL_SECONDS: Final = 0.1

SWITCH_SECONDS: Final = 1e-4
"""Time for which the thread that opens a session keeps Python from calls: they may take no longer themselves."""


class CodeOfSizes:
    """Sessions for one size each, and the sizes that calls wait for; calls may come from any thread."""

    def __init__(self, source: str | bytes | None, wanted: Wanted, opening: Opening) -> None:
        """Begin without any; `opening` makes a session of `source`, a file or its bytes, None where it is neither."""
        self._source, self._wanted, self._opening = source, wanted, opening
        self._most = max(FEWEST_SIZES, min(MOST_KEPT, MOST_BYTES // max(1, _bytes_of(source))))
        self._is_closed = Event()
        self._begin_in_process()
        self._sessions: OrderedDict[Key, onnxruntime.InferenceSession | None] = OrderedDict()
        self._requests: OrderedDict[Key, int] = OrderedDict()
        self._last: Key = ()
        """The sizes of the call before, which have a session or need none."""
        self.counts: dict[Name, float] = {}
        """Counts of `redpebble.counters` that making code has added to."""
        self._met = 0
        """Sizes that code was made for so far."""

    def _begin_in_process(self) -> None:
        """Begin without a thread, also in a process that was forked, where one that is gone may hold the lock."""
        self._lock, self._process = Lock(), os.getpid()
        self._compiling = CompilingProcess(self._source, self._wanted)
        self._requested, self._idle, self._has_ended = Event(), Event(), Event()
        for event in (self._idle, self._has_ended):
            event.set()

    def of(self, key: Key) -> onnxruntime.InferenceSession | None:
        """Return the session for these sizes; None where there is none, which may be made for later calls."""
        if key == self._last:  # most calls: neither the order changes, nor is there anything to request
            return self._sessions.get(key)
        if os.getpid() != self._process:
            self._begin_in_process()
        with self._lock:
            if key in self._sessions:
                self._sessions.move_to_end(key)
                self._last = key
                return self._sessions[key]
            self._request(key)
        return None

    def _request(self, key: Key) -> None:
        self._requests[key] = self._requests.pop(key, 0) + 1
        if len(self._requests) > MOST_REQUESTS:
            self._requests.popitem(last=False)
        if self._next_request() is None:
            return
        self._idle.clear()
        self._requested.set()
        if self._has_ended.is_set():
            self._has_ended.clear()
            serving().add(self)
            start_new_thread(self._serve, ())  # as `Thread` does, but for waiting here until a core begins with it

    def prepare(self, key: Key) -> None:
        """Make the session for these sizes, in this thread.

        Raises:
            ModelError: the model cannot have these sizes.
        """
        with self._lock:
            if key in self._sessions:
                return
        with counted_into(self.counts):
            made = self._opening.make(dict(key))
        self._keep(key, made)

    def ready_sizes(self) -> list[Sizes]:
        """Return the sizes that have code, those of the last call at the end."""
        with self._lock:
            return [dict(key) for key, session in self._sessions.items() if session is not None]

    def close(self) -> None:
        """Make no further code, and end what is being made."""
        self._is_closed.set()
        self._compiling.interrupt()
        self._requested.set()

    def close_at_exit(self) -> None:
        """Make no further code, and return when no thread is within native code that is about to be torn down."""
        self.close()
        if self._process == os.getpid():
            self._has_ended.wait()

    def wait(self) -> None:
        """Wait until nothing is requested: for tests, and for measurements."""
        self._idle.wait()

    def _next_request(self) -> Key | None:
        """Return the size that was called most often, the latest of several; None where all may wait."""
        if self._met >= EAGER_SIZES and not any(self._sessions.values()):
            return None  # nothing gains, whatever the sizes are
        least = 1 if self._met < EAGER_SIZES else 2
        requests = [key for key, calls in self._requests.items() if calls >= least]
        return max(reversed(requests), key=self._requests.__getitem__, default=None)

    def _next(self) -> Key | None:
        with self._lock:
            key = None if self._is_closed.is_set() else self._next_request()
            if key is None:
                self._requested.clear()
                self._idle.set()
            return key

    def _keep(self, key: Key, session: onnxruntime.InferenceSession | None) -> None:
        dropped: list[onnxruntime.InferenceSession | None] = []  # which takes longer than a call may wait for the lock
        with self._lock:
            self._met += 1
            self._requests.pop(key, None)
            self._sessions[key] = session
            self._sessions.move_to_end(key)
            self._last = key
            while sum(kept is not None for kept in self._sessions.values()) > self._most:
                dropped.append(self._sessions.popitem(last=False)[1])
            if len(self._sessions) > MOST_REQUESTS:
                dropped.append(self._sessions.popitem(last=False)[1])

    def _serve(self) -> None:
        """Serve requests until there are none for a while."""
        turn = _turn(self._process)
        try:
            while (key := self._next()) is not None or not self._ends():
                if key is not None and self._take(turn):
                    try:
                        with counted_into(self.counts):
                            self._serve_request(key)
                    finally:
                        turn.release()
        finally:  # whatever happens, the interpreter waits for this at exit
            self._has_ended.set()

    def _ends(self) -> bool:
        """Wait for a request, and end where there is none for a while, or where code is wanted no more."""
        if not self._is_closed.is_set():
            self._requested.wait(LINGER_SECONDS)
        with self._lock:
            if self._requested.is_set() and not self._is_closed.is_set():
                return False
            idle, self._compiling = self._compiling, CompilingProcess(self._source, self._wanted)
            self._idle.set()
            self._has_ended.set()
            serving().discard(self)
        idle.end()
        return True

    def _take(self, turn: Lock) -> bool:
        """Wait for other sessions of this process to have compiled; return False where code is wanted no more."""
        while not self._is_closed.is_set():
            if turn.acquire(timeout=POLL_SECONDS):
                return True
        return False

    def _serve_request(self, key: Key) -> None:
        """Make what is requested; the request is left where code is wanted no more."""
        words, made = ", ".join(f"{name}={size}" for name, size in key), None
        try:
            if not self._opening.is_cached(dict(key)) and not self._compiling.compile(key, self._is_closed.is_set):
                return
            with _short_turns():
                made = self._opening.make(dict(key))
        except Exception as error:  # whatever it is, onnxruntime runs these sizes
            LOG.warning("inputs of %s stay with onnxruntime: %s", words, one_line(error))
        else:
            LOG.info("%s with inputs of %s", "nothing gains" if made is None else "there is code for calls", words)
        count("sizes_left" if made is None else "sizes_compiled")
        self._keep(key, made)


@cache
def _turn(process: int) -> Lock:
    """Return the lock of what compiles in the background of a process: one size at a time, of all sessions."""
    del process
    return Lock()


@cache
def serving() -> "set[CodeOfSizes]":
    """Return what has a thread in this process; at exit there is none any more."""
    found: set[CodeOfSizes] = set()

    def close() -> None:
        for code in [*found]:
            code.close_at_exit()

    atexit.register(close)
    return found


@contextmanager
def _short_turns() -> Generator[None]:
    """Let calls of other threads have Python soon; one thread of a process does this at a time (`_turn`)."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, SWITCH_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def _bytes_of(source: str | bytes | None) -> int:
    if isinstance(source, str):
        return Path(source).stat().st_size
    return MOST_BYTES if source is None else len(source)  # what is neither has too many bytes for a file of its own
