"""The shared objects that run sparse networks inside onnxruntime: one for this process, others built ahead of time."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...export.sparse_networks.node_format import CODES_OP_TYPE, OP_TYPE
from ...kernels.formats.stored_slots import as_stored, is_stored, unpacked_bytes
from ...lowering.calls.network_table import (
    IN_ONNXRUNTIME,
    Pointer,
    Symbols,
    Word,
    WordTable,
    network_table,
)
from ...lowering.cpu_target import CpuTarget
from ...runtime.store.artefact import Artefact
from ...runtime.store.cache import compiler_fingerprint, default_folder
from ...runtime.store.checked_file import kept
from ..elf.linker import WORD, Code, Data, Part, Room, generic_object, library_architecture, link
from ..elf.loading import loaded
from ..native.api import TENSOR_FLOAT, TENSOR_UNDEFINED
from ..native.library import EXPORTS, library_module
from ..native.tables import (
    CODES_COUNT,
    DIGEST_BYTES,
    LEVELS,
    LIBRARY_TABLE,
    OPERATOR_COUNT,
    OPERATOR_WORDS,
    WEIGHTS_TABLE,
    variant_words,
)
from .host import Compiler, host

Clusters = Mapping[str, Sequence[tuple[str, Mapping[str, Artefact]]]]
"""Variants by operator: the digest of a node, and for each CPU level the code of its network."""


class Level(NamedTuple):
    """A kind of CPUs that libraries have code for."""

    target: Callable[[], CpuTarget]
    formats: frozenset[str] = frozenset()
    """Formats of layers that its instructions are for: other networks have no code of their own; all where none is."""


BYTES: Final = frozenset({"int8"})

TARGETS: Final[Mapping[str, Mapping[str, Level]]] = MappingProxyType(
    {
        "x86_64": {
            "generic": Level(lambda: CpuTarget.generic("x86_64")),
            "avx2": Level(CpuTarget.avx2),
            "avxvnni": Level(CpuTarget.avxvnni, BYTES),
            "avx512": Level(CpuTarget.avx512),
            "avx512vnni": Level(CpuTarget.avx512vnni, BYTES),
            "zen4": Level(CpuTarget.zen4, BYTES | {"bf16"}),
        },
        "aarch64": {
            "generic": Level(CpuTarget.arm64),
            "dotprod": Level(CpuTarget.arm64_dot, BYTES),
            "i8mm": Level(CpuTarget.arm64_i8mm, BYTES | {"bf16"}),
        },
    }
)
"""The levels of `LEVELS`, by architecture."""


def level_target(level: str, architecture: str = "x86_64") -> CpuTarget:
    """Return the CPU that code of a level is for.

    Raises:
        ValueError: there is no such level.
    """
    levels = TARGETS[architecture]
    if level not in levels:
        raise ValueError(f"level: expected one of {', '.join(levels)}, got {level!r}")
    return levels[level].target().on_linux


def code_of_levels(compiled: Callable[[CpuTarget], Artefact], architecture: str = "") -> dict[str, Artefact]:
    """Return the code of a network for each level with code of its own; `compiled` makes it for a CPU."""
    found: dict[str, Artefact] = {}
    formats = frozenset[str]()
    for name, level in TARGETS[library_architecture(architecture).name].items():
        if level.formats and not level.formats & formats:
            continue
        target = level.target().on_linux
        made = compiled(target)
        formats |= {layer.format for layer in made.program.report}
        below = [one for one in found.values() if one.program.target.extensions <= target.extensions]
        if not below or not _is_same(made, below[-1]):
            found[name] = made
    return found


def _is_same(one: Artefact, other: Artefact) -> bool:
    """Return whether two pieces of code are the same, with the same weights."""
    arrays = (one.program.constants, other.program.constants)
    return one.image == other.image and len(arrays[0]) == len(arrays[1]) and all(map(np.array_equal, *arrays))


def in_process_library(operator_count: int = OPERATOR_COUNT) -> Path:
    """Return the library to register in this process; it asks what `set_compiler` was given for the code of a node.

    It knows `SparseNetwork_0` up to `operator_count`, rounded up to a power of two, and a quarter as many networks that
    yield codes. It is made once and kept in the user's cache.

    Raises:
        ValueError: there are no libraries for this machine.
    """
    return _in_process_library(default_folder(), _rounded(operator_count))


def _rounded(operator_count: int) -> int:
    """Return a power of two: few libraries differ."""
    return max(OPERATOR_COUNT, 1 << (operator_count - 1).bit_length())


def set_compiler(compiler: Compiler, operator_count: int = OPERATOR_COUNT) -> None:
    """Let `compiler` (operator, attributes, constants) make the native code for the nodes of new sessions.

    It gets the string and integer attributes of a node, and its inputs behind the activations as arrays, None for one
    that is no constant. Its exceptions become errors of onnxruntime.
    """
    host(in_process_library(operator_count)).set_compiler(compiler)


def build_library(clusters: Clusters, soname: str = "libredpebble_model.so", architecture: str = "") -> bytes:
    """Return a library with the native code of `clusters`; it needs neither Python nor redpebble to run.

    It is for CPUs of an architecture, this machine's by default.

    Raises:
        ValueError: there are no libraries for it, a level is unknown, or a digest has the wrong length.
    """
    if not clusters:
        raise ValueError("expected one sparse network or more, got none")
    name = library_architecture(architecture).name
    parts: list[Part] = [Code(library_object(name))]
    constants = _Constants(parts)
    variants: dict[str, list[Word]] = {}
    for number, (operator, rows) in enumerate(clusters.items()):
        variants[operator] = []
        for index, (digest, artefacts) in enumerate(rows):
            variants[operator] += [
                *_digest_words(digest),
                *_variant(parts, constants, f"n{number}v{index}", _by_level(artefacts, name)),
            ]
    return link([*parts, *library_table(variants, variant_words(name), constants.unpacked)], EXPORTS, soname)


def _by_level(artefacts: Mapping[str, Artefact], architecture: str) -> list[Artefact | None]:
    for level in artefacts:
        level_target(level, architecture)
    return [artefacts.get(level) for level in LEVELS[architecture]]


def _digest_words(digest: str) -> list[Word]:
    if len(digest) != DIGEST_BYTES:
        raise ValueError(f"expected a digest of {DIGEST_BYTES} digits, got {digest!r}")
    return [int(word) for word in np.frombuffer(digest.encode(), dtype=np.int64)]


def _variant(parts: list[Part], constants: "_Constants", name: str, artefacts: Sequence[Artefact | None]) -> list[Word]:
    """Add the code of a network to `parts`; return a word for each CPU level: where its table is, or 0."""
    words: list[Word] = []
    for number, artefact in enumerate(artefacts):
        if artefact is None:
            words.append(0)
            continue
        prefix = f"{name}_{number}_"
        names = tuple(map(constants.symbol, artefact.program.constants))
        symbols = Symbols(f"{prefix}table", prefix, names)
        parts.append(Code(artefact.image, prefix))
        parts.append(_data_of(network_table(artefact.program, symbols, IN_ONNXRUNTIME)))
        words.append(Pointer(symbols.table))
    return words


@dataclass
class _Constants:
    """The packed weights among the parts of a library."""

    parts: list[Part]
    unpacked: list[Word] = field(default_factory=list[Word])
    """The words of `WEIGHTS_TABLE` behind the first one."""
    _known: dict[bytes, str] = field(default_factory=dict[bytes, str])

    def symbol(self, array: NDArray[np.generic]) -> str:
        """Add weights, as code reads them; return their symbol. Equal weights share one."""
        kept = np.ascontiguousarray(array)
        key = hashlib.sha256(kept.tobytes()).digest()
        if key not in self._known:
            self._known[key] = self._added(f"constant{len(self._known)}", as_stored(kept))
        return self._known[key]

    def _added(self, name: str, array: NDArray[np.generic]) -> str:
        self.parts.append(Data(name, array.tobytes()))
        if not is_stored(array):
            return name
        room = f"{name}_unpacked"
        self.parts.append(Room(room, unpacked_bytes(array)))
        self.unpacked += [Pointer(name), Pointer(room)]
        return room


def library_table(variants: Mapping[str, Sequence[Word]], row_words: int, unpacked: Sequence[Word] = ()) -> list[Data]:
    """Return the tables of a library: its operators and, for each, the rows of its variants; what is unpacked."""
    names = b"".join(operator.encode() + b"\0" for operator in variants)
    words: list[Word] = [len(variants)]
    content: list[Word] = []
    offset = 0
    first = 1 + OPERATOR_WORDS * len(variants)
    for operator, rows in variants.items():
        words += [Pointer("operator_names", offset), len(rows) // row_words]
        words.append(Pointer(LIBRARY_TABLE, 8 * (first + len(content))))
        words.append(TENSOR_UNDEFINED if operator.startswith(CODES_OP_TYPE) else TENSOR_FLOAT)
        content += rows
        offset += len(operator.encode()) + 1
    weights = WordTable(WEIGHTS_TABLE, (len(unpacked) // 2, *unpacked))
    tables = (WordTable(LIBRARY_TABLE, (*words, *content)), weights)
    return [Data("operator_names", names), *map(_data_of, tables)]


def _data_of(table: WordTable) -> Data:
    content = b"".join(WORD.pack(0 if isinstance(word, Pointer) else word) for word in table.words)
    pointers = {WORD.size * index: word for index, word in enumerate(table.words) if isinstance(word, Pointer)}
    return Data(table.symbol, content, pointers)


@cache
def library_object(name: str) -> bytes:
    """Return the object file that all libraries for an architecture begin with."""
    architecture = library_architecture(name)
    return generic_object(library_module(architecture), architecture)


@cache
def _in_process_library(folder: Path, operator_count: int) -> Path:
    return loaded(cached_library(folder, operator_count), f"libredpebble-{operator_count}.so")


def cached_library(folder: Path, operator_count: int) -> bytes:
    """Return the library for this process that knows so many operators, from `folder` where it was made before.

    Raises:
        ValueError: there are no libraries for this machine.
    """

    def make() -> bytes:
        names = [f"{OP_TYPE}_{number}" for number in range(operator_count)]
        names += [f"{CODES_OP_TYPE}_{number}" for number in range(operator_count * CODES_COUNT // OPERATOR_COUNT)]
        operators: dict[str, list[Word]] = {name: [] for name in names}
        name = library_architecture().name
        parts = [Code(library_object(name)), *library_table(operators, variant_words(name))]
        return link(parts, EXPORTS, "libredpebble.so")

    numbers = operator_count.to_bytes(8, "little") + library_architecture().name.encode()
    key = hashlib.sha256(compiler_fingerprint() + numbers)
    return kept(folder / f"libredpebble-{key.hexdigest()[:40]}.image", make)
