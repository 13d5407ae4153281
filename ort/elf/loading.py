"""Libraries of this process: made in memory, and loaded from where nobody can change them."""

import atexit
import ctypes
import os
import platform
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...lowering.architectures import LINUX

NOT_LOADED: Final = "libraries of redpebble load on Linux alone; redpebble.compile runs models without onnxruntime"


def loads_libraries() -> bool:
    """Return whether this system loads libraries of ours, which are ELF."""
    return platform.system() == LINUX


def loaded(image: bytes, name: str) -> Path:
    """Load a shared object; return the path by which this process, and no other one, loads it again.

    The path is that of sealed memory. Where the system has none, or does not run code from it, it is a file in a folder
    of this process alone, which goes when the process ends.

    Raises:
        OSError: the library cannot be loaded.
    """
    if not loads_libraries():
        raise OSError(NOT_LOADED)
    with suppress(AttributeError, OSError):
        path = Path(f"/proc/self/fd/{_sealed_memory(image, name)}")
        ctypes.CDLL(str(path))
        return path
    folder = Path(tempfile.mkdtemp(prefix="redpebble-"))
    # it stays mapped for as long as it is loaded
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / name
    path.write_bytes(image)
    ctypes.CDLL(str(path))
    return path


def _sealed_memory(image: bytes, name: str) -> int:
    """Return a descriptor, which stays open, of memory that is never written again.

    Raises:
        AttributeError, OSError: the system has no such memory.
    """
    import fcntl

    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(image)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor
