"""Compiled networks on disk, found again by what they were made from."""

import hashlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from ...foundation.cache_folder import default_folder as default_folder
from ...foundation.log import LOG
from ...foundation.private_files import UntrustedFileError, open_private, private_folder
from ...lowering.cpu_target import CpuTarget
from .artefact import Artefact, ArtefactError, sealed_in, write_artefact
from .json_cache import recall, remember
from .kept_files import make_room, note_use

DEPENDENCIES = ("llvmlite", "numpy", "onnx-ir", "xdsl")
"""Packages whose version can change what the compiler makes of a model."""

LOADED: Final = time.time_ns()
"""The time at which this process loaded the first of the compiler's modules, about."""


@cache
def compiler_fingerprint() -> bytes:
    """Return a digest of the compiler: its sources, the versions of what it builds on, and Python's.

    A process whose sources were replaced after it had loaded some of them, as an upgrade does, shares nothing: code
    that other processes made of the new sources would read tables of the old ones.
    """
    digest = hashlib.sha256(sys.version.encode())
    for name in DEPENDENCIES:
        digest.update(f"{name}={version(name)};".encode())
    files = source_files()
    digest.update(source_digest(files, default_folder()))
    if changed_since(files, LOADED):
        LOG.warning("redpebble was replaced while this process runs: expected a restart, the cache is not shared")
        digest.update(os.urandom(32))
    return digest.digest()


def changed_since(files: Mapping[str, str], begun: int) -> bool:
    """Return whether a file was written or replaced after a time, in ns."""
    return any(os.stat(path).st_ctime_ns > begun for path in files.values())


def cache_key(model_digest: bytes, target: CpuTarget, options: str) -> str:
    """Return the name under which the network of a model, a target and compiler options is kept."""
    digest = hashlib.sha256(compiler_fingerprint())
    words = target.architecture_name, target.cpu, target.features, target.triple, options
    for part in (model_digest, *(word.encode() for word in words)):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:40]


def load(folder: Path, key: str) -> Artefact | None:
    """Return the network kept under `key`, or None where there is none that can be used.

    A folder or a file that somebody else may have written is not used, which a warning says.
    """
    path = _path(folder, key)
    try:
        with open(open_private(path), "rb", buffering=0) as file:
            artefact = sealed_in(file, path.name).artefact()
    except FileNotFoundError:
        return None
    except UntrustedFileError as error:
        warnings.warn(f"the cache is not used: {error}", stacklevel=2)
        return None
    except (OSError, ArtefactError) as error:
        LOG.info("not taken from the cache: %s", error)
        return None
    note_use(path)
    return artefact


def store(folder: Path, key: str, artefact: Artefact) -> None:
    """Keep a network under `key`; a folder that cannot be written to is no error, the next compile takes longer."""
    path = _path(folder, key)
    try:
        private_folder(folder)
        write_artefact(path, artefact)
    except OSError as error:
        LOG.info("not kept for the next time: %s", error)
        return
    make_room(folder, path)


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}.pebble"


# The digest of the compiler's sources, by which it is known what an older compiler made.

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


# Digests of files that are remembered beside the files' size, inode and times of change.
#
# A digest is taken for granted while those are the same, as make and git do: reading and hashing would take longer than
# all else that is done with code that was compiled before.

SETTLED_SECONDS: Final = 2.0
"""Since a file's last change, before its digest is remembered: the coarsest clock of a file system counts by 2 s."""

Stamp = list[str | int]
"""A file's name, size, inode, and when content and state changed, in ns."""


def stamp(name: str, path: str | Path) -> Stamp:
    """Return a stamp that changes with a file.

    Raises:
        OSError: there is no such file.
    """
    stat = os.stat(path)
    return [name, stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns]


def recalled_digest(memory: Path, name: str, stamps_of: Callable[[Sequence[str]], list[Stamp]]) -> bytes | None:
    """Return the digest remembered under `name`, or None where the files are not as they were; `stamps_of` their names.

    Raises:
        OSError: a file is missing.
    """
    known = recall(memory, name)
    if known is None or known["stamps"] != stamps_of([str(one[0]) for one in known["stamps"]]):
        return None
    return bytes.fromhex(known["digest"])


def remember_digest(memory: Path, name: str, digest: bytes, stamps: list[Stamp], begun: int) -> None:
    """Remember the digest of files that were read since `begun`, in ns, and had these stamps afterwards.

    A file that changes again within the same tick of its clock would look the same: nothing is remembered then.
    """
    if all(int(one[-1]) < begun - SETTLED_SECONDS * 1e9 for one in stamps):
        remember(memory, name, {"digest": digest.hex(), "stamps": stamps})
