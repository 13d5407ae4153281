"""The file of one part: its rank's program, the maps of its messages, and its weights.

Layout: magic, length of the header (u64, little endian), header in JSON, arrays at multiples of 64 bytes. The checksum
of the whole file is in the plan. Arrays are mapped, not read: a rank touches what it needs.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from ...lowering.llvm.values import ALIGNMENT
from ..errors import PartError
from .steps import Buffer, BufferRow, Call, Indices, Receive, Route, Send, Step

MAGIC: Final = b"pebblepart\x00\x01"
PARTS_VERSION: Final = 4
"""Version of part files and of plan.json; raised whenever either changes its meaning."""

EXCHANGES: Final[Mapping[str, type[Send | Receive]]] = MappingProxyType({"send": Send, "receive": Receive})
"""Steps that are no calls, by the word in the file."""

Array = NDArray[np.generic]

Json = Any
"""A value that the json module reads and writes."""


@dataclass(frozen=True)
class Part:
    """The program and the numbers of one rank.

    With `whole` the text is a network that runs on a slice of the batch, and there are no buffers and steps; `inputs`
    and `outputs` are the features that the rank reads and writes otherwise.
    """

    rank: int
    part_count: int
    whole: bool
    text: str
    constants: tuple[Array, ...]
    buffers: tuple[Buffer, ...] = ()
    steps: tuple[Step, ...] = ()
    inputs: tuple[Indices, ...] = ()
    outputs: tuple[Indices, ...] = ()


def write_part(path: Path, part: Part) -> str:
    """Write a part, and return the sha256 of its file in hexadecimal digits."""
    arrays: list[Array] = []

    def number_of(array: Array) -> int:
        arrays.append(array)
        return len(arrays) - 1

    content: Json = {
        "format": PARTS_VERSION,
        "rank": part.rank,
        "part_count": part.part_count,
        "whole": part.whole,
        "text": part.text,
        "constants": [number_of(array) for array in part.constants],
        "buffers": [list(buffer) for buffer in part.buffers],
        "steps": [_step_json(step, number_of) for step in part.steps],
        "inputs": [number_of(array) for array in part.inputs],
        "outputs": [number_of(array) for array in part.outputs],
    }
    content["arrays"] = [[str(array.dtype), list(array.shape)] for array in arrays]
    header = json.dumps(content).encode()
    header += b" " * (-(len(MAGIC) + 8 + len(header)) % ALIGNMENT)
    with path.open("wb") as file:
        digest = hashlib.sha256()
        for data in _chunks(header, arrays):
            file.write(data)
            digest.update(data)
    return digest.hexdigest()


def _chunks(header: bytes, arrays: Sequence[Array]) -> Iterator[bytes]:
    """Yield the content of the file, one array at a time."""
    yield MAGIC + len(header).to_bytes(8, "little") + header
    for array in arrays:
        yield array.tobytes()
        yield bytes(-array.nbytes % ALIGNMENT)


def read_part(path: Path) -> Part:
    """Return the part that a file holds.

    Raises:
        PartError: the file is no part, or of another format.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return part_in(file, path.name)


def part_in(file: BinaryIO, name: str) -> Part:
    """Return the part that an open file holds; its arrays are views of the file, which may be closed.

    Raises:
        PartError: the file is no part, or of another format.
        OSError: the file cannot be read.
    """
    start = len(MAGIC) + 8
    if os.fstat(file.fileno()).st_size < start:
        raise PartError(f"{name} is no part of a network")
    data: NDArray[np.uint8] = np.memmap(file, dtype=np.uint8, mode="r")
    if data[: len(MAGIC)].tobytes() != MAGIC:
        raise PartError(f"{name} is no part of a network, or one of another format")
    length = int.from_bytes(data[len(MAGIC) : start].tobytes(), "little")
    header: Json = json.loads(data[start : start + length].tobytes())
    if header["format"] != PARTS_VERSION:
        raise PartError(f"{name}: expected format {PARTS_VERSION}, got {header['format']}")
    arrays = _arrays(data, start + length, header["arrays"])

    def chosen(word: str) -> list[Array]:
        numbers: list[int] = header[word]
        return [arrays[number] for number in numbers]

    return Part(
        rank=header["rank"],
        part_count=header["part_count"],
        whole=header["whole"],
        text=header["text"],
        constants=tuple(chosen("constants")),
        buffers=tuple(Buffer(*entry) for entry in header["buffers"]),
        steps=tuple(_step(entry, arrays) for entry in header["steps"]),
        inputs=tuple(array.view(np.int64) for array in chosen("inputs")),
        outputs=tuple(array.view(np.int64) for array in chosen("outputs")),
    )


def _arrays(data: NDArray[np.uint8], offset: int, descriptions: Json) -> list[Array]:
    """Return the arrays that lie one after the other from `offset` on."""
    arrays: list[Array] = []
    for dtype_name, shape in descriptions:
        dtype: np.dtype[np.generic] = np.dtype(dtype_name)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        arrays.append(data[offset : offset + size].view(dtype).reshape(shape))
        offset += size + -size % ALIGNMENT
    return arrays


def _step_json(step: Step, number_of: Callable[[Array], int]) -> Json:
    if isinstance(step, Call):
        return ["call", step.function, [list(operand) for operand in step.operands]]
    word = "send" if isinstance(step, Send) else "receive"
    return [word, step.tag, step.buffer, [[route.rank, number_of(route.rows)] for route in step.routes]]


def _step(entry: Json, arrays: Sequence[Array]) -> Step:
    word, *rest = entry
    if word == "call":
        return Call(rest[0], tuple(BufferRow(*operand) for operand in rest[1]))
    tag, buffer, routes = rest
    read = tuple(Route(rank, _indices(arrays, number)) for rank, number in routes)
    if word not in EXCHANGES:
        raise ValueError(f"step: expected one of call, {', '.join(EXCHANGES)}, got {word!r}")
    return EXCHANGES[word](tag, buffer, read)


def _indices(arrays: Sequence[Array], number: int) -> Indices:
    return arrays[number].view(np.int64)
