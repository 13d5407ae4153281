"""The memory machine: reads and writes of a connection order, for a fast memory of M values.

Slow memory holds weights, biases and inputs, and at the end the outputs. Running connection (u, v) needs its weight
(one slot, streamed), the final value of u and the partial sum of v in fast memory, so M >= 3 and M - 1 slots hold
neurons. A partial sum starts as the bias, one read. Dropping a clean or dead value is free; dropping a live partial
sum, or an activation that slow memory lacks and that is still needed, costs a write now and a read later. An output is
written once it is final. This is the reference: plain Python, about 10^6 connections in some seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph, check_order
from redpebble.theory.pebbling.eviction import EvictionPolicy, FarthestNextUse, LeastRecentlyUsed, RandomChoice, Use

Policy = Literal["min", "lru", "random"]


@dataclass(frozen=True)
class Memory:
    """A fast memory: `capacity` M in values (in rows of B values for the batched form) and the policy of eviction.

    Raises:
        ValueError: M < 3, or an unknown policy.
    """

    capacity: int
    policy: Policy = "min"

    def __post_init__(self) -> None:
        """Check both fields."""
        if self.capacity < 3:
            raise ValueError(f"fast memory holds {self.capacity} values, a connection needs 3")
        if self.policy not in ("min", "lru", "random"):
            raise ValueError(f"policy {self.policy} is none of min, lru, random")


@dataclass(frozen=True)
class TransferCount:
    """Transfers of one run, apart by what they move: weights and biases are single values, the others rows.

    With a batch tile of B columns a row is B values; without, B = 1.
    """

    weight_reads: int
    bias_reads: int
    row_reads: int
    row_writes: int

    @property
    def reads(self) -> int:
        """Values read, B = 1."""
        return self.weight_reads + self.bias_reads + self.row_reads

    @property
    def writes(self) -> int:
        """Values written, B = 1."""
        return self.row_writes

    @property
    def total(self) -> int:
        """Values moved, B = 1."""
        return self.reads + self.writes

    def batched_reads(self, batch: int) -> int:
        """Values read for a batch tile of `batch` columns."""
        return self.weight_reads + self.bias_reads + batch * self.row_reads

    def batched_writes(self, batch: int) -> int:
        """Values written for a batch tile of `batch` columns."""
        return batch * self.row_writes


def count_transfers(
    network: NeuronGraph, order: NDArray[np.int64], memory: Memory, rng: np.random.Generator | None = None
) -> TransferCount:
    """Run the order and count.

    Args:
        network: what to run.
        order: connection ids, shape [W].
        memory: size and policy.
        rng: needed by the random policy, unused by the others.

    Raises:
        ValueError: the order is not a permutation, runs a connection before its source is final, or `rng` is missing.
    """
    check_order(network, order)
    machine = _Machine(network, memory, _policy(memory, rng))
    sources, targets = network.sources[order].tolist(), network.targets[order].tolist()
    next_of_source, next_of_target = _next_uses(sources, targets, network.neuron_count)
    for step in range(len(order)):
        source, target = sources[step], targets[step]
        machine.hold(source, target)
        machine.hold(target, source)
        machine.dirty[target] = True
        machine.use(source, next_of_source[step])
        machine.use(target, next_of_target[step])
    return machine.finish(len(order))


def count_levels(
    network: NeuronGraph, order: NDArray[np.int64], memories: Sequence[Memory], rng: np.random.Generator | None = None
) -> tuple[TransferCount, ...]:
    """Count the traffic below each level of a hierarchy, each level as if it were the only fast memory."""
    return tuple(count_transfers(network, order, memory, rng) for memory in memories)


class _Machine:
    """Residents, dirty values and counts while an order runs."""

    def __init__(self, network: NeuronGraph, memory: Memory, policy: EvictionPolicy) -> None:
        self._policy = policy
        self._free = memory.capacity - 1
        self._resident = bytearray(network.neuron_count)
        self._is_output: list[bool] = network.is_output.tolist()
        self._uses: list[int] = (network.in_degrees + network.out_degrees).tolist()
        without_incoming = network.in_degrees == 0
        # The bias is all there ever is to read of a neuron without incoming connections.
        self._only_bias: list[bool] = (without_incoming & ~network.is_input).tolist()
        self._bias_next: list[bool] = (~network.is_input).tolist()
        self.dirty: list[bool] = (without_incoming & network.is_output).tolist()
        self._isolated_outputs = int(np.sum(network.is_output & (network.in_degrees + network.out_degrees == 0)))
        self._bias_reads = self._row_reads = self._row_writes = 0

    def hold(self, neuron: int, pinned: int) -> None:
        """Make a neuron resident without evicting `pinned`."""
        if self._resident[neuron]:
            return
        if self._free == 0:
            self._release(self._policy.victim(pinned))
        self._free -= 1
        self._resident[neuron] = 1
        if self._bias_next[neuron]:
            self._bias_reads += 1
            self._bias_next[neuron] = self._only_bias[neuron]
        else:
            self._row_reads += 1

    def use(self, neuron: int, next_step: int) -> None:
        """Note a use; a value without further uses leaves at once, and is written if it is an output."""
        self._uses[neuron] -= 1
        self._policy.touch(Use(neuron, next_step, self.dirty[neuron]))
        if self._uses[neuron] == 0:
            self._release(neuron)

    def finish(self, connection_count: int) -> TransferCount:
        """Move the outputs that have no connection, and hand over the counts."""
        isolated = self._isolated_outputs
        return TransferCount(
            connection_count, self._bias_reads + isolated, self._row_reads, self._row_writes + isolated
        )

    def _release(self, neuron: int) -> None:
        self._policy.forget(neuron)
        self._resident[neuron] = 0
        self._free += 1
        if self.dirty[neuron] and (self._uses[neuron] > 0 or self._is_output[neuron]):
            self._row_writes += 1
        self.dirty[neuron] = False


def _policy(memory: Memory, rng: np.random.Generator | None) -> EvictionPolicy:
    match memory.policy:
        case "min":
            return FarthestNextUse()
        case "lru":
            return LeastRecentlyUsed()
        case "random":
            if rng is None:
                raise ValueError("the random policy needs an rng")
            return RandomChoice(rng)


def _next_uses(sources: list[int], targets: list[int], neuron_count: int) -> tuple[list[int], list[int]]:
    """The step of the next use of each step's source and target; W where there is none."""
    upcoming = [len(sources)] * neuron_count
    of_source, of_target = [0] * len(sources), [0] * len(sources)
    for step in range(len(sources) - 1, -1, -1):
        source, target = sources[step], targets[step]
        of_source[step], of_target[step] = upcoming[source], upcoming[target]
        upcoming[source] = upcoming[target] = step
    return of_source, of_target
