"""A process that compiles for a session: beside it, so that calls wait neither for Python nor for a core.

It fills the cache of the user. Requests are lines of JSON, the sizes of axes by name, and so are its replies.
"""

import json
import subprocess
from collections.abc import Callable
from dataclasses import astuple
from typing import IO, Final

from ..foundation.log import LOG
from ..foundation.python_process import python_process
from ..runtime.jit import host_target
from .session_arguments import Wanted

MODULE: Final = f"{__package__}.compile_sizes"


class CompilingProcess:
    """The process, which is started by the first request."""

    def __init__(self, source: str | bytes | None, wanted: Wanted) -> None:
        """Be ready to compile a model for some threads and rows: a file, its bytes, or None, which nothing can."""
        self._source, self._wanted = source, wanted
        self._process: subprocess.Popen[bytes] | None = None
        self._can_start = source is not None

    def compile(self, sizes: tuple[tuple[str, int], ...], is_over: Callable[[], bool]) -> bool:
        """Have code for certain sizes in the cache; return False where `is_over` has become true before.

        Where no process can be started there is none afterwards. `interrupt` makes an end of it, from another thread.

        Raises:
            RuntimeError: the process ended, or says why there can be none.
        """
        if self._process is None and self._can_start:
            self._start()
        if is_over():
            return False
        if self._process is None:
            return True
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            _send(self._process.stdin, dict(sizes))
            reply = _line(self._process.stdout)
        except BrokenPipeError:
            reply = b""
        if is_over():
            return False
        if not reply.endswith(b"\n"):
            code = self._process.wait()
            self._process = None
            raise RuntimeError(f"the process that compiles ended with code {code}")
        error = json.loads(reply)["error"]
        if error:
            raise RuntimeError(error)
        return True

    def interrupt(self) -> None:
        """End the process while `compile` waits for it: files in the cache are complete or absent."""
        process = self._process
        if process is not None:
            process.kill()

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._process is None:
            return
        self._process.kill()
        with self._process:
            self._process = None

    def _start(self) -> None:
        self._process = python_process(MODULE, "main", subprocess.PIPE)
        if self._process is None:
            self._can_start = False
            return
        assert self._process.stdin is not None
        content = self._source if isinstance(self._source, bytes) else b""
        path = self._source if isinstance(self._source, str) else ""
        asked = {"path": path, "bytes": len(content), "threads": self._wanted.threads, "rows": self._wanted.rows}
        asked["choices"] = self._wanted.choices.text
        asked |= {"level": LOG.getEffectiveLevel(), "cpu": list(astuple(host_target()))}
        try:
            _send(self._process.stdin, asked)
            view = memoryview(content)
            while view:
                view = view[self._process.stdin.write(view) :]
        except BrokenPipeError:
            LOG.debug("the process that compiles has ended, which its first reply says")


def _send(pipe: IO[bytes], message: object) -> None:
    pipe.write(json.dumps(message).encode() + b"\n")


def _line(pipe: IO[bytes]) -> bytes:
    """Return a line that a process writes, without its end where the process ends first.

    To look for it now and then would take Python from calls that run meanwhile.
    """
    found = b""
    while not found.endswith(b"\n") and (part := pipe.read(1 << 16)):
        found += part
    return found
