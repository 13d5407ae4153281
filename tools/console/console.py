"""The consoles: results go to standard output, progress to standard error."""

import os
import sys

from rich.console import Console

WIDE = 160
"""Columns of a table that goes to a file or a pipe, where nothing is folded; `COLUMNS` may say another number."""

IS_TERMINAL = sys.__stdout__ is not None and sys.__stdout__.isatty()
"""Whether there is a terminal, or any output at all: a program may be started with it closed."""

console = Console(width=None if IS_TERMINAL or "COLUMNS" in os.environ else WIDE)

progress_console = Console(stderr=True)
"""The console that says how far work is: what is printed beside it stays what was found."""


def is_live(progress: Console) -> bool:
    """Return whether a console shows what changes: on a terminal, unless it is to be quiet."""
    return progress.is_terminal and not progress.quiet
