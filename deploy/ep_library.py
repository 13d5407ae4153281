"""The shared object that onnxruntime loads as the execution provider of this process."""

import atexit
import hashlib
import platform
import shutil
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

from redpebble.deploy.elf import Code, link
from redpebble.lowering.ep_library import EP_EXPORTS, provider_module
from redpebble.lowering.target import CpuTarget
from redpebble.runtime.machine_code import emit_object


@cache
def provider_library() -> Path:
    """Return the library, in a folder of this process alone: nobody else may put code there.

    Raises:
        ValueError: this machine is no x86-64.
    """
    machine = platform.machine().lower()
    if machine not in {"x86_64", "amd64"}:
        raise ValueError(f"the execution provider is made on x86-64, this machine is {machine}")
    object_file = emit_object(provider_module(version("redpebble")), CpuTarget.generic())
    image = link([Code(object_file)], EP_EXPORTS, "libredpebble_provider.so")
    name = f"libredpebble_provider-{hashlib.sha256(image).hexdigest()[:16]}.so"
    folder = Path(tempfile.mkdtemp(prefix="redpebble-"))
    # it stays mapped for as long as it is loaded
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / name
    path.write_bytes(image)
    return path
