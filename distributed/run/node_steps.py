"""The steps of a rank that owns nodes of a graph: native functions, and values of nodes that go from rank to rank."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...runtime.network import Network
from ..errors import PartError
from ..parts.node_program import GIVE, TAKE
from ..parts.part_file import Part
from ..parts.steps import Call, Receive, Send
from .rank_report import RankReport

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

Floats = NDArray[np.float32]


class NodeSteps:
    """A part of the plan nodes with its native functions."""

    def __init__(self, comm: "Intracomm", part: Part, functions: Mapping[str, Network], report: RankReport) -> None:
        """Take the functions of a part."""
        self._comm, self._part, self._functions, self._report = comm, part, functions, report

    def run(self, slices: Sequence[Floats], widths: Sequence[int]) -> list[Floats]:
        """Return the values [own nodes, features] of each output, for those of each input; outputs have `widths`.

        Raises:
            PartError: the steps contradict each other.
        """
        started = time.perf_counter()
        run = _Run(self._comm, self._part, self._functions, self._report)
        outputs = run.outputs(slices, widths)
        self._report.spent("running", time.perf_counter() - started)
        return outputs


class _Run:
    """The values of one call."""

    def __init__(self, comm: "Intracomm", part: Part, functions: Mapping[str, Network], report: RankReport) -> None:
        self.comm, self.part, self.functions, self.report = comm, part, functions, report
        self.buffers: dict[int, Floats] = {}
        self.sending: list[tuple[Request, Floats]] = []

    def outputs(self, slices: Sequence[Floats], widths: Sequence[int]) -> list[Floats]:
        found: list[Floats] = []
        for step in self.part.steps:
            match step:
                case Call() if step.function == TAKE:
                    for number, array in zip(step.buffers, slices, strict=True):
                        self._write(number, array)
                case Call() if step.function == GIVE:
                    for nodes, number, width in zip(self.part.outputs, step.buffers, widths, strict=True):
                        values = self.buffers[number] if len(nodes) else np.zeros((0, width), np.float32)
                        found.append(values[: len(nodes)].copy())
                case Call():
                    self._call(step)
                case Send():
                    self._send(step)
                case Receive():
                    self._receive(step)
        for request, _ in self.sending:
            request.Wait()
        return found

    def _write(self, number: int, values: Floats) -> None:
        """Write values of own nodes; rows behind those of a buffer are not of its nodes."""
        rows = self.part.buffers[number].features
        if len(values) >= rows:
            self.buffers[number] = values[:rows]
            return
        self.buffers[number] = np.empty((rows, values.shape[1]), np.float32)
        self.buffers[number][: len(values)] = values

    def _call(self, step: Call) -> None:
        network = self.functions[step.function]
        shapes = [[int(size.coefficient) for size in tensor.shape] for tensor in network.program.inputs]
        arguments = [self.buffers[number][: rows[0]] for number, rows in zip(step.buffers, shapes, strict=False)]
        results = network(*arguments)
        for number, values in zip(
            step.buffers[len(arguments) :], results if isinstance(results, list) else [results], strict=True
        ):
            self._write(number, values)

    def _send(self, step: Send) -> None:
        for route in step.routes:
            values = self.buffers[step.buffer][route.rows]
            self.sending.append((self.comm.Isend(values, route.rank, step.tag), values))
            self.report.sent(values.size, 0, values.nbytes, 0)

    def _receive(self, step: Receive) -> None:
        started = time.perf_counter()
        values = self.buffers[step.buffer]
        parts = [values[int(route.rows[0]) : int(route.rows[-1]) + 1] for route in step.routes]
        waiting = [self.comm.Irecv(part, route.rank, step.tag) for part, route in zip(parts, step.routes, strict=True)]
        for request in waiting:
            request.Wait()
        self.report.row_bytes_received += sum(part.nbytes for part in parts)
        self.report.spent("waiting", time.perf_counter() - started)


def check_node_steps(part: Part, functions: Mapping[str, Network]) -> None:
    """Check that steps go from inputs to outputs, and read no value before it is there, nor one of another shape.

    Raises:
        PartError: they do not.
    """
    ends = [index for index, step in enumerate(part.steps) if isinstance(step, Call) and step.function in (TAKE, GIVE)]
    names = [step.function for step in part.steps if isinstance(step, Call)]
    if ends != [0, len(part.steps) - 1] or names[:1] != [TAKE] or names[-1:] != [GIVE]:
        raise PartError("the part is damaged: its steps do not go from inputs to outputs")
    known: set[int] = set()
    for number, step in enumerate(part.steps):
        read, written = _read_and_written(step, functions, number)
        missing = set(read) - known
        if missing and len(part.outputs[0]):
            raise PartError(f"the part is damaged: step {number} reads buffer {min(missing)}, which is not written yet")
        known.update(written)


def _read_and_written(
    step: Call | Send | Receive, functions: Mapping[str, Network], number: int
) -> tuple[Sequence[int], Sequence[int]]:
    if not isinstance(step, Call):
        return [step.buffer], []
    if step.function in (TAKE, GIVE):
        return ([], step.buffers) if step.function == TAKE else (step.buffers, [])
    if step.function not in functions:
        raise PartError(f"the part is damaged: step {number} calls {step.function!r}, which does not exist")
    program = functions[step.function].program
    count = len(program.inputs)
    if len(step.buffers) != count + len(program.outputs):
        raise PartError(f"the part is damaged: step {number} has {len(step.buffers)} operands")
    return step.buffers[:count], step.buffers[count:]
