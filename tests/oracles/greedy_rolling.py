"""Greedy rolling in plain Python: the reference of the compiled one."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph
from redpebble.theory.pebbling.orders.interval_stabbing import TargetOrders


def greedy_target_orders(network: NeuronGraph, open_count: int, exponent: float) -> TargetOrders:
    """Load the final source that helps most, open the target whose sources would help most.

    A source's score is the sum of remaining(target)^-exponent over its open targets: finish what is nearly done. A
    target may open once all its sources that are targets themselves have opened; the earliest of the open ones can then
    always be finished.

    Args:
        network: what to run.
        open_count: targets open at once, M - 2 or less.
        exponent: how much nearly finished targets are preferred; 2, 3 and 6 are worth trying.

    Raises:
        ValueError: no open target.
    """
    if open_count < 1:
        raise ValueError(f"expected 1 open target or more, got {open_count}")
    rolling = _Rolling(network, open_count, exponent)
    rolling.fill()
    while rolling.has_open():
        rolling.load(rolling.best_source())
    opening, closing = (np.array(order, dtype=np.int64) for order in (rolling.opening, rolling.closing))
    return TargetOrders(opening, closing, open_count)


class _Rolling:
    """Open targets and the scores of sources and targets while they roll."""

    def __init__(self, network: NeuronGraph, open_count: int, exponent: float) -> None:
        self._network = network
        self._open_count = open_count
        self._worths = np.zeros(int(network.in_degrees.max(initial=1)) + 1)
        self._worths[1:] = np.arange(1, len(self._worths), dtype=np.float64) ** -exponent
        self._remaining: list[int] = network.in_degrees.tolist()
        self._waiting = _hidden_source_counts(network)
        self._is_open = np.zeros(network.neuron_count, dtype=np.bool_)
        self._has_run = np.zeros(network.connection_count, dtype=np.bool_)
        self._is_final = network.in_degrees == 0
        self._scores = np.zeros(network.neuron_count)
        self._may_open = (network.in_degrees > 0) & (self._waiting == 0)
        self._just_closed: deque[int] = deque()
        self.opening: list[int] = []
        self.closing: list[int] = []

    def has_open(self) -> bool:
        """Whether a target is open."""
        return len(self.opening) > len(self.closing)

    def best_source(self) -> int:
        """A target that just closed passes on its value for free; else the final source of the best score."""
        if self._just_closed:
            return self._just_closed.popleft()
        return int(np.argmax(np.where(self._is_final, self._scores, -1.0)))

    def load(self, source: int) -> None:
        """Run all connections of a source to open targets, also to those that open meanwhile."""
        connections = self._network.outgoing.of(source)
        while True:
            ready = connections[self._is_open[self._network.targets[connections]] & ~self._has_run[connections]]
            if len(ready) == 0:
                return
            for connection in ready.tolist():
                self._run(connection)
            self.fill()

    def fill(self) -> None:
        """Open the best targets while there is room."""
        while len(self.opening) - len(self.closing) < self._open_count:
            candidates = np.flatnonzero(self._may_open)
            if len(candidates) == 0:
                return
            self._open(self._best_target(candidates))

    def _best_target(self, candidates: NDArray[np.int64]) -> int:
        network = self._network
        sums = np.bincount(network.targets, weights=self._scores[network.sources], minlength=network.neuron_count)
        return int(candidates[np.argmax(sums[candidates])])

    def _open(self, target: int) -> None:
        self.opening.append(target)
        self._may_open[target] = False
        self._is_open[target] = True
        self._scores[self._network.sources[self._network.incoming.of(target)]] += self._worths[self._remaining[target]]
        reached = self._network.targets[self._network.outgoing.of(target)]
        self._waiting[reached] -= 1
        self._may_open[reached[self._waiting[reached] == 0]] = True

    def _run(self, connection: int) -> None:
        target = int(self._network.targets[connection])
        left = self._remaining[target] - 1
        self._remaining[target] = left
        self._has_run[connection] = True
        self._scores[self._network.sources[connection]] -= self._worths[left + 1]
        if left == 0:
            self._close(target)
            return
        incoming = self._network.incoming.of(target)
        waiting = self._network.sources[incoming[~self._has_run[incoming]]]
        self._scores[waiting] += self._worths[left] - self._worths[left + 1]

    def _close(self, target: int) -> None:
        self._is_open[target] = False
        self._is_final[target] = True
        self.closing.append(target)
        if self._network.out_degrees[target] > 0:
            self._just_closed.append(target)


def _hidden_source_counts(network: NeuronGraph) -> NDArray[np.int64]:
    """Sources of each neuron that are targets themselves, shape [N]."""
    is_hidden = network.in_degrees[network.sources] > 0
    return np.bincount(network.targets[is_hidden], minlength=network.neuron_count).astype(np.int64)
