"""A bar on a terminal while something is measured, nothing elsewhere."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.progress import track

from ..console.console import is_live, progress_console

Item = TypeVar("Item")


def shown(items: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    """Yield `items`, of which there are `total`."""
    yield from track(
        items, what, total, console=progress_console, transient=True, disable=not is_live(progress_console)
    )
