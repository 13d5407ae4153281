"""Number of threads that can run at once, and work that several of them share."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def usable_threads() -> int:
    """Return how many threads of this process can run at once: code that is cut for them runs on fewer as well."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Map a function over items on threads, in order: worth while for numpy and compiled loops."""
    todo, threads = list(items), usable_threads()
    if min(threads, len(todo)) < 2:
        return [function(item) for item in todo]
    with ThreadPoolExecutor(min(threads, len(todo))) as pool:
        return list(pool.map(function, todo))
