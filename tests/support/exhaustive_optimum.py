"""The fewest transfers of a tiny network over all orders and all evictions, by Dijkstra's algorithm."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from redpebble.sparse.neuron_graph import NeuronGraph


@dataclass(frozen=True, order=True)
class State:
    """Connections done (bit mask), resident neurons, and those whose value slow memory lacks."""

    done: int
    resident: frozenset[int]
    dirty: frozenset[int]


def fewest_transfers(network: NeuronGraph, capacity: int) -> int:
    """Values moved by the best run. Loading just before use and evicting only for room loses nothing."""
    everything = (1 << network.connection_count) - 1
    only_bias_outputs = frozenset(np.flatnonzero(network.is_output & (network.in_degrees == 0)).tolist())
    start = State(0, frozenset(), only_bias_outputs)
    best = {start: 0}
    queue: list[tuple[int, int, State]] = [(0, 0, start)]
    pushed = 0
    while queue:
        cost, _, state = heapq.heappop(queue)
        if cost > best[state]:
            continue
        if state.done == everything:
            isolated = network.is_output & (network.in_degrees + network.out_degrees == 0)
            return cost + network.connection_count + 2 * int(isolated.sum())
        for step_cost, after in _steps(network, capacity, state):
            if cost + step_cost < best.get(after, cost + step_cost + 1):
                best[after] = cost + step_cost
                pushed += 1
                heapq.heappush(queue, (cost + step_cost, pushed, after))
    raise AssertionError("every network can be run")


def all_orders(network: NeuronGraph) -> Iterator[NDArray[np.int64]]:
    """Every topological connection order."""

    def extend(prefix: list[int], done: int) -> Iterator[NDArray[np.int64]]:
        if len(prefix) == network.connection_count:
            yield np.array(prefix, dtype=np.int64)
        for c in _ready(network, done):
            yield from extend([*prefix, c], done | 1 << c)

    return extend([], 0)


def _ready(network: NeuronGraph, done: int) -> Iterator[int]:
    for c in range(network.connection_count):
        into_source = network.incoming.of(int(network.sources[c])).tolist()
        if not done >> c & 1 and all(done >> d & 1 for d in into_source):
            yield c


def _steps(network: NeuronGraph, capacity: int, state: State) -> Iterator[tuple[int, State]]:
    for c in _ready(network, state.done):
        source, target = int(network.sources[c]), int(network.targets[c])
        ends = frozenset((source, target))
        loads = len(ends - state.resident)
        others = state.resident - ends
        room = max(0, len(others) + 2 - (capacity - 1))
        for victims in combinations(sorted(others), room):
            resident = (state.resident | ends) - frozenset(victims)
            done = state.done | 1 << c
            yield _settle(network, State(done, resident, state.dirty | {target}), loads)


def _settle(network: NeuronGraph, state: State, cost: int) -> tuple[int, State]:
    """Write what left memory and is still needed; forget dead values."""
    resident, dirty = set(state.resident), set(state.dirty)
    for neuron in state.resident | state.dirty:
        uses = [*network.incoming.of(neuron).tolist(), *network.outgoing.of(neuron).tolist()]
        dead = all(state.done >> c & 1 for c in uses)
        started = any(state.done >> c & 1 for c in uses)
        if dead:
            resident.discard(neuron)
        if neuron not in resident and neuron in dirty and started:
            cost += int(not dead or bool(network.is_output[neuron]))
            dirty.discard(neuron)
    return cost, State(state.done, frozenset(resident), frozenset(dirty))
