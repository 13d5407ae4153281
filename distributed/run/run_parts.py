"""The command `run`: the ranks of mpiexec run the parts of a network together, on slices of files."""

import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PartError
from .agreement import agree_on, agreed, world
from .array_files import OutputFile, files_by_name, open_input, read_slice, sizes_of
from .guard import EXIT_CODE, EndSignals, Guard, guarded
from .liveness import START_FACTOR, watched
from .partitioned_network import PartitionedNetwork, RunOptions

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

Floats = NDArray[np.float32]


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
        # before there are any: who ends all ranks removes them, or its guard where it cannot
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
