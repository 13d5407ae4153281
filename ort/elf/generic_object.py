"""Object code that runs on any x86-64: what chooses between better code at run time."""

from redpebble.lowering.cpu_target import CpuTarget
from redpebble.runtime.jit import emit_object
from redpebble.runtime.store.artefact import machine


def generic_object(llvm_ir: str, what: str) -> bytes:
    """Return the object file of a module; `what` it is for is said where it cannot be made.

    Raises:
        ValueError: this machine is no x86-64.
    """
    if machine() != "x86_64":
        raise ValueError(f"{what} is made on x86-64, this machine is {machine()}")
    return emit_object(llvm_ir, CpuTarget.generic())
