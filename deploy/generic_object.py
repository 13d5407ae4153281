"""Object code that runs on any x86-64: what chooses between better code at run time."""

from redpebble.lowering.target import CpuTarget
from redpebble.runtime.artefact import machine
from redpebble.runtime.machine_code import emit_object


def generic_object(llvm_ir: str, what: str) -> bytes:
    """Return the object file of a module; `what` it is for is said where it cannot be made.

    Raises:
        ValueError: this machine is no x86-64.
    """
    if machine() != "x86_64":
        raise ValueError(f"{what} is made on x86-64, this machine is {machine()}")
    return emit_object(llvm_ir, CpuTarget.generic())
