"""A compiled network as one file: a header in JSON, the object code, and the packed weights, copied on load.

Layout: magic, length of the header, CRC-32 of all behind it (u64 both, little endian), header, sections at multiples of
64 bytes. The LLVM IR is not kept: the object is what it became.

The checksum finds what was damaged by chance, and nothing more: who can change a file can change its digest as well,
and the SHA-256 of all weights took longer than the rest of loading them.
"""

import json
import math
import os
import struct
import zlib
from dataclasses import dataclass, replace
from fractions import Fraction
from io import RawIOBase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...dialect.reports.layer_report import LayerReport, Report
from ...dialect.semantics.output_forms import OutputCast, OutputCodes, OutputForm
from ...dialect.semantics.prologue import Prologue, PrologueInput, PrologueStep
from ...foundation.atomic_files import replacing
from ...foundation.errors import RedpebbleError
from ...kernels.formats.stored_slots import as_stored
from ...lowering.architectures import host_name
from ...lowering.cpu_target import CpuTarget
from ...lowering.llvm.values import ALIGNMENT
from ...lowering.program import (
    FORMAT_VERSION,
    EqualSizes,
    LeastSize,
    Program,
    ScratchBytes,
    Size,
    Step,
    Temporary,
    Tensor,
    TiledRows,
    TileTime,
)
from ..jit import missing_features
from ..memory import FETCHED_AHEAD, aligned_bytes

MAGIC = b"pebble\x00\x02"
NUMBERS = struct.Struct("<QQ")
"""The length of the header, and the checksum."""

PROLOGUE_BYTES = len(MAGIC) + NUMBERS.size
CHUNK_BYTES = 1 << 18

Json = Any
"""A value that the json module reads and writes."""


class ArtefactError(RedpebbleError):
    """A file of native code that cannot be used here; the message says why."""


class Artefact(NamedTuple):
    """A program without its LLVM IR, and the object file that the IR became."""

    program: Program
    image: bytes

    def with_ends(self, prologue: Prologue | None, forms: tuple[OutputForm | None, ...]) -> "Artefact":
        """Return the same behind a prologue, its outputs in some forms."""
        return self._replace(program=replace(self.program, prologue=prologue, output_forms=forms))


def write_artefact(path: Path, artefact: Artefact, attachment: bytes = b"") -> None:
    """Write `artefact` to `path`, with some bytes beside it; its folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, private=True) as file:
        file.writelines(sealed(artefact, attachment))


def sealed(artefact: Artefact, attachment: bytes = b"") -> list[bytes]:
    """Return the parts of a file of native code, which follow each other."""
    prologue = artefact.program.prologue
    tables = [] if prologue is None else [np.asarray(table, order="C") for table in prologue.constants.values()]
    constants = [as_stored(array) for array in artefact.program.constants]
    sections = [np.frombuffer(artefact.image, dtype=np.uint8), *tables, *constants]
    header = json.dumps(_header(artefact, sections) | {"attachment": len(attachment)}).encode()
    header += b" " * (-(PROLOGUE_BYTES + len(header)) % ALIGNMENT)
    parts = [header]
    for data in (attachment, *(section.tobytes() for section in sections)):
        parts += [data, bytes(-len(data) % ALIGNMENT)]
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return [MAGIC + NUMBERS.pack(len(header), checksum), *parts]


def read_artefact(path: Path) -> Artefact:
    """Return the artefact that `write_artefact` wrote; the packed weights are views into a copy of the file.

    Raises:
        ArtefactError: the file is damaged, of another format version, or needs CPU features that are missing here.
        FileNotFoundError: there is no such file.
    """
    return open_file(path).artefact()


def open_file(path: Path) -> "Sealed":
    """Return the artefact that `write_artefact` wrote, after a look at its checksum alone.

    Raises:
        ArtefactError: the file is damaged.
        FileNotFoundError: there is no such file.
    """
    with path.open("rb", buffering=0) as file:
        return sealed_in(file, path.name)


def sealed_in(file: RawIOBase, name: str) -> "Sealed":
    """Return the artefact that `write_artefact` wrote into an open file, after a look at its checksum alone.

    The file is read, not mapped: whatever becomes of it later, the copy stays what the checksum was made of.

    Raises:
        ArtefactError: the file is damaged, or does not fit into memory.
    """
    size = os.fstat(file.fileno()).st_size
    try:
        room = aligned_bytes(size + FETCHED_AHEAD)
    except MemoryError as error:
        raise ArtefactError(f"{name} has {size} bytes, more than there is memory") from error
    # weights are at the end, and kernels fetch ahead: see `aligned_copies`
    data, room[size:] = room[:size], 0
    checksum = begin = 0
    while begin < size:
        # what was just read is still in the core's cache
        count = file.readinto(data[begin : begin + CHUNK_BYTES].data) or 0
        if not count:
            raise ArtefactError(f"{name} is damaged: it ends after {begin} of {size} bytes")
        checksum = zlib.crc32(data[max(begin, PROLOGUE_BYTES) : begin + count].data, checksum)
        begin += count
    return _checked(data, name, checksum)


def opened(data: NDArray[np.uint8], name: str) -> "Sealed":
    """Return what `sealed` made of [bytes], with nothing but its checksum looked at; `name` says where it is from.

    Raises:
        ArtefactError: the data are damaged.
    """
    return _checked(data, name, zlib.crc32(data[PROLOGUE_BYTES:].data))


def _checked(data: NDArray[np.uint8], name: str, checksum: int) -> "Sealed":
    if len(data) < PROLOGUE_BYTES or data[: len(MAGIC)].tobytes() != MAGIC:
        raise ArtefactError(f"{name} is no compiled network")
    length, expected = NUMBERS.unpack(data[len(MAGIC) : PROLOGUE_BYTES].tobytes())
    if checksum != expected:
        raise ArtefactError(f"{name} is damaged: its checksum does not match")
    try:
        header: Json = json.loads(data[PROLOGUE_BYTES : PROLOGUE_BYTES + length].tobytes())
        beside, first = int(header["attachment"]), PROLOGUE_BYTES + length
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{name} is damaged: its header cannot be read") from error
    behind = first + beside + -beside % ALIGNMENT
    return Sealed(name, header, data[first : first + beside], data[behind:])


@dataclass(frozen=True)
class Sealed:
    """A file of native code whose checksum matches; whether the code can be used here is another question."""

    name: str
    header: Json
    attachment: NDArray[np.uint8]
    """The bytes beside the code."""
    sections: NDArray[np.uint8]

    def artefact(self) -> Artefact:
        """Return the code; the packed weights are views.

        Raises:
            ArtefactError: it has another format version, or is for another kind of CPU, or one with more features.
        """
        header = self.header
        if header["format"] != FORMAT_VERSION:
            raise ArtefactError(f"{self.name}: expected format {FORMAT_VERSION}, got {header['format']}")
        if header["machine"] != host_name():
            raise ArtefactError(f"{self.name} is for {header['machine']}, this machine is {host_name()}")
        target = CpuTarget(**header["target"])
        if missing := missing_features(target):
            raise ArtefactError(f"{self.name} needs {', '.join(missing)}, which this machine lacks")
        image, *arrays = _arrays(self.sections, header["sections"])
        names: list[str] = header["prologue"]["constants"] if header["prologue"] is not None else []
        artefact = Artefact(_program(header, target, arrays[len(names) :]), image.tobytes())
        forms = (None if one is None else _output_form(one) for one in header["output_forms"])
        return artefact.with_ends(_prologue(header["prologue"], arrays[: len(names)]), tuple(forms))


def _output_form(parts: list[Any]) -> OutputForm:
    return OutputCast(*parts) if len(parts) == 1 else OutputCodes(*parts)


def _header(artefact: Artefact, sections: list[NDArray[np.generic]]) -> Json:
    program = artefact.program
    return {
        "format": FORMAT_VERSION,
        "machine": program.target.architecture_name,
        "target": vars(program.target),
        "inputs": [_tensor_json(tensor) for tensor in program.inputs],
        "outputs": [_tensor_json(tensor) for tensor in program.outputs],
        "temporaries": [[_size_json(t.size), t.first_step, t.last_step] for t in program.temporaries],
        "sizes": [_size_json(size) for size in program.sizes],
        "equal": [
            [_size_json(pair.first), _size_json(pair.second), pair.or_one, _size_json(pair.plus)]
            for pair in program.equal
        ],
        "least": [[_size_json(one.size), one.least] for one in program.least],
        "scratch_bytes": program.scratch_bytes,
        "scratch_of_sizes": [[one.whole, _size_json(one.size), one.each] for one in program.scratch_of_sizes],
        "steps": [_step_json(step) for step in program.steps],
        "sections": [[str(section.dtype), list(section.shape)] for section in sections],
        "report": vars(program.report) | {"layers": [vars(layer) for layer in program.report]},
        "zeroed": program.zeroed,
        "prologue": None if program.prologue is None else _prologue_json(program.prologue),
        "output_forms": program.output_forms,
    }


def _prologue_json(prologue: Prologue) -> Json:
    """Return a prologue without its constants, which are sections."""
    return {
        "inputs": [[value.name, value.dtype, [_size_json(size) for size in value.shape]] for value in prologue.inputs],
        "steps": [step._asdict() for step in prologue.steps],
        "results": prologue.results,
        "constants": list(prologue.constants),
    }


def _prologue(header: Json, constants: list[NDArray[np.generic]]) -> Prologue | None:
    if header is None:
        return None
    inputs = (PrologueInput(name, dtype, tuple(map(_size, shape))) for name, dtype, shape in header["inputs"])
    steps = (
        PrologueStep(**step | {"inputs": tuple(step["inputs"]), "outputs": tuple(step["outputs"])})
        for step in header["steps"]
    )
    named = dict(zip(header["constants"], constants, strict=True))
    return Prologue(tuple(inputs), tuple(steps), tuple(header["results"]), named)


def _program(header: Json, target: CpuTarget, constants: list[NDArray[np.generic]]) -> Program:
    return Program(
        llvm_ir="",
        target=target,
        inputs=tuple(Tensor(name, tuple(map(_size, shape)), dtype) for name, shape, dtype in header["inputs"]),
        outputs=tuple(Tensor(name, tuple(map(_size, shape)), dtype) for name, shape, dtype in header["outputs"]),
        temporaries=tuple(Temporary(_size(size), first, last) for size, first, last in header["temporaries"]),
        sizes=tuple(map(_size, header["sizes"])),
        equal=tuple(
            EqualSizes(_size(first), _size(second), or_one, _size(plus))
            for first, second, or_one, plus in header["equal"]
        ),
        least=tuple(LeastSize(_size(size), least) for size, least in header["least"]),
        constants=tuple(constants),
        scratch_bytes=header["scratch_bytes"],
        steps=tuple(map(_step, header["steps"])),
        report=_report(header["report"]),
        zeroed=tuple(header["zeroed"]),
        scratch_of_sizes=tuple(
            ScratchBytes(whole, _size(size), each) for whole, size, each in header["scratch_of_sizes"]
        ),
    )


def _report(json_report: Json) -> Report:
    layers = (LayerReport(**layer | {"at_most": tuple(layer["at_most"])}) for layer in json_report["layers"])
    return Report(**json_report | {"layers": tuple(layers)})


def _arrays(data: NDArray[np.uint8], descriptions: Json) -> list[NDArray[np.generic]]:
    """Return the arrays that lie one after the other."""
    arrays: list[NDArray[np.generic]] = []
    dtypes: dict[str, np.dtype[np.generic]] = {name: np.dtype(name) for name, _ in descriptions}
    offset = 0
    for name, shape in descriptions:
        # a network of images has a thousand arrays, and its session is opened amid calls
        arrays.append(np.ndarray(shape, dtypes[name], data, offset))
        size = math.prod(shape) * dtypes[name].itemsize
        offset += size + -size % ALIGNMENT
    return arrays


def _tensor_json(tensor: Tensor) -> Json:
    return [tensor.name, [_size_json(size) for size in tensor.shape], tensor.dtype]


def _step_json(step: Step) -> Json:
    tiled = step.tiled
    times = [] if tiled is None else [[*vars(time).values()] for time in tiled.times]
    tiles = None if tiled is None else [times, tiled.same_from, tiled.shared]
    return [step.symbol, None if step.rows is None else _size_json(step.rows), tiles, step.may_fail]


def _step(json_step: Json) -> Step:
    symbol, rows, tiles, may_fail = json_step
    tiled = None if tiles is None else TiledRows(tuple(TileTime(*time) for time in tiles[0]), *tiles[1:])
    return Step(symbol, None if rows is None else _size(rows), tiled, may_fail)


def _size_json(size: Size) -> Json:
    return [size.coefficient.numerator, size.coefficient.denominator, [list(power) for power in size.powers]]


def _size(json_size: Json) -> Size:
    numerator, denominator, powers = json_size
    return Size(Fraction(numerator, denominator), tuple((name, power) for name, power in powers))
