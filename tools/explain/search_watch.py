"""Searches that show how much of their time is left, and that SIGINT or SIGTERM ends with the best order so far."""

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..console.console import is_live, progress_console

ENDING: Final = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a search; a second one ends the process at once."""


class SearchWatch:
    """Seconds that searches have spent so far, and the signal that asks them to end."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self.ended_by = 0
        """Number of the signal that came, 0 while none has."""

    def spent(self, seconds: float) -> None:
        """Show that so many more seconds of the budget are spent."""
        if self._progress is not None:
            self._progress.advance(self._progress.task_ids[0], seconds)


@contextmanager
def watched_search(text: str, seconds: float | None) -> Generator[SearchWatch]:
    """Yield the watch of searches that take so many seconds together, or an unknown time; `text` says what they are."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    progress = Progress(*columns, TimeRemainingColumn(), TextColumn("left"), console=progress_console, transient=True)
    progress.add_task(text, total=seconds)
    watch = SearchWatch(progress)

    def end(number: int, _: FrameType | None) -> None:
        watch.ended_by = number
        for one, handler in before.items():
            signal.signal(one, handler)

    before = {number: signal.signal(number, end) for number in ENDING}
    try:
        if not is_live(progress_console) or seconds == 0:
            yield watch
        else:
            with progress:
                yield watch
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_where_asked(watch: SearchWatch, kept: str) -> None:
    """End the process as the signal asks that ended a search, after a line that says what was kept.

    Raises:
        SystemExit: there was a signal.
    """
    if watch.ended_by:
        print(f"error: ended by {signal.Signals(watch.ended_by).name}; {kept}", file=sys.stderr)
        raise SystemExit(128 + watch.ended_by)
