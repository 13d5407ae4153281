"""Eviction from a full fast memory: MIN, or least recently used.

A policy sees every use of a value and names a victim on request. Dead values never reach it: the machine forgets a
value at its last use, which is free, so that "dead values go first" holds for every policy.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import NamedTuple, Protocol


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
