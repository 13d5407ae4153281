"""Inputs and outputs as .npy files, which every rank maps and touches only where its slice lies."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from ...dialect.symbolic_sizes import bind_symbols
from ..errors import PartError
from ..parts.plan_file import PortShape
from .partitioned_network import Slice

Floats = NDArray[np.float32]


def files_by_name(options: Sequence[str], ports: Sequence[PortShape], word: str) -> dict[str, Path]:
    """Return the file of every port; options are `FILE` where there is one port, else `NAME=FILE` for each.

    Raises:
        PartError: a port has no file, or a name no port.
    """
    names = [port.name for port in ports]
    files: dict[str, Path] = {}
    for option in options:
        name, equals, path = option.partition("=")
        if not equals and len(names) == 1:
            name, path = names[0], option
        if name not in names or not path:
            known = ", ".join(names)
            raise PartError(f"cannot read --{word} {option!r}, accepted is NAME=FILE with a name of {known}")
        files[name] = Path(path)
    missing = next((name for name in names if name not in files), None)
    if missing is not None:
        raise PartError(f"{word} {missing!r} has no file, expected --{word} {missing}=FILE")
    return files


def open_input(path: Path) -> Floats:
    """Return an input, mapped.

    Raises:
        PartError: it is no .npy file of floats.
    """
    try:
        array: NDArray[np.generic] = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise PartError(f"{path} cannot be read as .npy: {' '.join(str(error).split())}") from error
    if array.dtype != np.float32 or not array.flags.c_contiguous:
        order = "" if array.flags.c_contiguous else " in Fortran order"
        raise PartError(f"{path} holds {array.dtype}{order}, expected float32 in C order")
    return array.view(np.float32)


def sizes_of(ports: Sequence[PortShape], inputs: Mapping[str, Floats]) -> dict[str, int]:
    """Return the value of every symbolic size.

    Raises:
        PartError: a shape does not fit.
    """
    try:
        return bind_symbols(
            {port.name: port.shape for port in ports}, [list(inputs[port.name].shape) for port in ports]
        )
    except ValueError as error:
        raise PartError(str(error)) from error


@dataclass(frozen=True)
class OutputFile:
    """An output that all ranks write into one file, which gets its name when it is complete.

    (`foundation.atomic_files` is for files of one process; here all have to know the unfinished one.)
    """

    path: Path
    shape: tuple[int, ...]
    token: str
    """Token that tells this run from others into the same file; the same on all ranks."""

    @property
    def temporary(self) -> Path:
        """The path of a file of the output that is not complete; the same on all ranks."""
        return self.path.with_name(f".{self.path.name}.{self.token}.part")

    def create(self) -> None:
        """Make the file, for one rank.

        Raises:
            PartError: it cannot be written.
        """
        try:
            open_memmap(self.temporary, mode="w+", dtype=np.float32, shape=self.shape).flush()
            _take_room(self.temporary)
        except OSError as error:
            raise PartError(f"cannot write {self.path}: {(error.strerror or str(error)).lower()}") from error

    def write(self, entry: Slice, values: Floats, first: int) -> None:
        """Write a slice; samples from `first` on where the batch is cut."""
        if not values.size:
            return
        array = open_memmap(self.temporary, mode="r+")
        if entry.nodes is not None:
            array[columns(entry.nodes)] = values
        elif entry.features is None:
            array[first : first + len(values)] = values
        else:
            array[..., columns(entry.features)] = values
        array.flush()

    def finish(self) -> None:
        """Give the file its name."""
        self.temporary.replace(self.path)

    def remove(self) -> None:
        """Remove what is there so far."""
        self.temporary.unlink(missing_ok=True)


def _take_room(path: Path) -> None:
    """Take the room on disk that a file promises: a full disk found later, in mapped memory, would end the process.

    Raises:
        OSError: there is not so much.
    """
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            os.posix_fallocate(file.fileno(), 0, size)


def columns(features: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Return ascending features [count] as a slice where they are neighbours: that is read and written faster."""
    if len(features) and int(features[-1]) - int(features[0]) + 1 == len(features):
        return slice(int(features[0]), int(features[-1]) + 1)
    return features


def read_slice(whole: Floats, entry: Slice, samples: range) -> Floats:
    """Return a rank's slice of an input, in memory."""
    if entry.nodes is not None:
        return np.array(whole[columns(entry.nodes)])
    if entry.features is None:
        return np.array(whole[samples.start : samples.stop])
    return np.ascontiguousarray(whole[..., columns(entry.features)])
