"""A process of Python beside this one, which does what it reads on its standard input."""

import subprocess
import sys

from .log import LOG


def python_process(module: str, function: str, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes] | None:
    """Begin a process that imports what this one can, and calls a function of a module; None where none can be begun.

    Its standard input is a pipe without a buffer. The executable of a frozen program is that program, not Python.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        return None
    program = f"import sys; sys.path[:] = {sys.path!r}; from {module} import {function}; {function}()"
    try:
        return subprocess.Popen(
            [sys.executable, "-c", program],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        LOG.info("code is compiled in this process, since none can be started beside it: %s", error)
        return None
