"""The console that results are printed to."""

import sys

from rich.console import Console

WIDE = 160
"""Columns of a table that goes to a file or a pipe, where nothing needs to be folded."""

console = Console(width=None if sys.stdout.isatty() else WIDE)
