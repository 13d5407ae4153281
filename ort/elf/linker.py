"""A linker for self-contained code: relocatable objects and tables of data become one shared object.

What may be written is not executable and what is executed may not be written; tables with addresses are read-only once
they are loaded. There is nothing to resolve at load time: a symbol that no part defines is refused.

```text
read      headers, hash, symbols, strings, relocations, constants
execute   code
write     tables with addresses, words with addresses, dynamic (then read-only) | variables | zeros
```
"""

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from ...lowering.architectures import ARCHITECTURES, Architecture, host_name
from ...lowering.calls.network_table import Pointer
from ...lowering.cpu_target import CpuTarget
from ...runtime.jit import emit_object
from . import image as elf_image
from .image import Chunk, Export, LoadedWord
from .object_file import (
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_TLS,
    SHF_WRITE,
    SHN_ABS,
    SHN_COMMON,
    SHN_UNDEF,
    SHT_NOBITS,
    SHT_PROGBITS,
    ElfError,
    ElfObject,
    Machine,
    Patch,
    Relocation,
    Section,
    machine_of,
    read_object,
)


def generic_object(llvm_ir: str, architecture: Architecture) -> bytes:
    """Return the object file of a module, for any CPU of an architecture."""
    return emit_object(llvm_ir, CpuTarget.generic(architecture.name).on_linux)


def library_architecture(name: str = "") -> Architecture:
    """Return the architecture of a name, this machine's by default.

    Raises:
        ValueError: there are no libraries for it.
    """
    wanted = name or host_name()
    if wanted not in ARCHITECTURES:
        raise ValueError(f"libraries are for {' and '.join(ARCHITECTURES)}, not for {wanted}")
    return ARCHITECTURES[wanted]


Kind = Literal["constants", "code", "tables", "variables", "zeros"]
KINDS: Final[tuple[Kind, ...]] = ("constants", "code", "tables", "variables", "zeros")

WORD: Final = struct.Struct("<q")


@dataclass(frozen=True)
class Code:
    """An object file; `prefix` is put before the names of its symbols that others can see."""

    image: bytes
    prefix: str = ""


@dataclass(frozen=True)
class Data:
    """Bytes under a name, read-only; at some offsets the addresses of symbols."""

    symbol: str
    content: bytes
    pointers: Mapping[int, Pointer] = field(default_factory=dict[int, Pointer])
    alignment: int = 64


@dataclass(frozen=True)
class Room:
    """Zeros under a name that may be written, and take no room in the file."""

    symbol: str
    size: int
    alignment: int = 64


Part = Code | Data | Room


class _InputSection(NamedTuple):
    """A section to place in the file: its kind, and the object and relocations it came with."""

    kind: Kind
    alignment: int
    size: int
    content: bytearray
    relocations: tuple[Relocation, ...]
    owner: int
    """The number of its object, -1 for data."""
    pointers: Mapping[int, Pointer]


class _Location(NamedTuple):
    """A place in the input: the number of a section, and an offset in it."""

    section: int
    offset: int


def link(parts: Sequence[Part], exports: Collection[str], soname: str) -> bytes:
    """Return a shared object of `parts` in which `exports` can be looked up.

    Raises:
        ElfError: a symbol is undefined or defined twice, a section or relocation is of a kind that is not known, or
            the machines differ.
    """
    return _Linking(parts, soname).image(sorted(exports))


class _Linking:
    """One shared object under construction."""

    def __init__(self, parts: Sequence[Part], soname: str) -> None:
        self.soname = soname
        self.objects: list[tuple[ElfObject, str]] = []
        self.sections: list[_InputSection] = []
        self.symbols: dict[str, _Location] = {}
        self.section_numbers: dict[tuple[int, int], int] = {}
        for part in parts:
            if isinstance(part, Code):
                self._add_code(part)
            elif isinstance(part, Data):
                self._add_data(part)
            else:
                self._define(part.symbol, _Location(len(self.sections), 0))
                self.sections.append(
                    _InputSection("zeros", part.alignment, part.size, bytearray(), (), -1, {}),
                )
        machines = {elf.machine for elf, _ in self.objects}
        if len(machines) != 1:
            raise ElfError(f"expected objects for 1 machine, got {len(machines)}")
        self.machine: Machine = machine_of(self.objects[0][0].machine)
        self.number = self.objects[0][0].machine
        self.table_entries: dict[_Location, int] = {}
        self.entries_section = self._add_table_entries()

    def _add_code(self, part: Code) -> None:
        elf, number = read_object(part.image), len(self.objects)
        self.objects.append((elf, part.prefix))
        for index, section in enumerate(elf.sections):
            if not section.flags & SHF_ALLOC or section.name.startswith((".eh_frame", ".note")):
                continue
            if section.kind not in {SHT_PROGBITS, SHT_NOBITS} or section.flags & SHF_TLS:
                raise ElfError(f"section {section.name}: expected code or data, got another kind")
            self.section_numbers[number, index] = len(self.sections)
            content = bytearray(section.size) if section.kind == SHT_NOBITS else bytearray(section.data)
            kind = _kind(section, machine_of(elf.machine))
            self.sections.append(
                _InputSection(kind, section.alignment, section.size, content, section.relocations, number, {})
            )
        for symbol in elf.symbols:
            if symbol.section == SHN_COMMON:
                raise ElfError(f"symbol {symbol.name}: expected a place in a section, got a common symbol")
            section = self.section_numbers.get((number, symbol.section))
            if not symbol.is_local and symbol.section not in {SHN_UNDEF, SHN_ABS} and section is not None:
                self._define(part.prefix + symbol.name, _Location(section, symbol.value))

    def _add_data(self, part: Data) -> None:
        self._define(part.symbol, _Location(len(self.sections), 0))
        kind: Kind = "tables" if part.pointers else "constants"
        content = bytearray(part.content)
        self.sections.append(_InputSection(kind, part.alignment, len(content), content, (), -1, part.pointers))

    def _define(self, name: str, location: _Location) -> None:
        if name in self.symbols:
            raise ElfError(f"symbol {name} is defined twice")
        self.symbols[name] = location

    def _add_table_entries(self) -> int:
        """Add a section with a word for each location whose address code reads from a table; return its number."""
        for section in self.sections:
            for relocation in section.relocations:
                if self._meaning(relocation) == "table_entry":
                    location = self._location(section.owner, relocation.symbol)
                    self.table_entries.setdefault(location, 8 * len(self.table_entries))
        size = 8 * len(self.table_entries)
        self.sections.append(_InputSection("tables", 8, size, bytearray(size), (), -1, {}))
        return len(self.sections) - 1

    def _meaning(self, relocation: Relocation) -> str:
        meaning = self.machine.meanings.get(relocation.kind)
        if meaning is None:
            raise ElfError(f"relocation of kind {relocation.kind} is not supported on machine {self.number}")
        return meaning

    def _location(self, owner: int, index: int) -> _Location:
        elf, prefix = self.objects[owner]
        symbol = elf.symbols[index]
        section = self.section_numbers.get((owner, symbol.section))
        if section is not None:
            return _Location(section, symbol.value)
        return self._named(symbol.name, prefix)

    def _named(self, name: str, prefix: str = "") -> _Location:
        location = self.symbols.get(prefix + name, self.symbols.get(name))
        if location is None:
            raise ElfError(f"symbol {name} is undefined")
        return location

    def image(self, exports: Sequence[str]) -> bytes:
        exported = {name: self._named(name) for name in exports}
        loaded_count = len(self.table_entries) + sum(self._word_count(section) for section in self.sections)
        groups = {kind: [n for n, section in enumerate(self.sections) if section.kind == kind] for kind in KINDS}
        sizes: dict[str, int] = {}
        offsets = [0] * len(self.sections)
        for kind, numbers in groups.items():
            end = 0
            for number in numbers:
                offsets[number] = -(-end // self.sections[number].alignment) * self.sections[number].alignment
                end = offsets[number] + self.sections[number].size
            sizes[kind] = end
        request = elf_image.Request(self.number, self.machine, self.soname, tuple(exports), loaded_count)
        layout = elf_image.lay_out(request, sizes, self._alignments())
        addresses = [layout.starts[section.kind] + offsets[n] for n, section in enumerate(self.sections)]
        loaded = self._relocate(addresses)
        contents = {
            kind: elf_image.joined([Chunk(offsets[n], self.sections[n].content) for n in groups[kind]], sizes[kind])
            for kind in KINDS
            if kind != "zeros"
        }
        found = {
            name: Export(addresses[section] + offset, self.sections[section].kind)
            for name, (section, offset) in exported.items()
        }
        return elf_image.assemble(request, layout, contents, found, sorted(loaded))

    def _alignments(self) -> dict[str, int]:
        return {kind: max([8, *(p.alignment for p in self.sections if p.kind == kind)]) for kind in KINDS}

    def _word_count(self, section: _InputSection) -> int:
        return len(section.pointers) + sum(self._meaning(one) == "word" for one in section.relocations)

    def _relocate(self, addresses: Sequence[int]) -> list[LoadedWord]:
        """Patch all sections; return the words to which the loader has to add the file's address."""
        loaded: list[LoadedWord] = []
        entries = addresses[self.entries_section]
        for (section, offset), entry in self.table_entries.items():
            loaded.append(LoadedWord(entries + entry, addresses[section] + offset))
        for section, start in zip(self.sections, addresses, strict=True):
            for at, pointer in section.pointers.items():
                target, offset = self._named(pointer.symbol)
                loaded.append(LoadedWord(start + at, addresses[target] + offset + pointer.addend))
            for relocation in section.relocations:
                meaning = self._meaning(relocation)
                if meaning == "none":
                    continue
                location = self._location(section.owner, relocation.symbol)
                address, at = addresses[location.section] + location.offset, start + relocation.offset
                if meaning == "word":
                    loaded.append(LoadedWord(at, address + relocation.addend))
                    continue
                target = entries + self.table_entries[location] if meaning == "table_entry" else address
                patch = Patch(section.content, relocation.offset, relocation.kind, at)
                self.machine.apply(patch, target + relocation.addend)
        return loaded


def _kind(section: Section, machine: Machine) -> Kind:
    """Return where a section belongs; what holds addresses is written to once, by the loader.

    Raises:
        ElfError: there are addresses in code, which stays as it is in the file.
    """
    holds_addresses = any(machine.meanings.get(one.kind) == "word" for one in section.relocations)
    if section.flags & SHF_EXECINSTR:
        if holds_addresses:
            raise ElfError(f"section {section.name}: expected position-independent code, got addresses")
        return "code"
    if not section.flags & SHF_WRITE:
        return "tables" if holds_addresses else "constants"
    if section.name.startswith(".data.rel.ro"):
        return "tables"
    return "zeros" if section.kind == SHT_NOBITS else "variables"
