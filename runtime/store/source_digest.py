"""The digest of the compiler's sources, by which it is known what an older compiler made."""

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from .file_digests import recalled_digest, remember_digest, stamp

HOME: Final = os.fspath(Path(__file__).parents[2])
"""The folder of the package: the root of a checkout, too."""


def source_digest(files: Mapping[str, str], memory: Path) -> bytes:
    """Return a digest of the names and the content of source files, which is remembered in the folder `memory`."""
    name = f"sources-{hashlib.sha256(os.fsencode(HOME)).hexdigest()[:40]}"
    begun, stamps = time.time_ns(), [stamp(source, path) for source, path in files.items()]
    known = recalled_digest(memory, name, lambda _: stamps)
    if known is not None:
        return known
    digest = hashlib.sha256()
    for source, path in files.items():
        digest.update(source.encode())
        digest.update(Path(path).read_bytes())
    remember_digest(memory, name, digest.digest(), stamps, begun)
    return digest.digest()


def source_files() -> dict[str, str]:
    """Return the path of every source file of the package by its place, such as `passes/simplify/sparsify.py`."""
    start = len(os.path.join(HOME, ""))
    with os.scandir(HOME) as entries:
        inside = [entry for entry in entries if entry.name != "tests"]
    files = {file[start:]: file for entry in inside if _is_package(entry.path) for file in _sources_in(entry.path)}
    files |= {entry.name: entry.path for entry in inside if entry.name.endswith(".py") and entry.name != "setup.py"}
    return dict(sorted(files.items()))


def _is_package(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "__init__.py"))


def _sources_in(folder: str) -> Iterator[str]:
    """Yield the sources below a folder; `pathlib` takes four times as long, of each start that finds its code."""
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (os.path.join(parent, name) for name in files if name.endswith(".py"))
