"""Target by target so that few values stay live: the order for networks that are secretly narrow.

The next target is one whose sources are final and that lets the live values grow least: it adds its sources that were
not read yet and itself, and retires the sources of which it is the last target. Any target that adds nothing is taken,
most retiring first; if all add something, the numbering of reverse Cuthill-McKee decides. On shuffled networks of small
bandwidth this comes much closer to W + N + S at M = bandwidth + 2 than that numbering alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph
from .bandwidth_order import topological_numbers


def narrow_frontier_order(network: NeuronGraph) -> NDArray[np.int64]:
    """Connection ids, shape [W]."""
    frontier = _Frontier(network)
    target_count = int(np.sum(network.in_degrees > 0))
    targets = [frontier.take() for _ in range(target_count)]
    return np.concatenate([np.zeros(0, dtype=np.int64), *(network.incoming.of(target) for target in targets)])


class _Frontier:
    """Growth of the live values by each target, [targets]."""

    def __init__(self, network: NeuronGraph) -> None:
        self._network = network
        self._numbers = topological_numbers(network)
        self._growths = network.in_degrees + (network.out_degrees > 0)
        self._left = network.out_degrees.copy()
        is_hidden = network.in_degrees[network.sources] > 0
        self._waiting = np.bincount(network.targets[is_hidden], minlength=network.neuron_count)
        self._is_ready = (network.in_degrees > 0) & (self._waiting == 0)
        self._is_taken = np.zeros(network.neuron_count, dtype=np.bool_)
        self._is_live = np.zeros(network.neuron_count, dtype=np.bool_)
        single = np.flatnonzero(self._left == 1)
        for source in single.tolist():
            self._growths[self._targets(source)] -= 1

    def take(self) -> int:
        """The next target; its sources and itself become live, or retire."""
        target = self._best()
        self._is_taken[target] = True
        self._is_ready[target] = False
        for source in self._network.sources[self._network.incoming.of(target)].tolist():
            self._enter(source)
            self._left[source] -= 1
            if self._left[source] == 1:
                remaining = self._targets(source)
                self._growths[remaining[~self._is_taken[remaining]]] -= 1
        self._enter(target)
        reached = self._targets(target)
        self._waiting[reached] -= 1
        self._is_ready[reached[self._waiting[reached] == 0]] = True
        return target

    def _best(self) -> int:
        ready = np.flatnonzero(self._is_ready)
        growths, numbers = self._growths[ready], self._numbers[ready]
        if np.any(growths <= 0):
            return int(ready[np.lexsort((numbers, growths))[0]])
        return int(ready[np.argmin(numbers)])

    def _enter(self, neuron: int) -> None:
        if not self._is_live[neuron]:
            self._is_live[neuron] = True
            self._growths[self._targets(neuron)] -= 1

    def _targets(self, source: int) -> NDArray[np.int64]:
        return self._network.targets[self._network.outgoing.of(source)]
