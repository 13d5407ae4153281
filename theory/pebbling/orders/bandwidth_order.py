"""Reverse Cuthill-McKee on the unrolled network, kept topological.

Neurons joined by connections get nearby numbers, whatever their ids; if the numbers of a connection's ends differ by at
most k, the pull order in that numbering needs no more than k + 2 slots to move every value once.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph


def reverse_cuthill_mckee_order(network: NeuronGraph) -> NDArray[np.int64]:
    """Target by target, and its sources, in the numbering of `topological_numbers`. Shape [W]."""
    numbers = topological_numbers(network)
    return np.lexsort((numbers[network.sources], numbers[network.targets])).astype(np.int64)


def topological_numbers(network: NeuronGraph) -> NDArray[np.int64]:
    """A topological numbering of the neurons that follows Cuthill-McKee where it can, shape [N].

    Of the numbering and its reverse the one is taken along which more connections run upwards.
    """
    preferences = _cuthill_mckee(network)
    if 2 * int(np.sum(preferences[network.sources] < preferences[network.targets])) < network.connection_count:
        preferences = network.neuron_count - 1 - preferences
    waiting: list[int] = network.in_degrees.tolist()
    wishes: list[int] = preferences.tolist()
    ready = [(wishes[neuron], neuron) for neuron in range(network.neuron_count) if waiting[neuron] == 0]
    heapq.heapify(ready)
    numbers = np.empty(network.neuron_count, dtype=np.int64)
    for number in range(network.neuron_count):
        _, neuron = heapq.heappop(ready)
        numbers[neuron] = number
        reached: list[int] = network.targets[network.outgoing.of(neuron)].tolist()
        for target in reached:
            waiting[target] -= 1
            if waiting[target] == 0:
                heapq.heappush(ready, (wishes[target], target))
    return numbers


def _cuthill_mckee(network: NeuronGraph) -> NDArray[np.int64]:
    """Breadth first from an end of each component, neighbours of small degree first. Shape [N]."""
    neighbours = _neighbours(network)
    degrees = [len(near) for near in neighbours]
    order: list[int] = []
    seen = bytearray(network.neuron_count)
    for neuron in sorted(range(network.neuron_count), key=lambda candidate: degrees[candidate]):
        if not seen[neuron]:
            order += _breadth_first(_far_end(neuron, neighbours), neighbours, seen)
    numbers = np.empty(network.neuron_count, dtype=np.int64)
    numbers[order] = np.arange(network.neuron_count)
    return numbers


def _neighbours(network: NeuronGraph) -> list[list[int]]:
    """Sources and targets of each neuron, those of small degree first."""
    degrees = network.in_degrees + network.out_degrees
    ends = np.concatenate((network.sources, network.targets))
    others = np.concatenate((network.targets, network.sources))
    by_end = np.lexsort((others, degrees[others], ends))
    cuts = np.concatenate(([0], np.cumsum(degrees))).tolist()
    sorted_others: list[int] = others[by_end].tolist()
    return [sorted_others[cuts[neuron] : cuts[neuron + 1]] for neuron in range(network.neuron_count)]


def _far_end(neuron: int, neighbours: list[list[int]]) -> int:
    """A neuron as far from the others as two sweeps from `neuron` find it."""
    for _ in range(2):
        neuron = _breadth_first(neuron, neighbours, bytearray(len(neighbours)))[-1]
    return neuron


def _breadth_first(start: int, neighbours: list[list[int]], seen: bytearray) -> list[int]:
    seen[start] = 1
    order = [start]
    for neuron in order:
        for near in neighbours[neuron]:
            if not seen[near]:
                seen[near] = 1
                order.append(near)
    return order
