"""The plain annealing of connection orders: one connection moves, the machine counts again.

Here for comparison with interval stabbing, and as the reference for faster counters: every proposal is a full count.

Source: the abstract of Gleinig, Ben-Nun, Hoefler, arXiv 2301.01048, names simulated annealing over orders; the move is
derived.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph, check_order
from redpebble.theory.annealing.annealing import AnnealingPlan, AnnealingResult, anneal
from redpebble.theory.pebbling.machine import Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers


class ConnectionState:
    """A connection order, and its transfers for one memory.

    The connection at a place goes to another at most `window` places away, but not before a connection into its source
    and not behind one out of its target.

    Raises:
        ValueError: the order is not topological, or the window is empty.
    """

    def __init__(self, network: NeuronGraph, order: NDArray[np.int64], memory: Memory, window: int) -> None:
        check_order(network, order)
        if window < 1:
            raise ValueError(f"a window of {window} places leaves no move")
        self._network = network
        self._memory = memory
        self._window = window
        self._sources: list[int] = network.sources.tolist()
        self._targets: list[int] = network.targets.tolist()
        self._order: list[int] = order.tolist()
        self._cost = count_transfers(network, order, memory).total
        self._before: tuple[list[int], int] = (self._order, self._cost)

    @property
    def cost(self) -> int:
        """Transfers of the current order."""
        return self._cost

    def snapshot(self) -> NDArray[np.int64]:
        """The current order."""
        return np.array(self._order, dtype=np.int64)

    def at(self, order: NDArray[np.int64]) -> ConnectionState:
        """A state of the same network, memory and window at another order."""
        return ConnectionState(self._network, order, self._memory, self._window)

    def propose(self, draws: list[float]) -> int | None:
        """Move one connection; the draws choose it and how far."""
        if len(self._order) < 2:
            return None
        place = int(draws[0] * len(self._order))
        offset = int(draws[1] * (2 * self._window + 1)) - self._window
        goal = self._clamp(place, place + offset)
        if goal == place:
            return None
        self._before = (self._order, self._cost)
        moved = self._order.copy()
        moved.insert(goal, moved.pop(place))
        self._order = moved
        self._cost = count_transfers(self._network, self.snapshot(), self._memory).total
        return self._cost - self._before[1]

    def reject(self) -> None:
        """Take the order before the move again."""
        self._order, self._cost = self._before

    def _clamp(self, place: int, goal: int) -> int:
        """The place nearest to `goal` that the connection can reach without passing one it depends on."""
        connection = self._order[place]
        step = 1 if goal > place else -1
        goal = min(max(goal, 0), len(self._order) - 1)
        while place != goal:
            passed = self._order[place + step]
            first, second = (connection, passed) if step > 0 else (passed, connection)
            if self._targets[first] == self._sources[second]:
                return place
            place += step
        return place


def anneal_connections(
    state: ConnectionState, plan: AnnealingPlan, rng: np.random.Generator
) -> AnnealingResult[NDArray[np.int64]]:
    """Anneal from a state's order; the state itself moves."""
    return anneal(lambda order: state if order is None else state.at(order), plan, rng)
