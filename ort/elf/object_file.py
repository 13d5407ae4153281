"""Relocatable ELF64 objects, as LLVM emits them: sections, symbols and relocations, read by `struct`."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from ...foundation.errors import RedpebbleError

EM_X86_64: Final = 62
EM_AARCH64: Final = 183

SHT_PROGBITS: Final = 1
SHT_SYMTAB: Final = 2
SHT_RELA: Final = 4
SHT_NOBITS: Final = 8
SHT_INIT_ARRAY: Final = 14

SHF_WRITE: Final = 1
SHF_ALLOC: Final = 2
SHF_EXECINSTR: Final = 4
SHF_TLS: Final = 0x400

STB_LOCAL: Final = 0
SHN_UNDEF: Final = 0
SHN_ABS: Final = 0xFFF1
SHN_COMMON: Final = 0xFFF2

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELA = struct.Struct("<QQq")


class ElfError(RedpebbleError, ValueError):
    """An object that cannot be read or linked; the message says what stands in the way."""


class Relocation(NamedTuple):
    """A place in a section that depends on the address of a symbol."""

    offset: int
    kind: int
    symbol: int
    addend: int


class Symbol(NamedTuple):
    """A name for a place in a section; `section` is an index, or one of the SHN_ numbers."""

    name: str
    section: int
    value: int
    is_local: bool


@dataclass(frozen=True)
class Section:
    """A section of an object: `size` bytes, of which a NOBITS section stores none."""

    name: str
    kind: int
    flags: int
    alignment: int
    size: int
    data: bytes
    relocations: tuple[Relocation, ...]


@dataclass(frozen=True)
class ElfObject:
    """An object file: its machine, its sections by index, and its symbols by index."""

    machine: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]


def read_object(image: bytes) -> ElfObject:
    """Return the parts of a relocatable object.

    Raises:
        ElfError: the image is no little-endian 64-bit relocatable object, or is cut off.
    """
    if image[:6] != b"\x7fELF\x02\x01" or len(image) < HEADER.size:
        raise ElfError("object is no little-endian ELF64 file")
    header: tuple[int, ...] = HEADER.unpack_from(image)[1:]
    kind, machine, section_offset, section_count, names_index = header[0], header[1], header[5], header[11], header[12]
    if kind != 1:
        raise ElfError(f"expected an object of ELF type 1 (relocatable), got {kind}")
    if section_offset + section_count * SECTION.size > len(image):
        raise ElfError(f"object is cut off after {len(image)} bytes")
    rows = [SECTION.unpack_from(image, section_offset + index * SECTION.size) for index in range(section_count)]
    for row in rows:
        if row[1] != SHT_NOBITS and row[4] + row[5] > len(image):
            raise ElfError(f"object is cut off after {len(image)} bytes")
    contents: list[bytes] = [b"" if row[1] == SHT_NOBITS else image[row[4] : row[4] + row[5]] for row in rows]
    relocations = [_relocations(index, rows, contents) for index in range(section_count)]
    sections = tuple(
        Section(
            name=_text(contents[names_index], row[0]),
            kind=row[1],
            flags=row[2],
            alignment=max(row[8], 1),
            size=row[5],
            data=contents[index],
            relocations=relocations[index],
        )
        for index, row in enumerate(rows)
    )
    return ElfObject(machine, sections, _symbols(rows, contents))


def _relocations(target: int, rows: list[tuple[int, ...]], contents: list[bytes]) -> tuple[Relocation, ...]:
    tables = [contents[index] for index, row in enumerate(rows) if row[1] == SHT_RELA and row[7] == target]
    return tuple(
        Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)
        for table in tables
        for offset, info, addend in RELA.iter_unpack(table)
    )


def _symbols(rows: list[tuple[int, ...]], contents: list[bytes]) -> tuple[Symbol, ...]:
    for index, row in enumerate(rows):
        if row[1] == SHT_SYMTAB:
            names = contents[row[6]]
            return tuple(
                Symbol(_text(names, name), section, value, info >> 4 == STB_LOCAL)
                for name, info, _, section, value, _ in SYMBOL.iter_unpack(contents[index])
            )
    return ()


def _text(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


# Relocations: their effect on the bytes they stand for, by machine; a new machine is one entry in `MACHINES`.

Meaning = Literal["none", "word", "address", "table_entry"]
"""The address itself in 64 bits (the loader adds where the file lies), what code needs to find it, or to find a word
with it."""


class Patch(NamedTuple):
    """Bytes that depend on where things lie: in which data, at which offset, and the address of that."""

    data: bytearray
    offset: int
    kind: int
    address: int

    @property
    def word(self) -> int:
        """The 32 bits that are there."""
        return int.from_bytes(self.data[self.offset : self.offset + 4], "little")

    def put(self, word: int) -> None:
        """Write 32 bits."""
        struct.pack_into("<I", self.data, self.offset, word & 0xFFFFFFFF)


@dataclass(frozen=True)
class Machine:
    """A machine as the linker sees it: its pages, and the relocations it knows."""

    page_bytes: int
    """The largest that a system has."""
    relative_kind: int
    """The relocation by which the loader adds where the file lies."""
    meanings: Mapping[int, Meaning]
    apply: Callable[[Patch, int], None]
    """Let code find an address."""


def _apply_x86(patch: Patch, target: int) -> None:
    patch.put(_within(target - patch.address, 32))


def _within(distance: int, bits: int) -> int:
    if not -(1 << bits - 1) <= distance < 1 << bits - 1:
        size = "2 GB" if bits >= 32 else f"{1 << bits - 21} MB"
        raise ElfError(
            f"expected less than {size} of code and data, got a distance of {distance}, more than {bits} bits"
        )
    return distance


PAGE_BITS: Final = 12
"""Bits of an address within the pages that ADRP counts in, however large the system's pages are."""

_LOW_BITS: Final[Mapping[int, int]] = {
    277: 0,  # R_AARCH64_ADD_ABS_LO12_NC
    278: 0,  # R_AARCH64_LDST8_ABS_LO12_NC
    284: 1,  # R_AARCH64_LDST16_ABS_LO12_NC
    285: 2,  # R_AARCH64_LDST32_ABS_LO12_NC
    286: 3,  # R_AARCH64_LDST64_ABS_LO12_NC
    299: 4,  # R_AARCH64_LDST128_ABS_LO12_NC
    312: 3,  # R_AARCH64_LD64_GOT_LO12_NC
}
"""Relocations of the offset in a page: the power of two that the instruction counts in."""

_PREL32, _CALLS, _PAGES = 261, (282, 283), (275, 311)
"""R_AARCH64_PREL32; R_AARCH64_JUMP26 and CALL26; R_AARCH64_ADR_PREL_PG_HI21 and ADR_GOT_PAGE."""


def _apply_arm(patch: Patch, target: int) -> None:
    word, kind = patch.word, patch.kind
    if kind == _PREL32:
        patch.put(_within(target - patch.address, 32))
    elif kind in _CALLS:
        patch.put(word & ~0x3FFFFFF | _within(target - patch.address, 28) >> 2 & 0x3FFFFFF)
    elif kind in _PAGES:
        pages = _within((target >> PAGE_BITS) - (patch.address >> PAGE_BITS), 21)
        patch.put(word & ~(3 << 29 | 0x7FFFF << 5) | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)
    else:
        shift, low = _LOW_BITS[kind], target & (1 << PAGE_BITS) - 1
        if low % (1 << shift):
            raise ElfError(f"expected an address that is a multiple of {1 << shift}, got {target}")
        patch.put(word & ~(0xFFF << 10) | low >> shift << 10)


MACHINES: Final[Mapping[int, Machine]] = MappingProxyType(
    {
        EM_X86_64: Machine(
            page_bytes=4096,
            relative_kind=8,  # R_X86_64_RELATIVE
            meanings={
                0: "none",
                1: "word",  # R_X86_64_64
                2: "address",  # R_X86_64_PC32
                4: "address",  # R_X86_64_PLT32: nothing is resolved late, so the function is called itself
                9: "table_entry",  # R_X86_64_GOTPCREL
                41: "table_entry",  # R_X86_64_GOTPCRELX
                42: "table_entry",  # R_X86_64_REX_GOTPCRELX
            },
            apply=_apply_x86,
        ),
        EM_AARCH64: Machine(
            page_bytes=65536,
            relative_kind=1027,  # R_AARCH64_RELATIVE
            meanings={
                0: "none",
                256: "none",
                257: "word",  # R_AARCH64_ABS64
                **dict.fromkeys((_PREL32, *_CALLS, *_PAGES, *_LOW_BITS), "address"),
                311: "table_entry",
                312: "table_entry",
            },
            apply=_apply_arm,
        ),
    }
)


def machine_of(number: int) -> Machine:
    """Return the machine with ELF's `number`.

    Raises:
        ElfError: it is not known.
    """
    machine = MACHINES.get(number)
    if machine is None:
        raise ElfError(f"ELF machine: expected one of {', '.join(map(str, MACHINES))}, got {number}")
    return machine
