"""The console that results are printed to, and that says what is done meanwhile."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

WIDE = 160
"""Columns of a table that goes to a file or a pipe, where nothing needs to be folded."""

IS_TERMINAL = sys.__stdout__ is not None and sys.__stdout__.isatty()
"""Whether there is a terminal, or any output at all: a program may be started with it closed."""

console = Console(width=None if IS_TERMINAL else WIDE)


@contextmanager
def working(text: str, *, shown: bool = True) -> Generator[None]:
    """Show `text` and the time since it began while the block runs; nothing in a file or a pipe, or if not `shown`."""
    if not shown or not console.is_terminal or console.quiet:
        yield
        return
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task(text, total=None)
        yield
