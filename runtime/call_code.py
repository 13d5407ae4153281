"""The native code of calls in this process (`lowering/calls`), kept in the user's cache."""

import hashlib
import platform

from ..foundation.made_once import made_once
from ..lowering.architectures import LINUX, host_name
from ..lowering.calls.pool import EXPORTS, pool_module
from ..lowering.cpu_target import CpuTarget
from .jit import MachineCode, emit_object, load_object
from .store.cache import compiler_fingerprint, default_folder
from .store.checked_file import kept


@made_once
def call_code() -> MachineCode:
    """Return the code; there is one copy in a process, of which calls hold addresses."""
    digest = hashlib.sha256(compiler_fingerprint() + f"{host_name()} {platform.system()}".encode())
    return load_object(kept(default_folder() / f"calls-{digest.hexdigest()[:40]}.o", _object), EXPORTS)


def _object() -> bytes:
    target = CpuTarget.generic()
    return emit_object(pool_module(target.architecture, linux=platform.system() == LINUX), target)
