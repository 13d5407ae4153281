"""Architectures of CPUs: what they are called, how code waits and asks the system, and the least that all of them can.

All that differs between architectures stands here, in `cpu_target.py`, and where code asks a CPU for its features
(`ort/native/cpu.py`); other code asks for what a target can do.
"""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class SystemCalls:
    """The way in which code without a C library asks Linux."""

    instruction: str
    number: str
    """Register of the call's number."""
    result: str
    arguments: tuple[str, ...]
    """Registers of the arguments."""
    clobbered: str
    numbers: Mapping[str, int]


@dataclass(frozen=True)
class Architecture:
    """A kind of CPUs: the name that Python's `platform` has for it, and the least of its CPUs as LLVM takes it."""

    name: str
    triple: str = ""
    """LLVM's, for Linux; without one LLVM makes code for this machine alone."""
    cpu: str = ""
    features: str = ""
    registers: int = 16
    """Vector registers of the least CPU."""
    has_fma: bool = False
    """Whether all its CPUs can multiply and add with one rounding."""
    pause: str = ""
    """The instruction of a thread that looks at a flag again and again."""
    system_calls: SystemCalls | None = None


def _linux_calls(**numbers: int) -> Mapping[str, int]:
    return numbers


ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "x86_64": Architecture(
        "x86_64",
        triple="x86_64-unknown-linux-gnu",
        cpu="x86-64",
        pause="pause",
        system_calls=SystemCalls(
            "syscall",
            number="rax",
            result="rax",
            arguments=("rdi", "rsi", "rdx", "r10"),
            clobbered="~{rcx},~{r11},~{memory}",
            numbers=_linux_calls(read=0, close=3, sched_yield=24, nanosleep=35, sched_getaffinity=204, openat=257),
        ),
    ),
    "aarch64": Architecture(
        "aarch64",
        triple="aarch64-unknown-linux-gnu",
        cpu="generic",
        registers=32,
        has_fma=True,
        pause="isb",  # `yield` does nothing on most
        system_calls=SystemCalls(
            "svc #0",
            number="x8",
            result="x0",
            arguments=("x0", "x1", "x2", "x3"),
            clobbered="~{memory}",
            numbers=_linux_calls(openat=56, close=57, read=63, nanosleep=101, sched_getaffinity=123, sched_yield=124),
        ),
    ),
}
"""The architectures that libraries can be made for."""

_OTHER_NAMES: Final = {"amd64": "x86_64", "arm64": "aarch64"}


def host_name() -> str:
    """Return the name of this machine's architecture, whether libraries can be made for it or not."""
    name = platform.machine().lower()
    return _OTHER_NAMES.get(name, name)


def architecture_of(name: str) -> Architecture:
    """Return the architecture of a name; of one that is not known, nothing is known but what LLVM can do with it."""
    return ARCHITECTURES.get(name) or Architecture(name)
