"""The bytes of a shared object around its contents: headers, segments, the tables of the loader, section names."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from .object_file import HEADER, RELA, SECTION, SYMBOL, Machine

_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")

PT_LOAD, PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 1, 2, 0x6474E551, 0x6474E552
READ, WRITE, EXECUTE = 4, 2, 1
SEGMENT_COUNT: Final = 6

DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_RELAENT = 4, 5, 6, 7, 8, 9
DT_STRSZ, DT_SYMENT, DT_SONAME, DT_FLAGS, DT_RELACOUNT = 10, 11, 14, 30, 0x6FFFFFF9
DYNAMIC_COUNT: Final = 12
BIND_NOW: Final = 8

STT_OBJECT, STT_FUNC = 1, 2

SECTIONS: Final[tuple[tuple[str, int, int], ...]] = (
    ("", 0, 0),
    (".hash", 5, 2),
    (".dynsym", 11, 2),
    (".dynstr", 3, 2),
    (".rela.dyn", 4, 2),
    (".rodata", 1, 2),
    (".text", 1, 6),
    (".data.rel.ro", 1, 3),
    (".dynamic", 6, 3),
    (".data", 1, 3),
    (".bss", 8, 3),
    (".shstrtab", 3, 0),
)
"""Name, type and flags of the sections, in their order; the loader does not read them, other tools do."""

SECTION_OF: Final[Mapping[str, str]] = {
    "constants": ".rodata",
    "code": ".text",
    "tables": ".data.rel.ro",
    "variables": ".data",
    "zeros": ".bss",
}


@dataclass(frozen=True)
class Request:
    """Properties of the file: machine, names, and how many words the loader adds the file's address to."""

    number: int
    machine: Machine
    soname: str
    exports: tuple[str, ...]
    loaded_count: int

    @property
    def strings(self) -> bytes:
        """The strings of the dynamic symbols, then the file's own name."""
        return b"\0" + b"".join(name.encode() + b"\0" for name in (*self.exports, self.soname))

    def string_offset(self, name: str) -> int:
        """Return where a name stands in `strings`."""
        return self.strings.index(b"\0" + name.encode() + b"\0") + 1


class Span(NamedTuple):
    """A part of the file: where it starts, which is its address as well, and its bytes in memory."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.start + self.size


@dataclass(frozen=True)
class Layout:
    """The spans of all sections; offsets in the file and addresses are the same numbers."""

    spans: Mapping[str, Span]
    """Spans by section name."""
    starts: Mapping[str, int]
    """Addresses by kind of content."""


def lay_out(request: Request, sizes: Mapping[str, int], alignments: Mapping[str, int]) -> Layout:
    """Return the places of all parts; kinds of content are those of `SECTION_OF`, the rest follows from `request`."""
    page = request.machine.page_bytes
    own = {
        ".hash": 4 * (2 + 1 + len(request.exports) + 1),
        ".dynsym": SYMBOL.size * (1 + len(request.exports)),
        ".dynstr": len(request.strings),
        ".rela.dyn": RELA.size * request.loaded_count,
        ".dynamic": _ENTRY.size * DYNAMIC_COUNT,
    }
    content = {SECTION_OF[kind]: (size, alignments[kind]) for kind, size in sizes.items()}
    spans: dict[str, Span] = {}
    end = HEADER.size + SEGMENT_COUNT * _SEGMENT.size
    for name, _, _ in SECTIONS[1:-1]:
        size, alignment = content[name] if name in content else (own[name], 8)
        if name in {".text", ".data.rel.ro", ".data"}:  # another protection begins
            alignment = max(alignment, page)
        start = -(-end // alignment) * alignment
        spans[name] = Span(start, size)
        end = start + size
    return Layout(spans, {kind: spans[name].start for kind, name in SECTION_OF.items()})


class Chunk(NamedTuple):
    """Bytes at an offset."""

    offset: int
    content: bytes | bytearray


class Export(NamedTuple):
    """A symbol that can be looked up: its address, and the kind of content that it is in."""

    address: int
    kind: str


class LoadedWord(NamedTuple):
    """A word to which the loader adds the address of the file: where it lies, and its value."""

    at: int
    value: int


def joined(chunks: Sequence[Chunk], size: int) -> bytes:
    """Return `size` bytes with each chunk at its offset, and zeros between them."""
    found: list[bytes | bytearray] = []
    end = 0
    for offset, content in chunks:
        found += [bytes(offset - end), content]
        end = offset + len(content)
    return b"".join([*found, bytes(size - end)])


def assemble(
    request: Request,
    layout: Layout,
    contents: Mapping[str, bytes],
    exports: Mapping[str, Export],
    loaded: Sequence[LoadedWord],
) -> bytes:
    """Return the file from the contents by kind, the exports by name, and the loader's words."""
    spans = layout.spans
    names = b"".join(name.encode() + b"\0" for name, _, _ in SECTIONS)
    behind = spans[".bss"].start
    section_table = -(-(behind + len(names)) // 8) * 8
    parts = {
        0: _header(request, section_table) + _segments(request, spans),
        spans[".hash"].start: _hash(request.exports),
        spans[".dynsym"].start: _symbols(request, exports),
        spans[".dynstr"].start: request.strings,
        spans[".rela.dyn"].start: b"".join(RELA.pack(at, request.machine.relative_kind, value) for at, value in loaded),
        spans[".dynamic"].start: _dynamic(request, spans),
        behind: names,
        section_table: _section_table(spans, Span(behind, len(names))),
    }
    filled = {spans[SECTION_OF[kind]].start: content for kind, content in contents.items()}
    chunks = [Chunk(*part) for part in (*parts.items(), *filled.items())]
    merged = sorted(chunks, key=lambda chunk: (chunk.offset, len(chunk.content)))
    return joined(merged, section_table + SECTION.size * len(SECTIONS))


def _header(request: Request, section_table: int) -> bytes:
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    sizes = (HEADER.size, _SEGMENT.size, SEGMENT_COUNT, SECTION.size, len(SECTIONS), len(SECTIONS) - 1)
    return HEADER.pack(identity, 3, request.number, 1, 0, HEADER.size, section_table, 0, *sizes)


def _segments(request: Request, spans: Mapping[str, Span]) -> bytes:
    page = request.machine.page_bytes
    tables, data, zeros = spans[".data.rel.ro"], spans[".data"], spans[".bss"]
    # of the pages before the variables, all become read-only
    relro = data.start - tables.start
    rows = [
        (PT_LOAD, READ, 0, spans[".rodata"].end, spans[".rodata"].end, page),
        (PT_LOAD, READ | EXECUTE, spans[".text"].start, spans[".text"].size, spans[".text"].size, page),
        (PT_LOAD, READ | WRITE, tables.start, zeros.start - tables.start, zeros.end - tables.start, page),
        (PT_DYNAMIC, READ | WRITE, spans[".dynamic"].start, spans[".dynamic"].size, spans[".dynamic"].size, 8),
        (PT_GNU_RELRO, READ, tables.start, relro, relro, 1),
        (PT_GNU_STACK, READ | WRITE, 0, 0, 0, 16),
    ]
    return b"".join(
        _SEGMENT.pack(kind, flags, start, start, start, in_file, in_memory, alignment)
        for kind, flags, start, in_file, in_memory, alignment in rows
    )


def _hash(exports: Sequence[str]) -> bytes:
    """Return the hash table of the loader: a single chain, since there are few symbols."""
    count = len(exports)
    chain = [0, *(index + 1 if index < count else 0 for index in range(1, count + 1))]
    return struct.pack(f"<{2 + 1 + len(chain)}I", 1, len(chain), 1 if count else 0, *chain)


def _symbols(request: Request, exports: Mapping[str, Export]) -> bytes:
    order = [name for name, _, _ in SECTIONS]
    rows = [SYMBOL.pack(0, 0, 0, 0, 0, 0)]
    for name in request.exports:
        address, kind = exports[name]
        info = 1 << 4 | (STT_FUNC if kind == "code" else STT_OBJECT)
        rows.append(SYMBOL.pack(request.string_offset(name), info, 0, order.index(SECTION_OF[kind]), address, 0))
    return b"".join(rows)


def _dynamic(request: Request, spans: Mapping[str, Span]) -> bytes:
    entries = [
        (DT_SONAME, request.string_offset(request.soname)),
        (DT_HASH, spans[".hash"].start),
        (DT_STRTAB, spans[".dynstr"].start),
        (DT_SYMTAB, spans[".dynsym"].start),
        (DT_STRSZ, spans[".dynstr"].size),
        (DT_SYMENT, SYMBOL.size),
        (DT_RELA, spans[".rela.dyn"].start),
        (DT_RELASZ, spans[".rela.dyn"].size),
        (DT_RELAENT, RELA.size),
        (DT_RELACOUNT, request.loaded_count),
        (DT_FLAGS, BIND_NOW),
        (0, 0),
    ]
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


def _section_table(spans: Mapping[str, Span], names: Span) -> bytes:
    order = [name for name, _, _ in SECTIONS]
    links = {".hash": ".dynsym", ".dynsym": ".dynstr", ".rela.dyn": ".dynsym", ".dynamic": ".dynstr"}
    entries = {".hash": 4, ".dynsym": SYMBOL.size, ".rela.dyn": RELA.size, ".dynamic": _ENTRY.size}
    rows: list[bytes] = []
    name_offset = 0
    for name, kind, flags in SECTIONS:
        start, size = names if name == ".shstrtab" else spans.get(name, Span(0, 0))
        link = order.index(links[name]) if name in links else 0
        address = start if flags else 0
        local = 1 if name == ".dynsym" else 0  # the first symbol that is not local
        alignment = 64 if name in SECTION_OF.values() else 8
        alignment = alignment if start % alignment == 0 else 1
        rows.append(
            SECTION.pack(name_offset, kind, flags, address, start, size, link, local, alignment, entries.get(name, 0))
        )
        name_offset += len(name) + 1
    return b"".join(rows)
