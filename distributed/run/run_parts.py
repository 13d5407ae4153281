"""The command `run`: the ranks of mpiexec run the parts of a network together, on slices of files."""

import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from ...dialect.symbolic_sizes import bind_symbols
from ..errors import PartError
from ..parts.plan_file import PortShape
from .agreement import agree_on, agreed, world
from .guard import EXIT_CODE, EndSignals, Guard, guarded
from .liveness import START_FACTOR, watched
from .partitioned_network import PartitionedNetwork, RunOptions, Slice

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


Floats = NDArray[np.float32]

# Inputs and outputs as .npy files, which every rank maps and touches only where its slice lies.


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
            raise PartError(f"--{word}: expected NAME=FILE with a name of {known}, got {option!r}")
        files[name] = Path(path)
    missing = next((name for name in names if name not in files), None)
    if missing is not None:
        raise PartError(f"{word} {missing!r}: expected --{word} {missing}=FILE, got none")
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
        raise PartError(f"{path}: expected float32 in C order, got {array.dtype}{order}")
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

    (`foundation.atomic_files` is for files of one process; here all ranks have to know the unfinished file.)
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


@dataclass(frozen=True)
class RunRequest:
    """The request of a run; `inputs` and `outputs` are `FILE` or `NAME=FILE`."""

    parts: Path
    inputs: Sequence[str]
    outputs: Sequence[str]
    options: RunOptions
    patience: float
    ended: "Callable[[RunSummary], None] | None" = None
    """Called on rank 0 with what all ranks did."""


@dataclass(frozen=True)
class RunSummary:
    """The outcome of a run: the slowest one's seconds of running, the bytes that all sent."""

    kind: str
    seconds: float
    bytes_sent: int
    plan: Mapping[str, Any]
    ranks: Sequence[Mapping[str, Any]]


def run_parts(request: RunRequest) -> int:
    """Run the parts on the ranks of this process's MPI world; return the exit code.

    Raises:
        ValueError: there is no MPI.
    """
    with closing(EndSignals()) as signals, ExitStack() as stack:
        guard = stack.enter_context(guarded(START_FACTOR * request.patience, signals))
        comm = world("run")
        run = _Run(comm, request, guard)
        stack.enter_context(watched(comm, request.patience, run.clean_up, signals))
        guard.started()
        try:
            run.run()
        except PartError as error:
            # raised on all ranks alike: one of them says it
            if comm.rank == 0:
                run.clean_up()
                print(f"error: {error}", file=sys.stderr)
            return EXIT_CODE
    return 0


class _Run:
    """One run of the command on one rank."""

    def __init__(self, comm: "Intracomm", request: RunRequest, guard: Guard) -> None:
        self.comm, self.request, self.guard = comm, request, guard
        self.outputs: list[OutputFile] = []

    def clean_up(self) -> None:
        """Remove outputs that are not complete."""
        for output in self.outputs:
            output.remove()

    def run(self) -> None:
        """Read, run, write, report.

        Raises:
            PartError: on all ranks.
        """
        network = PartitionedNetwork(self.comm, self.request.parts, self.request.options)
        started = time.perf_counter()
        inputs = agreed(self.comm, lambda: self._open_inputs(network))
        symbols = agreed(self.comm, lambda: sizes_of(network.plan.inputs, inputs))
        agree_on(self.comm, symbols, "the sizes of the inputs")
        samples = self._samples(next(iter(inputs.values())).shape[0])
        token: str = self.comm.bcast(secrets.token_hex(8))
        self.outputs = agreed(self.comm, lambda: self._create_outputs(network, symbols, token))
        slices = agreed(
            self.comm, lambda: [read_slice(inputs[entry.port.name], entry, samples) for entry in network.inputs]
        )
        read = time.perf_counter()
        results = network.run(*slices)
        ran = time.perf_counter()
        agreed(self.comm, lambda: self._write(network, results if isinstance(results, list) else [results], samples))
        agreed(self.comm, self._finish)
        network.report.seconds |= {"reading": read - started, "writing": time.perf_counter() - ran}
        self._report(network)

    def _open_inputs(self, network: PartitionedNetwork) -> dict[str, Floats]:
        files = files_by_name(self.request.inputs, network.plan.inputs, "input")
        files_by_name(self.request.outputs, network.plan.outputs, "output")
        return {name: open_input(path) for name, path in files.items()}

    def _samples(self, batch: int) -> range:
        """Return the samples of this rank where the batch is cut."""
        rank, size = self.comm.rank, self.comm.size
        return range(batch * rank // size, batch * (rank + 1) // size)

    def _create_outputs(self, network: PartitionedNetwork, symbols: dict[str, int], token: str) -> list[OutputFile]:
        files = files_by_name(self.request.outputs, network.plan.outputs, "output")
        outputs = [
            OutputFile(files[port.name], tuple(size.evaluate(symbols) for size in port.shape), token)
            for port in network.plan.outputs
        ]
        # before any file exists: the rank that ends all others removes the files, or its guard does
        self.outputs = outputs
        self.guard.remove_at_end([output.temporary for output in outputs])
        if self.comm.rank == 0:
            for output in outputs:
                output.create()
        return outputs

    def _write(self, network: PartitionedNetwork, results: Sequence[Floats], samples: range) -> None:
        for output, entry, values in zip(self.outputs, network.outputs, results, strict=True):
            output.write(entry, values, samples.start)

    def _finish(self) -> None:
        if self.comm.rank == 0:
            for output in self.outputs:
                output.finish()

    def _report(self, network: PartitionedNetwork) -> None:
        reports = self.comm.gather(network.report.as_json())
        if self.comm.rank != 0 or reports is None:
            return
        if self.request.ended is not None:
            slowest = max(report["seconds"].get("running", 0.0) for report in reports)
            sent = sum(report["row_bytes_sent"] + report["flag_bytes_sent"] for report in reports)
            plan = asdict(network.plan) | {"inputs": None, "outputs": None, "parts": None}
            self.request.ended(RunSummary(network.plan.kind, slowest, sent, plan, reports))
