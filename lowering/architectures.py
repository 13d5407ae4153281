"""Architectures of CPUs: what they are called, how code waits and asks the system, and the least that all of them can.

All that differs between architectures stands here, in `cpu_target.py`, and where code asks a CPU for its features
(`ort/native/cpu.py`); other code asks for what a target can do.
"""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple


@dataclass(frozen=True)
class SystemCalls:
    """The way in which code without a C library asks Linux."""

    code: bytes
    """Machine code of a C function (number of the call, four arguments) -> the answer, negative for an error.

    It is no inline assembly: LLVM parses that of this machine's architecture alone.
    """
    numbers: Mapping[str, int]


class Capability(NamedTuple):
    """A feature of CPUs by LLVM's name, and where Linux tells of it: a word of `AUXILIARY` by its key, and a bit."""

    feature: str
    key: int
    bit: int


LINUX: Final = "Linux"
"""The system whose libraries ours are, by the name that Python's `platform` has for it."""

AT_HWCAP: Final = 16
AT_HWCAP2: Final = 26
"""The keys of the features that all programs may use."""


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
    """LLVM's intrinsic for a thread that looks at a flag again and again, which takes `pause_arguments`."""
    pause_arguments: tuple[int, ...] = ()
    clock: str = ""
    """LLVM's intrinsic for the ticks of a clock that all cores have in common, or the register that counts them."""
    system_calls: SystemCalls | None = None
    capabilities: tuple[Capability, ...] = ()
    """Features that LLVM may not find on this machine."""
    ask_for_tiles: tuple[int, ...] = ()
    """The number of Linux's call, and its arguments, by which a process asks for registers of tiles; it yields 0 where
    it may use them."""


def _linux_calls(**numbers: int) -> Mapping[str, int]:
    return numbers


ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "x86_64": Architecture(
        "x86_64",
        triple="x86_64-unknown-linux-gnu",
        cpu="x86-64",
        pause="llvm.x86.sse2.pause",
        clock="llvm.readcyclecounter",
        ask_for_tiles=(158, 0x1023, 18),  # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
        system_calls=SystemCalls(
            code=bytes.fromhex(
                "48 89 f8"  # mov rax, rdi
                "48 89 f7"  # mov rdi, rsi
                "48 89 d6"  # mov rsi, rdx
                "48 89 ca"  # mov rdx, rcx
                "4d 89 c2"  # mov r10, r8
                "0f 05"  # syscall
                "c3"  # ret
            ),
            numbers=_linux_calls(read=0, close=3, sched_yield=24, nanosleep=35, sched_getaffinity=204, openat=257),
        ),
    ),
    "aarch64": Architecture(
        "aarch64",
        triple="aarch64-unknown-linux-gnu",
        cpu="generic",
        registers=32,
        has_fma=True,
        pause="llvm.aarch64.isb",  # its `yield` does nothing on most
        pause_arguments=(15,),
        clock="cntvct_el0",
        system_calls=SystemCalls(
            code=bytes.fromhex(
                "e8 03 00 aa"  # mov x8, x0
                "e0 03 01 aa"  # mov x0, x1
                "e1 03 02 aa"  # mov x1, x2
                "e2 03 03 aa"  # mov x2, x3
                "e3 03 04 aa"  # mov x3, x4
                "01 00 00 d4"  # svc #0
                "c0 03 5f d6"  # ret
            ),
            numbers=_linux_calls(openat=56, close=57, read=63, nanosleep=101, sched_getaffinity=123, sched_yield=124),
        ),
        capabilities=(
            Capability("dotprod", AT_HWCAP, 20),
            Capability("i8mm", AT_HWCAP2, 13),
            Capability("bf16", AT_HWCAP2, 14),
            Capability("sve2", AT_HWCAP2, 1),
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


AUXILIARY: Final = "/proc/self/auxv"
"""The file in which Linux tells a program of its CPU: pairs of words, a key and a value."""


def told_features(architecture: Architecture, file: Path = Path(AUXILIARY)) -> tuple[str, ...]:
    """Return the features that Linux reports for this CPU and that LLVM may not find."""
    if not architecture.capabilities or not file.exists():
        return ()
    content = file.read_bytes()
    words = memoryview(content[: len(content) // 16 * 16]).cast("Q")
    found = dict(zip(words[::2], words[1::2], strict=True))
    return tuple(one.feature for one in architecture.capabilities if found.get(one.key, 0) >> one.bit & 1)
