"""The console that results are printed to."""

import sys

from rich.console import Console

WIDE = 160
"""Columns of a table that goes to a file or a pipe, where nothing needs to be folded."""

IS_TERMINAL = sys.__stdout__ is not None and sys.__stdout__.isatty()
"""Whether there is a terminal, or any output at all: a program may be started with it closed."""

console = Console(width=None if IS_TERMINAL else WIDE)
