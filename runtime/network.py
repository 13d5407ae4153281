"""A compiled network: bound to the sizes of a call once, then one native call a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from redpebble.lowering.layer_report import LayerReport
from redpebble.lowering.planning import Lifetime, plan_offsets
from redpebble.lowering.program import Program, Size, Step
from redpebble.runtime.machine_code import MachineCode, load_object
from redpebble.runtime.memory import address_of, aligned_bytes, aligned_copy, pointer_table
from redpebble.runtime.thread_pool import ThreadPool

Floats = NDArray[np.float32]

LEAST_PIECE = 16
"""Rows that a thread gets at least, and multiples of it: a tile of fewer is mostly padding."""


class NodeArg(NamedTuple):
    """An input or output as onnxruntime describes it; sizes that a call chooses are names."""

    name: str
    type: str
    shape: list[int | str]


@dataclass(frozen=True)
class Binding:
    """A network bound to the shapes of its inputs: the sizes of the call, and memory that idle calls have left."""

    sizes: NDArray[np.int64]
    rows: tuple[int, ...]
    """The rows of each step, 0 where it is one piece of work."""
    output_shapes: tuple[tuple[int, ...], ...]
    temporary_offsets: tuple[int, ...]
    temporary_bytes: int
    workspaces: list["Workspace"] = field(default_factory=list["Workspace"])


class Workspace(NamedTuple):
    """What one call needs for itself: its table of buffers, and how the code is called on it, in threads or not."""

    buffers: NDArray[np.uint64]
    call: NDArray[np.uint64]
    """See `lowering/thread_pool.py`."""
    tables: tuple[int, ...]
    """Arguments of `run`: addresses of buffers, constants, sizes, scratch."""
    owned: tuple[NDArray[np.generic], ...]
    """What the addresses point to."""


class Network:
    """Native code and packed weights of a network; calls from several threads may run at once."""

    def __init__(self, program: Program, image: bytes, threads: int = 1) -> None:
        """Load the object file `image` that was made from `program`.

        Raises:
            ValueError: fewer than one thread.
        """
        if threads < 1:
            raise ValueError(f"threads is {threads}, expected 1 or more")
        self.program = program
        self.threads = threads
        self._input_names = tuple(tensor.name for tensor in program.inputs)
        self._constants = [aligned_copy(array) for array in program.constants]
        self._constant_table = pointer_table(self._constants)
        arities = {"run": (4, 0)} | {step.symbol: (4, 2) for step in program.steps}
        self._code: MachineCode = load_object(image, arities)
        self._bindings: dict[tuple[tuple[int, ...], ...], Binding] = {}
        self._pool = ThreadPool(threads) if threads > 1 else None

    @property
    def report(self) -> tuple[LayerReport, ...]:
        """What was chosen for each layer, and why."""
        return self.program.layers

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs, as `InferenceSession.get_inputs` does."""
        return [NodeArg(tensor.name, "tensor(float)", _dimensions(tensor.shape)) for tensor in self.program.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs, as `InferenceSession.get_outputs` does."""
        return [NodeArg(tensor.name, "tensor(float)", _dimensions(tensor.shape)) for tensor in self.program.outputs]

    def __call__(self, *inputs: Floats) -> Floats | list[Floats]:
        """Run on inputs in their order; return the output, or the list of them where there are several."""
        if len(inputs) != len(self.program.inputs):
            raise ValueError(f"{len(inputs)} inputs, expected {len(self.program.inputs)}")
        outputs = self._run([_checked(tensor.name, x) for tensor, x in zip(self.program.inputs, inputs, strict=True)])
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Floats]) -> list[Floats]:
        """Run on inputs by name; the signature of `InferenceSession.run`.

        Raises:
            ValueError: a name, dtype or shape does not fit; the message says what is expected.
        """
        names = self._input_names
        if len(feeds) != len(names) or not all(name in feeds for name in names):
            for name in feeds:
                if name not in names:
                    raise ValueError(f"unknown input {name!r}, expected {', '.join(names)}")
            missing = next(name for name in names if name not in feeds)
            raise ValueError(f"input {missing!r} is missing")
        outputs = self._run([_checked(name, feeds[name]) for name in names])
        if not output_names:
            return outputs
        known = [tensor.name for tensor in self.program.outputs]
        for name in output_names:
            if name not in known:
                raise ValueError(f"unknown output {name!r}, expected {', '.join(known)}")
        return [outputs[known.index(name)] for name in output_names]

    def _run(self, inputs: list[Floats]) -> list[Floats]:
        shapes = tuple(x.shape for x in inputs)
        binding = self._bindings.get(shapes)
        if binding is None:
            binding = self._bindings.setdefault(shapes, bind(self.program, shapes))
        outputs = [np.empty(shape, dtype=np.float32) for shape in binding.output_shapes]
        workspace = binding.workspaces.pop() if binding.workspaces else self._new_workspace(binding)
        for index, array in enumerate((*inputs, *outputs)):
            workspace.buffers[index] = address_of(array)
        pool = self._pool if max(binding.rows, default=0) > LEAST_PIECE else None
        if pool is None or not pool.try_run(workspace.call):
            self._code.functions["run"](*workspace.tables)
        binding.workspaces.append(workspace)
        return outputs

    def _new_workspace(self, binding: Binding) -> Workspace:
        program = self.program
        buffers = np.zeros(len(program.inputs) + len(program.outputs) + len(program.temporaries), dtype=np.uint64)
        temporaries = aligned_bytes(binding.temporary_bytes)
        first = len(program.inputs) + len(program.outputs)
        for index, offset in enumerate(binding.temporary_offsets):
            buffers[first + index] = address_of(temporaries) + offset
        scratch = [aligned_bytes(program.scratch_bytes) for _ in range(self.threads)]
        areas = pointer_table(scratch)
        tables = tuple(address_of(table) for table in (buffers, self._constant_table, binding.sizes))
        addresses = self._code.addresses
        steps = [
            (addresses[step.symbol], -1 if step.rows is None else rows)
            for step, rows in zip(program.steps, binding.rows, strict=True)
        ]
        step_table = np.array(steps, dtype=np.int64)
        call = np.array([address_of(step_table), len(steps), *tables, address_of(areas), LEAST_PIECE], dtype=np.uint64)
        return Workspace(buffers, call, (*tables, int(areas[0])), (temporaries, areas, step_table, *scratch))


def bind(program: Program, shapes: Sequence[tuple[int, ...]]) -> Binding:
    """Return the sizes of a call with inputs of `shapes`.

    Raises:
        ValueError: a shape does not fit the model; the message names the input, the size and what is expected.
    """
    symbols = _symbols(program, shapes)
    for first, second in program.equal:
        if first.evaluate(symbols) != second.evaluate(symbols):
            raise ValueError(
                f"size {first} is {first.evaluate(symbols)} and size {second} is {second.evaluate(symbols)}, "
                "expected the same"
            )
    lifetimes = [
        Lifetime(4 * temporary.size.evaluate(symbols), temporary.first_step, temporary.last_step)
        for temporary in program.temporaries
    ]
    plan = plan_offsets(lifetimes)
    return Binding(
        sizes=np.array([size.evaluate(symbols) for size in program.sizes] or [0], dtype=np.int64),
        rows=tuple(_step_rows(step, symbols) for step in program.steps),
        output_shapes=tuple(tuple(size.evaluate(symbols) for size in tensor.shape) for tensor in program.outputs),
        temporary_offsets=plan.offsets,
        temporary_bytes=plan.total,
    )


def _step_rows(step: Step, symbols: Mapping[str, int]) -> int:
    return 0 if step.rows is None else step.rows.evaluate(symbols)


def _symbols(program: Program, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """Return the value of every symbol; check that the shapes fit the inputs and each other."""
    symbols: dict[str, int] = {}
    for tensor, shape in zip(program.inputs, shapes, strict=True):
        if len(shape) != len(tensor.shape):
            raise ValueError(f"input {tensor.name!r} has shape {shape}, expected {_expected(tensor.shape)}")
        for axis, (size, value) in enumerate(zip(tensor.shape, shape, strict=True)):
            known = size.constant if size.constant is not None else symbols.setdefault(str(size), value)
            if known != value:
                raise ValueError(f"input {tensor.name!r} has size {value} along axis {axis}, expected {known}")
    return symbols


def _dimensions(shape: Sequence[Size]) -> list[int | str]:
    return [str(size) if size.constant is None else size.constant for size in shape]


def _expected(shape: Sequence[Size]) -> str:
    return "[" + ", ".join(str(dimension) for dimension in _dimensions(shape)) + "]"


def _checked(name: str, array: Floats) -> Floats:
    """Return an input as contiguous floats.

    Raises:
        ValueError: the array is not f32.
    """
    if array.dtype != np.float32:
        raise ValueError(f"input {name!r} has dtype {array.dtype}, expected float32")
    return np.asarray(array, order="C")
