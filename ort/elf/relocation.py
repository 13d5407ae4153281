"""Relocations: their effect on the bytes they stand for, by machine; a new machine is one entry in `MACHINES`."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from .object_file import EM_X86_64, ElfError

Meaning = Literal["none", "word", "relative", "table_entry"]
"""The address itself in 64 bits (the loader adds where the file lies), a distance to it, or one to a word with it."""


@dataclass(frozen=True)
class Machine:
    """A machine as the linker sees it: its pages, and the relocations it knows."""

    page_bytes: int
    relative_kind: int
    """The relocation by which the loader adds where the file lies."""
    meanings: Mapping[int, Meaning]
    patch: Callable[[bytearray, int, int], None]
    """Write a distance at an offset."""


def _patch_x86(data: bytearray, offset: int, distance: int) -> None:
    if not -(1 << 31) <= distance < 1 << 31:
        raise ElfError(f"distance {distance} does not fit 32 bits, expected less than 2 GB of code and data")
    struct.pack_into("<i", data, offset, distance)


MACHINES: Final[Mapping[int, Machine]] = MappingProxyType(
    {
        EM_X86_64: Machine(
            page_bytes=4096,
            relative_kind=8,  # R_X86_64_RELATIVE
            meanings={
                0: "none",
                1: "word",  # R_X86_64_64
                2: "relative",  # R_X86_64_PC32
                4: "relative",  # R_X86_64_PLT32: nothing is resolved late, so the function is called itself
                9: "table_entry",  # R_X86_64_GOTPCREL
                41: "table_entry",  # R_X86_64_GOTPCRELX
                42: "table_entry",  # R_X86_64_REX_GOTPCRELX
            },
            patch=_patch_x86,
        )
    }
)


def machine_of(number: int) -> Machine:
    """Return the machine with ELF's `number`.

    Raises:
        ElfError: it is not known.
    """
    machine = MACHINES.get(number)
    if machine is None:
        raise ElfError(f"ELF machine {number} is not supported, expected one of {', '.join(map(str, MACHINES))}")
    return machine
