"""Steps of the memory machine: the loads, sums and stores of an order, with the slot of every value.

`machine_compiled` only counts; here the same decisions become a program, which needs no
policy. Slots 0 to M - 2 hold neurons; slow memory has a row for each neuron, at first only that of the inputs.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...sparse.neuron_graph import NeuronGraph, check_order
from .machine import Memory

# Eviction from a full fast memory: MIN, or least recently used.
#
# A policy sees every use of a value and names a victim on request. Dead values never reach it: the machine forgets a
# value at its last use, which is free, so that "dead values go first" holds for every policy.


class Use(NamedTuple):
    """A use of a resident value: the step of its next use, and whether slow memory lacks the value."""

    neuron: int
    next_step: int
    dirty: bool


class EvictionPolicy(Protocol):
    """The order in which resident values leave."""

    def touch(self, use: Use) -> None:
        """Note that the value was used, and is resident."""
        ...

    def forget(self, neuron: int) -> None:
        """Note that the value is no longer resident."""
        ...

    def victim(self, pinned: int) -> int:
        """A resident neuron other than `pinned`."""
        ...


class FarthestNextUse:
    """MIN: the value whose next use is farthest; on a tie a clean one, then the smaller id.

    A tie is only possible between source and target of one connection. MIN needs the fewest reads (Belady); for reads
    and writes together it is a heuristic.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, bool, int]] = []
        self._next_step: dict[int, int] = {}

    def touch(self, use: Use) -> None:
        self._next_step[use.neuron] = use.next_step
        heapq.heappush(self._heap, (-use.next_step, use.dirty, use.neuron))

    def forget(self, neuron: int) -> None:
        del self._next_step[neuron]

    def victim(self, pinned: int) -> int:
        """Stale entries are dropped on the way; that of `pinned` is put back."""
        kept: tuple[int, bool, int] | None = None
        while True:
            entry = heapq.heappop(self._heap)
            neuron = entry[2]
            if self._next_step.get(neuron) != -entry[0]:
                continue
            if neuron != pinned:
                break
            kept = entry
        if kept is not None:
            heapq.heappush(self._heap, kept)
        return neuron


class LeastRecentlyUsed:
    """LRU; of one connection the source counts as used before the target."""

    def __init__(self) -> None:
        self._recency: OrderedDict[int, None] = OrderedDict()

    def touch(self, use: Use) -> None:
        self._recency[use.neuron] = None
        self._recency.move_to_end(use.neuron)

    def forget(self, neuron: int) -> None:
        del self._recency[neuron]

    def victim(self, pinned: int) -> int:
        return next(neuron for neuron in self._recency if neuron != pinned)


class StepKind(IntEnum):
    """Kinds of steps on a slot."""

    LOAD_BIAS = 0
    """Holds a neuron's bias from now on: a sum without connections so far."""
    LOAD_ROW = 1
    """Holds a neuron's value or partial sum from slow memory."""
    CONNECT = 2
    """Its value times a weight is added to the sum in the other slot."""
    FINISH = 3
    """Its sum is complete and becomes the neuron's value."""
    STORE_ROW = 4
    """Its value or partial sum goes to slow memory."""


class _Step(NamedTuple):
    """A kind, one or two slots, and the number of a neuron, for `CONNECT` of a connection."""

    kind: StepKind
    slot: int
    other_slot: int
    number: int


def plan_steps(network: NeuronGraph, order: NDArray[np.int64], memory: Memory) -> NDArray[np.int64]:
    """The steps of an order, shape [steps, 4]: `StepKind`, slot, other slot (0 if there is none), number.

    Loads, connections and stores are as many as `machine_compiled` counts for the same order and memory. A value
    without further uses leaves its slot without a step.

    Args:
        network: what to run.
        order: connection ids, shape [W].
        memory: size and policy.

    Raises:
        ValueError: the order cannot be run.
    """
    check_order(network, order)
    policy = FarthestNextUse() if memory.policy == "min" else LeastRecentlyUsed()
    planner = _Planner(network, memory.capacity - 1, policy)
    sources, targets = network.sources[order].tolist(), network.targets[order].tolist()
    source_nexts, target_nexts = _next_uses(network, order)
    for step, connection in enumerate(order.tolist()):
        planner.connect(connection, End(sources[step], source_nexts[step]), End(targets[step], target_nexts[step]))
    planner.finish_lone_outputs(network)
    return np.array(planner.steps, dtype=np.int64).reshape(-1, 4)


class End(NamedTuple):
    """An end of a connection: the neuron, and the step of its next use."""

    neuron: int
    next_step: int


class _Planner:
    """Slots, what slow memory lacks, and the steps so far."""

    def __init__(self, network: NeuronGraph, slot_count: int, policy: EvictionPolicy) -> None:
        self._policy = policy
        self._free = list(range(slot_count))[::-1]
        self._slots: dict[int, int] = {}
        self._is_output: list[bool] = network.is_output.tolist()
        self._uses: list[int] = (network.in_degrees + network.out_degrees).tolist()
        self._missing: list[int] = network.in_degrees.tolist()
        lone = (network.in_degrees == 0) & ~network.is_input
        self._only_bias: list[bool] = lone.tolist()
        self._bias_next: list[bool] = (~network.is_input).tolist()
        self._dirty: list[bool] = (lone & network.is_output).tolist()
        self.steps: list[_Step] = []

    def connect(self, connection: int, source: End, target: End) -> None:
        start, end = source.neuron, target.neuron
        self._hold(start, end)
        self._hold(end, start)
        self._dirty[end] = True
        self.steps.append(_Step(StepKind.CONNECT, self._slots[start], self._slots[end], connection))
        self._missing[end] -= 1
        if self._missing[end] == 0:
            self.steps.append(_Step(StepKind.FINISH, self._slots[end], 0, end))
        for neuron, next_step in (source, target):
            self._uses[neuron] -= 1
            self._policy.touch(Use(neuron, next_step, self._dirty[neuron]))
            if self._uses[neuron] == 0:
                self._release(neuron)

    def finish_lone_outputs(self, network: NeuronGraph) -> None:
        lone = network.is_output & (network.in_degrees + network.out_degrees == 0)
        for neuron in np.flatnonzero(lone).tolist():
            self._load(neuron)
            self.steps.append(_Step(StepKind.STORE_ROW, self._slots[neuron], 0, neuron))
            self._free.append(self._slots.pop(neuron))

    def _hold(self, neuron: int, pinned: int) -> None:
        if neuron in self._slots:
            return
        if not self._free:
            self._release(self._policy.victim(pinned))
        self._load(neuron)

    def _load(self, neuron: int) -> None:
        slot = self._slots[neuron] = self._free.pop()
        kind = StepKind.LOAD_BIAS if self._bias_next[neuron] else StepKind.LOAD_ROW
        self.steps.append(_Step(kind, slot, 0, neuron))
        self._bias_next[neuron] = self._only_bias[neuron]
        if self._only_bias[neuron]:
            self.steps.append(_Step(StepKind.FINISH, slot, 0, neuron))

    def _release(self, neuron: int) -> None:
        self._policy.forget(neuron)
        slot = self._slots.pop(neuron)
        if self._dirty[neuron] and (self._uses[neuron] > 0 or self._is_output[neuron]):
            self.steps.append(_Step(StepKind.STORE_ROW, slot, 0, neuron))
        self._dirty[neuron] = False
        self._free.append(slot)


def _next_uses(network: NeuronGraph, order: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """The step of the next use of each step's source and target, W where there is none."""
    count = len(order)
    neurons = np.concatenate((network.sources[order], network.targets[order]))
    steps = np.tile(np.arange(count), 2)
    by_use = np.lexsort((steps, neurons))
    same = neurons[by_use[1:]] == neurons[by_use[:-1]]
    nexts = np.full(2 * count, count, dtype=np.int64)
    nexts[by_use[:-1][same]] = steps[by_use[1:][same]]
    return nexts[:count].tolist(), nexts[count:].tolist()
