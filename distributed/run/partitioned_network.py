"""A network whose parts the ranks of a communicator run together."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...runtime.jit import host_target
from ...runtime.memory import OutputMemory
from ...runtime.network import Network
from ...runtime.store.cache import cache_key, default_folder, load, store
from ..errors import PartError
from ..messages.channels import SLOTS, Channels, TileShape
from ..parts.block_code import BlockCode, CodeRequest, width_for
from ..parts.plan_file import PlanFile, PortShape
from ..parts.steps import Call
from .agreement import after_the_first, agree, agree_on
from .load_part import LoadedPart, load_part
from .node_steps import NodeSteps, check_node_steps
from .rank_report import RankReport
from .tiles_in_flight import Slot, TileContext, run_tiles

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class RunOptions:
    """Settings with which a rank runs its part."""

    threads: int = 1
    batch_tile: int | None = None
    """Samples that travel together; None for what the plan says."""
    cache: Path | bool = True
    """The folder of native code: a given one, the user's, or none."""
    shared_memory: bool = True
    """Whether ranks of one machine send through memory that both see, as long as there is some; the same on all."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, value in (("threads", self.threads), ("batch tile", self.batch_tile)):
            if value is not None and value < 1:
                raise ValueError(f"{name}: expected 1 or more, got {value}")

    @property
    def folder(self) -> Path | None:
        return default_folder() if self.cache is True else None if self.cache is False else Path(self.cache)


@dataclass(frozen=True)
class Slice:
    """A rank's share of an input or output: some features of all samples, or all of some samples or nodes."""

    port: PortShape
    features: NDArray[np.int64] | None
    """Ascending; None where the batch or nodes are cut."""
    nodes: NDArray[np.int64] | None = None
    """Ascending, all features of each; None where no nodes are cut."""


class PartitionedNetwork:
    """The part of this rank, with all others' around it; every method is to be called by all ranks."""

    def __init__(self, comm: "Intracomm", parts: Path | str, options: RunOptions | None = None) -> None:
        """Load this rank's part from the folder `parts`.

        Raises:
            PartError: on all ranks, when the parts do not fit each other, the ranks, or the files.
        """
        self.options = options or RunOptions()
        self.comm: Intracomm = comm.Dup()
        self.report = RankReport(comm.rank)
        started = time.perf_counter()
        loaded = load_part(self.comm, Path(parts))
        self.plan: PlanFile = loaded.plan
        self._part = loaded.part
        self._sha256 = loaded.sha256
        self._whole = self._whole_network(loaded) if loaded.part.whole else None
        self._nodes = self._node_steps(loaded) if self.plan.kind == "nodes" else None
        self._code: dict[int, BlockCode] = {}
        self._slots: dict[TileShape, tuple[TileContext, list[Slot]]] = {}
        self._outputs: dict[int, list[OutputMemory]] = {}
        self.report.spent("loading", time.perf_counter() - started)

    def _whole_network(self, loaded: LoadedPart) -> Network:
        """Return the network that all ranks have; where native code is kept one of each machine compiles it."""

        def make() -> Network:
            return _whole_network(loaded, self.options)

        return make() if self.options.folder is None else after_the_first(self.comm, make)

    def _node_steps(self, loaded: LoadedPart) -> NodeSteps:
        """Return the steps of this rank, with their functions.

        Raises:
            PartError: on all ranks, when the part of one cannot be compiled.
        """
        functions, error = dict[str, Network](), None
        try:
            functions = _node_functions(loaded, self.options)
            check_node_steps(loaded.part, functions)
        except (PartError, ValueError) as problem:
            error = " ".join(str(problem).split())
        agree(self.comm, error)
        return NodeSteps(self.comm, loaded.part, functions, self.report)

    @property
    def inputs(self) -> tuple[Slice, ...]:
        """The share of every input that this rank reads."""
        return self._slices(self.plan.inputs, self._part.inputs)

    @property
    def outputs(self) -> tuple[Slice, ...]:
        """The share of every output that this rank writes."""
        return self._slices(self.plan.outputs, self._part.outputs)

    def _slices(self, ports: Sequence[PortShape], features: Sequence[NDArray[np.int64]]) -> tuple[Slice, ...]:
        if self.plan.kind == "nodes":
            return tuple(Slice(port, None, nodes) for port, nodes in zip(ports, features, strict=True))
        own = [None] * len(ports) if self._whole is not None else features
        return tuple(Slice(port, columns) for port, columns in zip(ports, own, strict=True))

    def run(self, *x_slices: Floats) -> Floats | list[Floats]:
        """Return this rank's slice of the output, or a list of them, for its slices of the inputs.

        By the plan `batch` a slice holds some samples, of any number; by `rows` and `layers` it holds the columns
        `inputs[i].features` of all samples, whose number is the same on all ranks; by `nodes` it holds the rows
        `inputs[i].nodes`.

        Raises:
            PartError: on all ranks, when a slice of one does not fit.
        """
        agree(self.comm, self._misfit(x_slices))
        if self._nodes is not None:
            widths = [int(entry.port.shape[-1].coefficient) for entry in self.outputs]
            outputs = self._nodes.run(x_slices, widths)
        else:
            outputs = self._run_whole(x_slices) if self._whole is not None else self._run_blocks(x_slices)
        return outputs[0] if len(outputs) == 1 else outputs

    def _misfit(self, slices: Sequence[Floats]) -> str | None:
        if len(slices) != len(self.plan.inputs):
            return f"expected {len(self.plan.inputs)} slices of inputs on rank {self.comm.rank}, got {len(slices)}"
        for entry, array in zip(self.inputs, slices, strict=True):
            where = f"slice of input {entry.port.name!r} on rank {self.comm.rank}"
            if array.dtype != np.float32:
                return f"{where}: expected dtype float32, got {array.dtype}"
            if entry.features is not None and (not array.ndim or array.shape[-1] != len(entry.features)):
                return f"{where}: expected {len(entry.features)} columns, got shape {list(array.shape)}"
            expected = None if entry.nodes is None else [len(entry.nodes), int(entry.port.shape[-1].coefficient)]
            if expected is not None and list(array.shape) != expected:
                return f"{where}: expected shape {expected}, got {list(array.shape)}"
        return None

    def _run_whole(self, slices: Sequence[Floats]) -> list[Floats]:
        assert self._whole is not None
        started = time.perf_counter()
        outputs = self._whole(*slices)
        self.report.spent("running", time.perf_counter() - started)
        return outputs if isinstance(outputs, list) else [outputs]

    def _run_blocks(self, slices: Sequence[Floats]) -> list[Floats]:
        leading = [array.shape[:-1] for array in slices]
        samples = [int(np.prod(shape, dtype=np.int64)) for shape in leading]
        agree_on(self.comm, samples, "the number of samples")
        count = samples[0] if samples else 0
        inputs = [np.ascontiguousarray(array) for array in slices]
        outputs = [memory.take() for memory in self._output_memory(count)]
        if count:
            context, slots = self._tile_context(count)
            # a rank that compiles is no rank that waits
            self.comm.Barrier()
            started = time.perf_counter()
            run_tiles(context, slots, inputs, outputs, count)
            self.report.spent("running", time.perf_counter() - started)
        return [array.reshape(*_leading_shape(leading, count), array.shape[-1]) for array in outputs]

    def _output_memory(self, samples: int) -> list[OutputMemory]:
        if samples not in self._outputs:
            self._outputs.clear()
            self._outputs[samples] = [OutputMemory((samples, len(own))) for own in self._part.outputs]
        return self._outputs[samples]

    def _usual_tile(self, samples: int) -> int:
        """Return the plan's tile, or a smaller one where the batch would not fill all slots with it."""
        share, block = -(-samples // SLOTS), self.plan.block
        return min(self.plan.batch_tile, -(-share // block) * block)

    def _tile_context(self, samples: int) -> tuple[TileContext, list[Slot]]:
        """Return memory for tiles of a call; every rank decides alike."""
        wished = min(self.options.batch_tile or self._usual_tile(samples), samples)
        width = width_for(wished, self.plan.block)
        tile = TileShape(-(-wished // width), width)
        if width not in self._code:
            started = time.perf_counter()
            request = CodeRequest(self._part, self._sha256, self.options.threads, self.options.folder)
            self._code[width] = self._agreed_code(request, width)
            self.report.spent("compiling", time.perf_counter() - started)
        if tile not in self._slots:
            channels = Channels.open(self.comm, self._part, tile, shared=self.options.shared_memory)
            context = TileContext(self._part, self._code[width], tile, channels, self.report)
            self._slots[tile] = (context, [Slot(context, number) for number in range(SLOTS)])
        return self._slots[tile]

    def _agreed_code(self, request: CodeRequest, width: int) -> BlockCode:
        """Return native code for this rank, after all ranks have theirs.

        Raises:
            PartError: on all ranks, when the part of one cannot be compiled.
        """
        code, error = None, None
        try:
            code = BlockCode(request, width)
        except (PartError, ValueError) as problem:
            error = " ".join(str(problem).split())
        agree(self.comm, error)
        assert code is not None
        return code


def _leading_shape(leading: Sequence[tuple[int, ...]], count: int) -> tuple[int, ...]:
    """Return the leading axes of outputs: those of the inputs where these agree, else one."""
    return leading[0] if leading and all(shape == leading[0] for shape in leading) else (count,)


def _node_functions(loaded: LoadedPart, options: RunOptions) -> dict[str, Network]:
    """Return the functions of a part that owns nodes; all are compiled where one is not kept."""
    cpu, folder = host_target(), options.folder
    names = [step.function for step in loaded.part.steps if isinstance(step, Call)][1:-1]
    keys = {name: cache_key(bytes.fromhex(loaded.sha256), cpu, f"nodes {name}") for name in names}
    kept = {name: load(folder, key) if folder is not None else None for name, key in keys.items()}
    artefacts = {name: artefact for name, artefact in kept.items() if artefact is not None}
    if len(artefacts) < len(keys):
        # a compiler takes longer to import than a rank needs to start
        from ..parts.compile_part import compile_nodes

        artefacts = compile_nodes(loaded.part, cpu)
        for name, artefact in artefacts.items():
            if folder is not None and name in keys:
                store(folder, keys[name], artefact)
    return {name: Network(one.program, one.image, options.threads) for name, one in artefacts.items()}


def _whole_network(loaded: LoadedPart, options: RunOptions) -> Network:
    cpu, folder = host_target(), options.folder
    key = cache_key(bytes.fromhex(loaded.sha256), cpu, "whole")
    artefact = load(folder, key) if folder is not None else None
    if artefact is None:
        # a compiler takes longer to import than a rank needs to start
        from ..parts.compile_part import compile_whole

        artefact = compile_whole(loaded.part, cpu)
        if folder is not None:
            store(folder, key, artefact)
    return Network(artefact.program, artefact.image, options.threads)
