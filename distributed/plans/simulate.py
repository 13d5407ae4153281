"""The time that a partition is predicted to take, rank by rank and layer by layer, without the machines.

One batch tile is followed through all layers: a rank transposes its inputs into columns, sends what others need,
multiplies what it has meanwhile, waits for the rest and multiplies that. Tiles follow each other: the busiest rank, or
its wire, sets the pace; and no more than `TILES_IN_FLIGHT` of them are between a rank's first and last layer at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...theory.partition.partition import LayerShare
from .cluster import VALUE_BYTES, Machine

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
