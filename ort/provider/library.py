"""The shared object that onnxruntime loads as the execution provider of this process."""

import atexit
import hashlib
import shutil
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

from redpebble.ort.elf.generic_object import generic_object
from redpebble.ort.elf.linker import Code, link
from redpebble.ort.native.ep_library import EP_EXPORTS, provider_module


@cache
def provider_library() -> Path:
    """Return the library, in a folder of this process alone: nobody else may put code there.

    Raises:
        ValueError: this machine is no x86-64.
    """
    object_file = generic_object(provider_module(version("redpebble")), "the execution provider")
    image = link([Code(object_file)], EP_EXPORTS, "libredpebble_provider.so")
    name = f"libredpebble_provider-{hashlib.sha256(image).hexdigest()[:16]}.so"
    folder = Path(tempfile.mkdtemp(prefix="redpebble-"))
    # it stays mapped for as long as it is loaded
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / name
    path.write_bytes(image)
    return path
