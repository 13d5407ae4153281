"""A progress bar on a terminal: loss, quality and predicted speed; nothing in a file or a pipe, or without rich."""

from importlib import import_module
from typing import Any

from .history import Point


class ProgressBar:
    """A bar from 0 to 1."""

    def __init__(self, speed: float | None, is_shown: bool) -> None:
        self._progress: Any = None
        self._tail = "" if speed is None else f"{speed:.2f}x as fast (predicted)"
        if not is_shown:
            return
        try:
            console, bars = import_module("rich.console").Console(stderr=True), import_module("rich.progress")
        except ModuleNotFoundError:
            return
        if console.is_terminal:
            text = bars.TextColumn("{task.description}")
            columns = (text, bars.BarColumn(), bars.TimeRemainingColumn())
            self._progress = bars.Progress(*columns, console=console, transient=True)
            self._task = self._progress.add_task("training", total=1.0)
            self._progress.start()

    def show(self, share: float, point: Point | None, quality: str) -> None:
        """Show how far the training is."""
        if self._progress is not None:
            words = [f"loss {point.loss:.4g}" if point else "training", quality, self._tail]
            self._progress.update(self._task, completed=share, description=", ".join(filter(None, words)))

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
