"""Compiled networks on disk, found again by what they were made from."""

import hashlib
import sys
import warnings
from functools import cache
from importlib.metadata import version
from pathlib import Path

from ...foundation.cache_folder import default_folder as default_folder
from ...foundation.log import LOG
from ...foundation.private_files import UntrustedFileError, open_private, private_folder
from ...lowering.cpu_target import CpuTarget
from .artefact import Artefact, ArtefactError, sealed_in, write_artefact
from .kept_files import make_room, note_use
from .source_digest import source_digest, source_files

DEPENDENCIES = ("llvmlite", "numpy", "onnx-ir", "xdsl")
"""Packages whose version can change what the compiler makes of a model."""


@cache
def compiler_fingerprint() -> bytes:
    """Return a digest of the compiler: its sources, the versions of what it builds on, and Python's."""
    digest = hashlib.sha256(sys.version.encode())
    for name in DEPENDENCIES:
        digest.update(f"{name}={version(name)};".encode())
    digest.update(source_digest(source_files(), default_folder()))
    return digest.digest()


def cache_key(model_digest: bytes, target: CpuTarget, options: str) -> str:
    """Return the name under which the network of a model, a target and compiler options is kept."""
    digest = hashlib.sha256(compiler_fingerprint())
    for part in (model_digest, target.cpu.encode(), target.features.encode(), options.encode()):
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
