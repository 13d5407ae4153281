"""A bar for what is done at the moment."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .console import is_live, progress_console

Watch = Callable[[str, int, int], None]
"""Called with what is done, how many parts of it are, and how many there are."""


@contextmanager
def progress_bar() -> Generator[Watch]:
    """Show a bar for what is done at the moment, with the time that is left; nothing in a file or a pipe."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    disable = not is_live(progress_console)
    with Progress(*columns, console=progress_console, transient=True, disable=disable) as progress:
        tasks = {"": progress.add_task("reading", total=None)}

        def watch(what: str, done: int, total: int) -> None:
            if what not in tasks:
                for task in tasks.values():
                    progress.update(task, visible=False)
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total, visible=True)

        yield watch
