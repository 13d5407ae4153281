"""The memory machine once more, without sets, rings or compiled code: each eviction looks at all residents."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.pebbling.machine import Memory


class PlainMachine:
    """What one order moves in `memory`, counted step by step.

    `weight` is how many times as far away the next use of a dirty value must be as that of a clean one to leave first.
    """

    def __init__(self, network: NeuronGraph, order: NDArray[np.int64], memory: Memory, weight: float = 1.0) -> None:
        self._network, self._memory, self._weight = network, memory, weight
        self._ends = [(int(network.sources[c]), int(network.targets[c])) for c in order]
        self._slots: list[int | None] = [None] * (memory.capacity - 1)
        self._free = list(range(memory.capacity - 1))[::-1]
        self._hand, self._step = 0, 0
        self._dirty = {int(n) for n in network.outputs if network.in_degrees[n] == 0}
        self._last_use: dict[int, int] = {}
        self.reads = self.writes = 0

    def run(self) -> int:
        """Return the values moved, without the weights."""
        for step, ends in enumerate(self._ends):
            self._step = step
            for neuron in ends:
                if neuron not in self._slots:
                    self._load(neuron, ends)
            for place, neuron in enumerate(ends):
                self._last_use[neuron] = 2 * self._step + place
            self._dirty.add(ends[1])
            for neuron in ends:
                if self._next_use(neuron, self._step + 1) is None:
                    self._drop(neuron, is_dead=True)
        return self.reads + self.writes

    def _load(self, neuron: int, ends: tuple[int, int]) -> None:
        if not self._free:
            self._drop(self._victim(ends), is_dead=False)
        self.reads += 1
        self._slots[self._free.pop()] = neuron

    def _drop(self, neuron: int, *, is_dead: bool) -> None:
        slot = self._slots.index(neuron)
        self._slots[slot] = None
        self._free.append(slot)
        if neuron in self._dirty and (not is_dead or bool(self._network.is_output[neuron])):
            self.writes += 1
        self._dirty.discard(neuron)

    def _victim(self, ends: tuple[int, int]) -> int:
        residents = [neuron for neuron in self._slots if neuron is not None and neuron not in ends]
        if self._memory.policy == "lru":
            return min(residents, key=lambda neuron: self._last_use[neuron])
        if self._memory.policy == "rr":
            while True:
                neuron = self._slots[self._hand]
                self._hand = (self._hand + 1) % len(self._slots)
                if neuron in residents:
                    return neuron
        return max(residents, key=self._worth)

    def _worth(self, neuron: int) -> tuple[float, bool, int]:
        """How far away the next use is, in steps; of equal ones a clean value leaves, then the smaller id."""
        away = self._next_use(neuron, self._step + 1)
        assert away is not None
        is_clean = neuron not in self._dirty
        return (away - self._step) * (self._weight if is_clean else 1.0), is_clean, -neuron

    def _next_use(self, neuron: int, begin: int) -> int | None:
        return next((step for step in range(begin, len(self._ends)) if neuron in self._ends[step]), None)


def fewest_by_any_eviction(network: NeuronGraph, order: NDArray[np.int64], capacity: int) -> int:
    """The fewest values that one order moves under any eviction, by dynamic programming over what is resident."""
    left = (network.in_degrees + network.out_degrees).tolist()
    born_dirty = frozenset(int(n) for n in network.outputs if network.in_degrees[n] == 0)
    states = {(frozenset[int](), born_dirty): 0}
    for connection in order.tolist():
        ends = frozenset((int(network.sources[connection]), int(network.targets[connection])))
        for end in ends:
            left[end] -= 1
        after: dict[tuple[frozenset[int], frozenset[int]], int] = {}
        for (resident, dirty), cost in states.items():
            others = resident - ends
            for victims in map(frozenset, combinations(sorted(others), max(0, len(others) + 3 - capacity))):
                kept, unsaved = (resident | ends) - victims, (dirty - victims) | {int(network.targets[connection])}
                moved = cost + len(ends - resident) + len(victims & dirty)
                dead = {end for end in ends if left[end] == 0}
                moved += sum(bool(network.is_output[end]) for end in dead & unsaved)
                state = (kept - dead, unsaved - dead)
                after[state] = min(moved, after.get(state, moved))
        states = after
    isolated = network.is_output & (network.in_degrees + network.out_degrees == 0)
    return min(states.values()) + network.connection_count + 2 * int(isolated.sum())
