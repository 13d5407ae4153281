"""The files of the cache: their sizes, their last use, and the eviction of old ones.

Only files that bear our names count, whatever else lies in a folder that somebody chose as the cache.
"""

import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ...foundation.cache_folder import LOOPS
from ...foundation.log import LOG

LIMIT_BYTES: Final = 4 << 30
"""Bytes that the cache may take, where `REDPEBBLE_CACHE_LIMIT` does not say."""

RECENT_NS: Final = 3600 * 10**9
"""Time before the use of a file is noted again: loading is not to write each time."""

UNITS: Final = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}

_OURS: Final = re.compile(
    r"[0-9a-f]{40}\.\w+|"
    r"(calls|digest|durations|libredpebble|libredpebble_provider|machine|orders|schedules|sources|tuning)-[0-9a-f]{16,}\.\w+"
)
_LOOP: Final = re.compile(r".+\.nb[ci]")
"""Names of numba, in folders of `LOOPS`."""

_MEASURED: Final = re.compile(r"(machine|orders|schedules|tuning)-.*\.json")


class KeptFile(NamedTuple):
    """A file of the cache: its size in bytes, and when it was made or used last, in ns since 1970."""

    path: Path
    size: int
    used: int

    @property
    def is_measured(self) -> bool:
        """Whether it holds what was measured of this machine, or searched, and not what can be made again at once."""
        return _MEASURED.fullmatch(self.path.name) is not None


def kept_files(folder: Path) -> list[KeptFile]:
    """Return the files of ours in a folder, the one used longest ago first; none where there is no such folder."""
    found = _matching(folder, _OURS)
    with suppress(OSError), os.scandir(folder / LOOPS) as entries:
        found += [file for entry in entries for file in _matching(Path(entry.path), _LOOP)]
    return sorted(found, key=lambda file: file.used)


def _matching(folder: Path, names: re.Pattern[str]) -> list[KeptFile]:
    found: list[KeptFile] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if names.fullmatch(entry.name):
                with suppress(FileNotFoundError):
                    stat = entry.stat(follow_symlinks=False)
                    found.append(KeptFile(Path(entry.path), stat.st_size, stat.st_mtime_ns))
    return found


def note_use(path: Path) -> None:
    """Note the use of a file, so that unused files are evicted first; a read-only cache is left alone."""
    with suppress(OSError):
        if time.time_ns() - path.stat().st_mtime_ns > RECENT_NS:
            os.utime(path)


def make_room(folder: Path, spared: Path) -> None:
    """Remove the files used longest ago until the cache is within its limit; never `spared`, nor measurements.

    A process that has loaded one works on a copy.
    """
    files, limit = kept_files(folder), size_limit()
    excess = sum(file.size for file in files) - limit
    going: list[KeptFile] = []
    for file in files:
        if excess > 0 and file.path != spared and not file.is_measured:
            going.append(file)
            excess -= file.size
    if going:
        freed = remove(going)
        LOG.info("the cache had more than %d bytes: %d files of %d bytes went", limit, len(going), freed)


def remove(files: Iterable[KeptFile]) -> int:
    """Remove files, and return how many bytes they had; one that is gone already, or cannot be removed, counts 0."""
    freed = 0
    for file in files:
        with suppress(OSError):
            file.path.unlink()
            freed += file.size
    return freed


def size_limit() -> int:
    """Return how many bytes the cache may take; a value that cannot be read is logged, and the default counts."""
    text = os.environ.get("REDPEBBLE_CACHE_LIMIT", "")
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *([KMG]I?B|)", text.strip().upper())
    if found is None:
        if text:
            LOG.warning("REDPEBBLE_CACHE_LIMIT: expected a size such as 500MB, got %r; %d counts", text, LIMIT_BYTES)
        return LIMIT_BYTES
    return round(float(found[1]) * UNITS[found[2]])
