"""Plans of a network on machines, with reasons: by the batch, the rows of its weights, or its layers.

Splitting the batch sends nothing, but every machine holds the whole network. Splitting rows and layers divides the
weights; rows also divide the work on one sample, at the price of messages in every layer, and layers, a pipeline, send
little, but leave machines idle until a batch of many tiles has filled it. All three are predicted by
`simulate`; the fastest that fits into memory is chosen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from ...dialect.tensors import shape_of
from ...frontend.errors import UnsupportedModelError
from ...passes.analysis.layer_chains import layer_chains, patterns_of
from ...passes.analysis.partitioned_layers import layer_shares, partition_module
from ...passes.analysis.weights import weight_of
from ...sparse.csr import CscMatrix
from ...theory.partition.partition import (
    LayerPattern,
    LayerShare,
    Owners,
    Partition,
    connections_of_parts,
    free_inputs,
    imbalance_of,
    traffic_of,
)
from ...theory.partition.search import PartitionRequest, find_partition
from ...theory.partition.stages import stage_partition
from ..graph.batch_axis import check_batch_axis
from ..graph.node_graph import NodeGraph, NodeOwners, has_edges
from ..graph.row_graph import RowGraph, features_of
from ..parts.tile_sizes import batch_tile, block_width
from .cluster import VALUE_BYTES, Machine

_T = TypeVar("_T")

ROW_KINDS: Final = ("batch", "rows", "layers")
"""Ways to split what has no sums over edges, the one that is preferred at the same time first."""

KINDS: Final = (*ROW_KINDS, "nodes")
"""All ways to split."""

F32_BITS: Final = 8 * VALUE_BYTES

_MOST_MESSAGE_PARTS: Final = 64
"""Parts up to which the search counts messages: each move visits all parts."""

_SPARSE_BYTES: Final = 12
"""Bytes of a stored connection: its value and the number of its input."""


@dataclass(frozen=True)
class PlanRequest:
    """The request of a plan: a model, a number of parts, the machines.

    Raises:
        ValueError: a kind that is not known, or a number out of its range.
    """

    part_count: int
    kind: str = "auto"
    imbalance: float = 0.03
    seed: int = 0
    memory: int | None = None
    """Bytes that a machine has for a part; None for enough."""
    batch: int = 1024
    """Samples of a usual run."""
    trained_bits: int | None = None
    """Bits of a value that replicas exchange in a step of training: 32 for f32, 1 for signs; None for no training."""
    machine: Machine = field(default_factory=Machine)

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.kind not in ("auto", *KINDS):
            raise ValueError(f"plan: expected one of auto, {', '.join(KINDS)}, got {self.kind!r}")
        if self.memory is not None and self.memory < 1:
            raise ValueError(f"expected a memory of 1 byte or more a machine, got {self.memory}")
        if self.batch < 1:
            raise ValueError(f"expected a batch of 1 sample or more, got {self.batch}")
        if self.trained_bits is not None and not 1 <= self.trained_bits <= F32_BITS:
            raise ValueError(f"expected 1 to {F32_BITS} bits of a trained value, got {self.trained_bits}")
        PartitionRequest(self.part_count, self.imbalance)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A kind of split, what it is predicted to take, and what a machine needs; `why` is one line."""

    kind: str
    time: PredictedTime
    memory: int
    partition: Partition | None
    why: str

    @property
    def line(self) -> str:
        return f"{self.kind}: {self.time.seconds * 1e3:,.3g} ms, {bytes_text(self.memory)} a machine; {self.why}"


@dataclass(frozen=True, eq=False)
class Plan:
    """The chosen split; `lines` name the time of each kind, or the reason against it, and the choice."""

    kind: str
    partition: Partition | None
    candidates: tuple[Candidate, ...]
    lines: tuple[str, ...]


def plan(module: ModuleOp, request: PlanRequest) -> Plan:
    """Return the fastest plan for a module, whose row-wise ops are in tiles, that fits into memory.

    Raises:
        UnsupportedModelError: no plan, or not the wanted one, works for this model.
        ValueError: none fits into memory.
    """
    every = KINDS if has_edges(module) else ROW_KINDS
    kinds = every if request.kind == "auto" else (request.kind,)
    planner = _Planner(module, request)
    planners: dict[str, Callable[[], Candidate]] = {
        "batch": planner.batch,
        "rows": planner.rows,
        "layers": planner.layers,
        "nodes": planner.nodes,
    }
    found: list[Candidate] = []
    lines: list[str] = []
    for kind in kinds:
        try:
            found.append(planners[kind]())
            lines.append(found[-1].line)
        except UnsupportedModelError as error:
            if len(kinds) == 1:
                raise
            lines.append(f"{kind}: {error}")
    if not found:
        raise UnsupportedModelError("; ".join(lines))
    chosen = _chosen(found, request)
    return Plan(chosen.kind, chosen.partition, tuple(found), (*lines, _verdict(chosen, found, request)))


def _chosen(found: list[Candidate], request: PlanRequest) -> Candidate:
    fitting = [one for one in found if request.memory is None or one.memory <= request.memory]
    if not fitting:
        least = min(found, key=lambda one: one.memory)
        raise ValueError(
            f"no plan fits into {bytes_text(request.memory or 0)} a machine, "
            f"{least.kind} on {request.part_count} needs {bytes_text(least.memory)}"
        )
    return min(fitting, key=lambda one: one.time.seconds)


def _verdict(chosen: Candidate, found: list[Candidate], request: PlanRequest) -> str:
    if request.kind != "auto":
        return f"chosen: {chosen.kind}, as asked"
    if request.memory is None:
        return f"chosen: {chosen.kind}, {'the fastest' if len(found) > 1 else 'the only one possible'}"
    fitting = sum(one.memory <= request.memory for one in found)
    which = "the fastest" if fitting > 1 else "the only one"
    return f"chosen: {chosen.kind}, {which} that fits into {bytes_text(request.memory)}"


class _Planner:
    """One model and request, and what the candidates have in common."""

    def __init__(self, module: ModuleOp, request: PlanRequest) -> None:
        self._module, self._request = module, request
        self._machine = request.machine.with_kernels_of(module)
        self._layers = [layer for chain in layer_chains(module) for layer in chain]

    def batch(self) -> Candidate:
        """Every machine holds the network and a slice of the batch."""
        check_batch_axis(self._module)
        request = self._request
        own = -(-request.batch // request.part_count)
        counts = self._connections()
        products = 1 if request.trained_bits is None else 1 + BACKWARD_PRODUCTS
        work = SampleWork(products * sum(counts), self._sample_bytes() // VALUE_BYTES)
        time = simulate_batch(work, request.part_count, self._machine, request.batch)
        weights = sum(count * size for count, size in zip(counts, self._connection_bytes(), strict=True))
        memory, why = weights + own * self._sample_bytes(), "nothing is sent, every machine holds all weights"
        if request.trained_bits is not None:
            parts, bits = request.part_count, request.trained_bits
            exchange = exchange_seconds(sum(counts), parts, self._machine, bits)
            time = replace(time, seconds=time.seconds + exchange, wire=exchange)
            sent = int(exchanged_bytes(sum(counts), parts, bits))
            why = f"{bytes_text(sent)} of updates are sent by each, every machine holds all weights"
        return Candidate("batch", time, memory, None, why)

    def rows(self) -> Candidate:
        """Every machine holds some outputs of every layer."""
        RowGraph.of(self._module)
        partition = _covered(self._row_partition)
        shares = list(layer_shares(self._module, partition))
        costs = [traffic_of(share.sent, share.connections) for share in shares]
        why = (
            f"{sum(cost.volume for cost in costs):,} values of a sample and {sum(cost.messages for cost in costs):,} "
            f"messages a tile are sent, the fullest part of a layer has "
            f"{100 * max(cost.imbalance for cost in costs):.1f} % above the mean"
        )
        return self._candidate("rows", partition, shares, why)

    def layers(self) -> Candidate:
        """Every machine holds some layers one after the other."""
        RowGraph.of(self._module)
        counts = self._connections()
        widths = [len(level) for level in _covered(lambda: partition_module(self._module, 1, _one_part)).owners]
        partition = stage_partition(counts, widths, self._request.part_count)
        shares = list(layer_shares(self._module, partition))
        loads = np.sum([share.connections for share in shares], axis=0)
        heaviest = 100 * float(loads.max()) / max(1, int(loads.sum()))
        why = (
            f"{sum(int(share.sent.sum()) for share in shares):,} values of a sample are sent, the heaviest of "
            f"{np.count_nonzero(loads)} stages has {heaviest:.1f} % of the work"
        )
        return self._candidate("layers", partition, shares, why)

    def nodes(self) -> Candidate:
        """Every machine holds some nodes of the graph, with the edges that end there."""
        graph, request = NodeGraph.of(self._module), self._request
        if request.trained_bits is not None:
            raise UnsupportedModelError("sums over edges are not trained")
        if request.part_count > graph.nodes:
            raise UnsupportedModelError(f"{request.part_count} parts of {graph.nodes} nodes")
        search = PartitionRequest(request.part_count, request.imbalance, request.seed)
        pattern = graph.pattern()
        found = _covered(lambda: find_partition([pattern], search, free_inputs(graph.nodes))).owners[1]
        owners = NodeOwners(graph, request.part_count, found)
        shares = owners.shares()
        edges = connections_of_parts(pattern, found, request.part_count)
        received = np.max([share.sent.sum(axis=0) for share in shares], axis=0)
        widest = max(features_of(value) for op in graph.ops for value in op.results)
        own = np.bincount(found, minlength=request.part_count)
        memory = int((edges * _SPARSE_BYTES + VALUE_BYTES * (2 * widest * own + received)).max())
        why = (
            f"{sum(int(share.sent.sum()) for share in shares):,} values are sent, the fullest part has "
            f"{100 * imbalance_of(edges):.1f} % more edges than the mean"
        )
        time = simulate(shares, self._machine, Workload(1, 1))
        return Candidate("nodes", time, memory, Partition(request.part_count, (found, found)), why)

    def _row_partition(self) -> Partition:
        request = self._request
        search = PartitionRequest(
            request.part_count, request.imbalance, request.seed, message_values=self._message_values()
        )
        return partition_module(
            self._module, request.part_count, lambda patterns, owners: find_partition(patterns, search, owners)
        )

    def _candidate(self, kind: str, partition: Partition, shares: list[LayerShare], why: str) -> Candidate:
        request = self._request
        workload = Workload(request.batch, self._tile(kind))
        sizes = self._connection_bytes()
        weights = np.sum([share.connections * size for share, size in zip(shares, sizes, strict=True)], axis=0)
        # what a part owns of a layer's inputs and outputs, and what it receives
        rows = max(
            int((share.sent.sum(axis=0) + self._owned(partition, layer) + self._owned(partition, layer + 1)).max())
            for layer, share in enumerate(shares)
        )
        tiles = TILES_IN_FLIGHT * workload.tile * rows * VALUE_BYTES
        slices = request.batch * self._sample_bytes() // request.part_count
        ends = Ends(self._owned(partition, 0), self._owned(partition, -1))
        steps = shares if request.trained_bits is None else step_layers(shares)
        time = simulate(steps, self._machine, workload, ends)
        return Candidate(kind, time, int(weights.max()) + tiles + slices, partition, why)

    def _owned(self, partition: Partition, level: int) -> NDArray[np.int64]:
        return np.bincount(partition.owners[level], minlength=partition.part_count).astype(np.int64)

    def _tile(self, kind: str) -> int:
        """Return how many samples travel together, as the parts will say."""
        share = self._request.part_count if kind == "rows" else 1
        return min(self._request.batch, batch_tile(self._connections(), share, block_width(self._module)))

    def _message_values(self) -> float:
        """Return how many values take as long as a message on top of its values; 0 for a search without messages."""
        if self._request.part_count > _MOST_MESSAGE_PARTS:
            return 0.0
        machine, tile = self._machine, self._tile("rows")
        value = VALUE_BYTES * tile * (1 / machine.bandwidth + 2 / machine.copied_bytes)
        return 2 * machine.message_seconds / value

    def _sample_bytes(self) -> int:
        """Return the bytes of a sample of the first layer's input and the last one's output."""
        if not self._layers:
            return 0
        return VALUE_BYTES * (shape_of(self._layers[0].weight)[0] + shape_of(self._layers[-1].weight)[1])

    def _connections(self) -> list[int]:
        return _covered(lambda: [len(pattern.indices) for pattern in patterns_of(self._layers)])

    def _connection_bytes(self) -> list[int]:
        weights = [weight_of(layer.weight) for layer in self._layers]
        return [_SPARSE_BYTES if isinstance(weight, CscMatrix) else VALUE_BYTES for weight in weights]


def _one_part(patterns: Sequence[LayerPattern], owners: Owners) -> Partition:
    return find_partition(patterns, PartitionRequest(1), owners)


def _covered(compute: Callable[[], _T]) -> _T:
    """Return the computed workload.

    Raises:
        UnsupportedModelError: the model cannot be partitioned.
    """
    try:
        return compute()
    except (ValueError, VerifyException) as error:
        raise UnsupportedModelError(str(error)) from error


def bytes_text(count: int) -> str:
    """Return a number of bytes as a person writes it."""
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def parse_bytes(text: str) -> int:
    """Return a number of bytes such as `4GiB`, `512 MiB` or `65536`.

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([KMG])(?:i?B)?|B|bytes)?", text.strip())
    if found is None:
        raise ValueError(f"expected bytes such as 65536, 512MiB or 4GiB, got {text!r}")
    factor = {None: 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[found[2]]
    return round(float(found[1]) * factor)


# The time that a partition is predicted to take, rank by rank and layer by layer, without the machines.
#
# One batch tile is followed through all layers: a rank transposes its inputs into columns, sends what others need,
# multiplies what it has meanwhile, waits for the rest and multiplies that. Tiles follow each other: the busiest rank,
# or its wire, sets the pace; and no more than `TILES_IN_FLIGHT` of them are between a rank's first and last layer at
# a time.

TILES_IN_FLIGHT = 3

BACKWARD_PRODUCTS: Final = 2
"""Products of a connection and a sample backward, for one forward."""

Seconds = NDArray[np.float64]


class Workload(NamedTuple):
    """A batch, and the samples of it that travel together, 1 or more of each."""

    batch: int
    tile: int

    @property
    def tile_count(self) -> int:
        """Tiles of the batch."""
        return -(-self.batch // self.tile)


class Ends(NamedTuple):
    """Values of a sample that each part transposes into columns as inputs, and back into rows as outputs, [parts]."""

    inputs: NDArray[np.int64]
    outputs: NDArray[np.int64]


class SampleWork(NamedTuple):
    """The work of a whole network on one sample: its connections, and the values of its inputs and outputs."""

    connections: int
    values: int


@dataclass(frozen=True)
class PredictedTime:
    """Seconds of a batch, and what they consist of."""

    seconds: float
    path: float
    """Seconds of one tile, from the first layer to the last."""
    working: float
    """Seconds that the busiest rank works on one tile."""
    wire: float
    """Seconds that the busiest wire is taken by one tile."""


def simulate(
    layers: Iterable[LayerShare], machine: Machine, workload: Workload, ends: Ends | None = None
) -> PredictedTime:
    """Return the time of a batch; `layers` say what each part does in each layer."""
    tile = min(workload.tile, workload.batch)
    ready = working = wire = end = np.zeros(1)
    first = last = np.zeros(1)
    for number, layer in enumerate(layers):
        if number == 0:
            count = len(layer.connections)
            begin, end = (_transposition(values, machine, tile) for values in ends or np.zeros((2, count)))
            ready, working, wire, last = begin, begin, np.zeros(count), begin
            first = np.where(begin > 0, 0.0, np.inf)
        step = _step(layer, machine, tile, ready)
        busy = step.working > 0
        first = np.where(busy, np.minimum(first, step.begins), first)
        last = np.where(busy, step.ready, last)
        ready, working, wire = step.ready, working + step.working, wire + step.wire
    ready, working, last = ready + end, working + end, np.where(end > 0, ready + end, last)
    path, pace = float(ready.max()), float(max(working.max(), wire.max()))
    span = float(np.max(last - first, where=np.isfinite(first), initial=0.0))
    waves = -(-workload.tile_count // TILES_IN_FLIGHT)
    seconds = max(path + (workload.tile_count - 1) * pace, waves * span)
    return PredictedTime(seconds, path, float(working.max()), float(wire.max()))


@dataclass(frozen=True)
class _Step:
    """A layer of one tile: when each rank begins and is done, and how long it and its wire are taken."""

    begins: Seconds
    ready: Seconds
    working: Seconds
    wire: Seconds


def _step(layer: LayerShare, machine: Machine, tile: int, ready: Seconds) -> _Step:
    sent = layer.sent * (VALUE_BYTES * tile)
    pairs = layer.sent > 0
    out_bytes, in_bytes = sent.sum(axis=1), sent.sum(axis=0)
    sending = pairs.sum(axis=1) * machine.message_seconds + out_bytes / machine.copied_bytes
    receiving = pairs.sum(axis=0) * machine.message_seconds + in_bytes / machine.copied_bytes
    left = np.where(pairs, (ready + sending + out_bytes / machine.bandwidth)[:, None], -np.inf).max(axis=0)
    arrived = np.maximum(
        left, np.where(pairs, (ready + sending)[:, None], -np.inf).max(axis=0) + in_bytes / machine.bandwidth
    )
    arrived += machine.latency
    local = layer.local * (tile / machine.products)
    remote = (layer.connections - layer.local) * (tile / machine.products)
    done = np.maximum(ready + sending + local, arrived) + receiving + remote
    # a rank that only receives begins when something is there
    begins = np.where((sending > 0) | (local > 0), ready, np.maximum(ready, arrived))
    return _Step(
        begins, done, sending + receiving + local + remote, np.maximum(out_bytes, in_bytes) / machine.bandwidth
    )


def _transposition(values: NDArray[np.int64] | Seconds, machine: Machine, samples: int) -> Seconds:
    return values.astype(np.float64) * (VALUE_BYTES * samples / machine.transposed_bytes)


def step_layers(layers: Sequence[LayerShare]) -> list[LayerShare]:
    """Return the layers of a step of training: forward, and backward with transposed messages of the same volume.

    Backward, each connection is in the product that goes to the inputs, and in the gradient of its weight.
    """
    work = BACKWARD_PRODUCTS
    back = [LayerShare(one.sent.T, work * one.connections, work * one.local) for one in reversed(layers)]
    return [*layers, *back]


def exchange_seconds(values: int, part_count: int, machine: Machine, bits: int) -> float:
    """Return the time in which replicas sum `values` of `bits` each: what is sent in pieces around a ring, twice."""
    if part_count == 1:
        return 0.0
    messages = 2 * (part_count - 1)
    piece = exchanged_bytes(values, part_count, bits) / messages
    work = machine.message_seconds + piece / machine.copied_bytes
    return messages * (2 * work + machine.latency + piece / machine.bandwidth)


def exchanged_bytes(values: int, part_count: int, bits: int) -> float:
    """Return the bytes that each replica sends to sum `values` of `bits` each over all of them."""
    return 2 * (part_count - 1) / part_count * values * bits / 8


def simulate_batch(work: SampleWork, part_count: int, machine: Machine, batch: int) -> PredictedTime:
    """Return the time of a batch that is cut into a slice for each part."""
    samples = -(-batch // part_count)
    transposition = float(_transposition(np.array(work.values), machine, samples))
    seconds = work.connections * samples / machine.products + transposition
    return PredictedTime(seconds, seconds, seconds, 0.0)
