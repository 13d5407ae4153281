"""Counts of what the sessions of this process are made of: for the metrics of a server."""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from threading import Lock, local
from typing import Final, Literal, get_args

Name = Literal[
    "models_optimized",
    "models_from_cache",
    "models_left",
    "optimizing_seconds",
    "networks_compiled",
    "networks_from_cache",
    "networks_as_functions",
    "sizes_compiled",
    "sizes_left",
]

NAMES: Final[tuple[Name, ...]] = get_args(Name)

LOCK: Final = Lock()


def counters() -> dict[str, float]:
    """Return counts of this process since its start: of models given to `session`, and of all sparse networks.

    A model is optimized, comes from the cache, or is left to onnxruntime, where nothing gains; `optimizing_seconds` are
    those of all that were optimized, compilation included. A network is compiled, comes from the cache, or runs as its
    function, without native code, which is what a server should warn of. Where code waits for the sizes of calls, it is
    made for a size in the background, or the size is left to onnxruntime. Networks of sessions in other libraries, by
    the name of the provider, are counted as well.
    """
    with LOCK:
        return {name: _counted()[name] for name in NAMES}


def count(name: Name, amount: float = 1) -> None:
    """Add to a count, and to that of what this thread opens (`counted_into`)."""
    own: dict[Name, float] | None = getattr(_of_thread(), "counts", None)
    with LOCK:
        _counted()[name] += amount
        if own is not None:
            own[name] = own.get(name, 0) + amount


@contextmanager
def counted_into(counts: dict[Name, float]) -> Generator[None]:
    """Add what this thread counts meanwhile to `counts` as well, and not to those of a caller."""
    thread = _of_thread()
    outer: dict[Name, float] | None = getattr(thread, "counts", None)
    thread.counts = counts
    try:
        yield
    finally:
        thread.counts = outer


@cache
def _counted() -> dict[Name, float]:
    return dict.fromkeys(NAMES, 0)


@cache
def _of_thread() -> local:
    return local()
