"""A limit on the memory of this process: what asks for more than there is fails with an error, and is not killed."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

KIBIBYTE: Final = 1024

LEFT_TO_OTHERS: Final = 16
"""The part of the free memory that stays free: the system kills whoever takes the last page."""

CONTAINER: Final = tuple(
    (Path("/sys/fs/cgroup", limit), Path("/sys/fs/cgroup", usage))
    for limit, usage in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    )
)
"""Files that say what a container may use and what it uses, in bytes, of both versions of control groups."""


def available_memory() -> int | None:
    """Return the bytes that the system, or the container, can still give; None where it does not say."""
    system = [_kibibytes("/proc/meminfo", word) for word in ("MemAvailable", "SwapFree")]
    if system[0] is None:
        return None
    free = [sum(number or 0 for number in system)]
    for limit, usage in CONTAINER:
        try:
            free.append(int(limit.read_text()) - int(usage.read_text()))
        except (OSError, ValueError):  # there is no such group, or it has no limit, which is written `max`
            continue
    return max(0, min(free))


@contextmanager
def limited_memory(available: int | None) -> Generator[None]:
    """Let this process write to at most `available` bytes beside those it has, all but a sixteenth; None is no limit.

    What is mapped and never written, as files are, is not counted. Processes that it starts begin with the limit.
    """
    held = _kibibytes("/proc/self/status", "VmData")
    if available is None or held is None:
        yield
        return
    import resource  # where there is /proc, there is this module

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = held + available - available // LEFT_TO_OTHERS
    if soft != resource.RLIM_INFINITY:
        most = min(most, soft)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _kibibytes(path: str, word: str) -> int | None:
    """Return the bytes that a file of the system says, in kB, after a word."""
    try:
        found = re.search(rf"^{word}:\s+(\d+) kB$", Path(path).read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * KIBIBYTE if found else None
