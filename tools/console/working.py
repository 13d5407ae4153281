"""Work that says how long it has taken and about how long it still takes; nothing in a file or a pipe.

What is left is told by what the same work took before, for the model nearest in size: each command that has taken
longer than `LEAST_SECONDS` on a terminal is remembered in the user's cache.
"""

import hashlib
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text
from typing_extensions import override

from ...runtime.store.cache import default_folder
from ...runtime.store.json_cache import recall_list, remember
from .console import is_live, progress_console

LEAST_SECONDS: Final = 2.0
"""Time from which on it is worth to be remembered: what comes from the cache says nothing of what does not."""

MOST_RUNS: Final = 16
"""Runs of one kind of work that are remembered, the last ones."""

SMALL_BYTES: Final = 1 << 20
"""Bytes of a model that count at least: below, it is the start that takes the time."""


class Run(NamedTuple):
    """Work that was done before: bytes of the model, and seconds."""

    size: int
    seconds: float


FIRST_RUNS: Final = MappingProxyType(
    {
        "optimizing": Run(44_944_067, 5.1),
        "choosing and measuring kernels of": Run(44_944_067, 12.6),
        "writing the report of": Run(44_944_067, 15.6),
        "compiling the library of": Run(44_944_067, 34.0),
        "compiling": Run(4_506_379, 2.5),
    }
)
"""Runs that count before there are any: MiniLM, and `digits` compiled, on one core of a Xeon at 2.5 GHz."""


class _TimeLeft(ProgressColumn):
    """Time left of a task whose total is the seconds expected."""

    @override
    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text("")
        left = task.total - (task.elapsed or 0.0)
        words = f"about {_minutes(left)} left" if left > 0 else f"longer than the {_minutes(task.total)} expected"
        return Text(words, style="progress.remaining")


@contextmanager
def working(what: str, model: Path | None = None, *, shown: bool = True) -> Generator[None]:
    """Show `what` is done with a model, the time since it began and what is about left while the block runs."""
    if not shown or not is_live(progress_console):
        yield
        return
    size, name = _size_of(model), _file_name(what)
    runs = recalled_runs(default_folder(), name)
    known = runs or [run for kind, run in FIRST_RUNS.items() if kind == what]
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), _TimeLeft()
    begun = time.monotonic()
    with Progress(*columns, console=progress_console, transient=True) as progress:
        progress.add_task(what if model is None else f"{what} {model.name}", total=expected_seconds(known, size))
        yield
    seconds = time.monotonic() - begun
    if seconds >= LEAST_SECONDS:
        others = [run for run in runs if run.size != size]
        remember(default_folder(), name, [*others[1 - MOST_RUNS :], Run(size, seconds)])


def expected_seconds(runs: Sequence[Run], size: int) -> float | None:
    """Return about how long work on a model of so many bytes takes; None where nothing is known."""
    if not runs:
        return None
    nearest = min(runs, key=lambda run: _ratio(run.size, size))
    return nearest.seconds * max(size, SMALL_BYTES) / max(nearest.size, SMALL_BYTES)


def recalled_runs(folder: Path, name: str) -> list[Run]:
    """Return the runs that are remembered under `name`; none where they are not what was written."""
    try:
        return [Run(int(size), float(seconds)) for size, seconds in recall_list(folder, name)]
    except (TypeError, ValueError, OverflowError):
        return []


def _ratio(one: int, other: int) -> float:
    least, most = sorted((max(one, 1), max(other, 1)))
    return most / least


def _file_name(what: str) -> str:
    return f"durations-{hashlib.sha256(what.encode()).hexdigest()[:16]}"


def _size_of(model: Path | None) -> int:
    """Return the bytes of a model and of the weights beside it; 0 where there is none."""
    if model is None:
        return 0
    files = (model, model.with_name(f"{model.name}.data"))
    return sum(file.stat().st_size for file in files if file.exists())


def _minutes(seconds: float) -> str:
    whole = max(1, round(seconds))
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02} min"
