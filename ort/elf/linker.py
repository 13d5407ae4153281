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

from redpebble.lowering.calls.network_table import Pointer
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.ort.elf import image as elf_image
from redpebble.ort.elf.object_file import (
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
    Relocation,
    Section,
    read_object,
)
from redpebble.ort.elf.relocation import Machine, machine_of
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


class _Piece(NamedTuple):
    """A section on its way into the file: where it will lie, and the object and relocations it came with."""

    kind: Kind
    alignment: int
    size: int
    content: bytearray
    relocations: tuple[Relocation, ...]
    owner: int
    """The number of its object, -1 for data."""
    pointers: Mapping[int, Pointer]


def link(parts: Sequence[Code | Data], exports: Collection[str], soname: str) -> bytes:
    """Return a shared object of `parts` in which `exports` can be looked up.

    Raises:
        ElfError: a symbol is undefined or defined twice, a section or relocation is of a kind that is not known, or
            the machines differ.
    """
    return _Linking(parts, soname).image(sorted(exports))


class _Linking:
    """One shared object under construction."""

    def __init__(self, parts: Sequence[Code | Data], soname: str) -> None:
        self.soname = soname
        self.objects: list[tuple[ElfObject, str]] = []
        self.pieces: list[_Piece] = []
        self.symbols: dict[str, tuple[int, int]] = {}
        """Name -> piece and offset in it."""
        self.section_pieces: dict[tuple[int, int], int] = {}
        for part in parts:
            if isinstance(part, Code):
                self._add_code(part)
            else:
                self._add_data(part)
        machines = {elf.machine for elf, _ in self.objects}
        if len(machines) != 1:
            raise ElfError(f"objects are for {len(machines)} machines, expected 1")
        self.machine: Machine = machine_of(self.objects[0][0].machine)
        self.number = self.objects[0][0].machine
        self.table_entries: dict[tuple[int, int], int] = {}
        self.entries_piece = self._add_table_entries()

    def _add_code(self, part: Code) -> None:
        elf, number = read_object(part.image), len(self.objects)
        self.objects.append((elf, part.prefix))
        for index, section in enumerate(elf.sections):
            if not section.flags & SHF_ALLOC or section.name.startswith((".eh_frame", ".note")):
                continue
            if section.kind not in {SHT_PROGBITS, SHT_NOBITS} or section.flags & SHF_TLS:
                raise ElfError(f"section {section.name} is of a kind that is not supported, expected code or data")
            self.section_pieces[number, index] = len(self.pieces)
            content = bytearray(section.size) if section.kind == SHT_NOBITS else bytearray(section.data)
            kind = _kind(section, machine_of(elf.machine))
            place = (kind, section.alignment, section.size, content)
            self.pieces.append(_Piece(*place, section.relocations, number, {}))
        for symbol in elf.symbols:
            if symbol.section == SHN_COMMON:
                raise ElfError(f"symbol {symbol.name} is common, expected one with a place in a section")
            piece = self.section_pieces.get((number, symbol.section))
            if not symbol.is_local and symbol.section not in {SHN_UNDEF, SHN_ABS} and piece is not None:
                self._define(part.prefix + symbol.name, (piece, symbol.value))

    def _add_data(self, part: Data) -> None:
        self._define(part.symbol, (len(self.pieces), 0))
        kind: Kind = "tables" if part.pointers else "constants"
        content = bytearray(part.content)
        self.pieces.append(_Piece(kind, part.alignment, len(content), content, (), -1, part.pointers))

    def _define(self, name: str, place: tuple[int, int]) -> None:
        if name in self.symbols:
            raise ElfError(f"symbol {name} is defined twice")
        self.symbols[name] = place

    def _add_table_entries(self) -> int:
        """Add a piece with a word for each place whose address code reads from a table; return its number."""
        for piece in self.pieces:
            for relocation in piece.relocations:
                if self._meaning(relocation) == "table_entry":
                    place = self._place(piece.owner, relocation.symbol)
                    self.table_entries.setdefault(place, 8 * len(self.table_entries))
        size = 8 * len(self.table_entries)
        self.pieces.append(_Piece("tables", 8, size, bytearray(size), (), -1, {}))
        return len(self.pieces) - 1

    def _meaning(self, relocation: Relocation) -> str:
        meaning = self.machine.meanings.get(relocation.kind)
        if meaning is None:
            raise ElfError(f"relocation of kind {relocation.kind} is not supported on machine {self.number}")
        return meaning

    def _place(self, owner: int, index: int) -> tuple[int, int]:
        """Return the piece and offset of a symbol of an object."""
        elf, prefix = self.objects[owner]
        symbol = elf.symbols[index]
        piece = self.section_pieces.get((owner, symbol.section))
        if piece is not None:
            return piece, symbol.value
        return self._named(symbol.name, prefix)

    def _named(self, name: str, prefix: str = "") -> tuple[int, int]:
        place = self.symbols.get(prefix + name, self.symbols.get(name))
        if place is None:
            raise ElfError(f"symbol {name} is undefined")
        return place

    def image(self, exports: Sequence[str]) -> bytes:
        """Return the file."""
        exported = {name: self._named(name) for name in exports}
        loaded_count = len(self.table_entries) + sum(self._word_count(piece) for piece in self.pieces)
        groups = {kind: [n for n, piece in enumerate(self.pieces) if piece.kind == kind] for kind in KINDS}
        sizes: dict[str, int] = {}
        offsets = [0] * len(self.pieces)
        for kind, numbers in groups.items():
            end = 0
            for number in numbers:
                offsets[number] = -(-end // self.pieces[number].alignment) * self.pieces[number].alignment
                end = offsets[number] + self.pieces[number].size
            sizes[kind] = end
        request = elf_image.Request(self.number, self.machine, self.soname, tuple(exports), loaded_count)
        layout = elf_image.lay_out(request, sizes, self._alignments())
        addresses = [layout.starts[piece.kind] + offsets[n] for n, piece in enumerate(self.pieces)]
        loaded = self._relocate(addresses)
        contents = {
            kind: elf_image.joined([(offsets[n], self.pieces[n].content) for n in groups[kind]], sizes[kind])
            for kind in KINDS
        }
        named = {name: (addresses[piece] + offset, self.pieces[piece]) for name, (piece, offset) in exported.items()}
        places = {name: (address, piece.kind) for name, (address, piece) in named.items()}
        return elf_image.assemble(request, layout, contents, (places, sorted(loaded)))

    def _alignments(self) -> dict[str, int]:
        return {kind: max([8, *(p.alignment for p in self.pieces if p.kind == kind)]) for kind in KINDS}

    def _word_count(self, piece: _Piece) -> int:
        return len(piece.pointers) + sum(self._meaning(one) == "word" for one in piece.relocations)

    def _relocate(self, addresses: Sequence[int]) -> list[tuple[int, int]]:
        """Patch all pieces; return the words that the loader has to add the file's address to, with their values."""
        loaded: list[tuple[int, int]] = []
        entries = addresses[self.entries_piece]
        for (piece, offset), entry in self.table_entries.items():
            loaded.append((entries + entry, addresses[piece] + offset))
        for number, piece in enumerate(self.pieces):
            for at, pointer in piece.pointers.items():
                target, offset = self._named(pointer.symbol)
                loaded.append((addresses[number] + at, addresses[target] + offset + pointer.addend))
            for relocation in piece.relocations:
                meaning = self._meaning(relocation)
                if meaning == "none":
                    continue
                place = self._place(piece.owner, relocation.symbol)
                at = addresses[number] + relocation.offset
                if meaning == "word":
                    loaded.append((at, addresses[place[0]] + place[1] + relocation.addend))
                    continue
                through_table = meaning == "table_entry"
                target = entries + self.table_entries[place] if through_table else addresses[place[0]] + place[1]
                self.machine.patch(piece.content, relocation.offset, target + relocation.addend - at)
        return loaded


def _kind(section: Section, machine: Machine) -> Kind:
    """Return where a section belongs; what holds addresses is written to once, by the loader.

    Raises:
        ElfError: there are addresses in code, which stays as it is in the file.
    """
    holds_addresses = any(machine.meanings.get(one.kind) == "word" for one in section.relocations)
    if section.flags & SHF_EXECINSTR:
        if holds_addresses:
            raise ElfError(f"section {section.name} holds addresses, expected position-independent code")
        return "code"
    if not section.flags & SHF_WRITE:
        return "tables" if holds_addresses else "constants"
    if section.name.startswith(".data.rel.ro"):
        return "tables"
    return "zeros" if section.kind == SHT_NOBITS else "variables"
