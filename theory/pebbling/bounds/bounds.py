"""Bounds on the transfers of a network: some need no search, certified ones use the memory's size.

Every weight, input and bias sits only in slow memory and every connection runs, so each is read; each output is
written: at least W + N reads and S writes. Neuron by neuron with three slots (*pull*), every connection reads its
source, every bias is read once and every neuron that is no input is written at most once: at most 2 W + N - I reads and
N - I writes. N counts the neurons that move at all (`NeuronGraph.is_moved`), I the inputs among them. An order meets
the lower bound if and only if M is at least 1 + the largest number of live values.

In rows of B values (a batch tile of B columns) weights and biases are one value, the others rows; `TransferCount` keeps
them apart. Source: derived.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from ....sparse.neuron_graph import NeuronGraph
from ...compiled import never
from ..exact_optimum import exact_excess
from ..machine import TransferCount
from .live_intervals import IntervalGroup, interval_groups, joint_group
from .segment_bound import interval_crowding, segment_excess
from .separator_bound import Weighting, separator_excess
from .spectral_weighting import (
    degree_weights,
    equalising_weights,
    is_within_reach,
    spectral_weighting,
)

Argument = Literal[
    "every value moves", "segments", "few can stay, by layer", "few can stay, jointly", "all orders of small parts"
]
_T = TypeVar("_T")
_DEGREE_POWERS = (-0.5, 0.0, 0.25)


@dataclass(frozen=True)
class InstanceBound:
    """The best certified lower bound of one network and memory.

    `excess_rows` rows move beyond `least`, in every order and under every policy; by `argument` it is
    `excess_values`, or as many, where a row is one value.
    """

    least: TransferCount
    excess_rows: int
    excess_values: int
    argument: Argument

    @property
    def total(self) -> int:
        """Values moved at least, B = 1."""
        return self.least.total + self.excess_values

    def batched_total(self, batch: int) -> int:
        """Values moved at least for a batch tile of `batch` columns, M counted in rows."""
        if batch == 1:
            return self.total
        return self.least.batched_reads(batch) + self.least.batched_writes(batch) + batch * self.excess_rows


def lower_bound(network: NeuronGraph) -> TransferCount:
    """W + N reads and S writes, for every M."""
    moved_inputs = int(np.sum(network.is_moved & network.is_input))
    biases = int(np.sum(network.is_moved)) - moved_inputs
    return TransferCount(network.connection_count, biases, moved_inputs, len(network.outputs))


def pull_bound(network: NeuronGraph) -> TransferCount:
    """The most that the pull order transfers with M = 3: 2 W + N - I reads and N - I writes."""
    biases = int(np.sum(network.is_moved & ~network.is_input))
    return TransferCount(network.connection_count, biases, network.connection_count, biases)


def instance_bound(network: NeuronGraph, capacity: int) -> InstanceBound:
    """The best lower bound for a fast memory of `capacity` values (rows, in the batched form).

    Raises:
        ValueError: M < 3.
    """
    return instance_bounds(network, [capacity])[0]


def instance_bounds(
    network: NeuronGraph, capacities: Sequence[int], is_late: Callable[[], bool] = never
) -> list[InstanceBound]:
    """The best lower bound for each of some memories; what does not depend on M is worked out once.

    Once it is late, arguments that take long are left out: the bounds are weaker then.

    Raises:
        ValueError: M < 3.
    """
    for capacity in capacities:
        if capacity < 3:
            raise ValueError(f"expected a fast memory of 3 values or more, got {capacity}")
    least = lower_bound(network)
    alike = _alike(interval_groups(network))
    groups = [(_weighted(group, is_late), count) for group, count in alike]
    crowdings = [(interval_crowding(group), count) for group, count in alike]
    joint = _weighted(joint_group(network), is_late)
    bounds: list[InstanceBound] = []
    for capacity in capacities:
        slots = capacity - 1
        excesses: dict[Argument, int] = {
            "every value moves": 0,
            "segments": sum(count * segment_excess(crowding, slots) for crowding, count in crowdings),
            "few can stay, by layer": sum(count * _few_can_stay(group, slots, is_late) for group, count in groups),
            "few can stay, jointly": _few_can_stay(joint, slots, is_late),
        }
        exact = exact_excess(network, capacity, is_late)
        rows = max(*excesses.values(), exact.rows)
        excesses["all orders of small parts"] = exact.values
        argument = max(excesses, key=lambda name: excesses[name])
        bounds.append(InstanceBound(least, rows, excesses[argument], argument))
    return bounds


def _alike(groups: Sequence[IntervalGroup]) -> list[tuple[IntervalGroup, int]]:
    """Return groups that differ, and how often each occurs: a butterfly has very many small ones."""
    found: dict[bytes, tuple[IntervalGroup, int]] = {}
    for group in groups:
        digest = hashlib.sha256(repr(group.shape).encode())
        for array in (group.rows, group.columns, group.left_costs, group.right_costs):
            digest.update(np.ascontiguousarray(array).data)
        first, count = found.get(digest.digest(), (group, 0))
        found[digest.digest()] = (first, count + 1)
    return list(found.values())


class _WeightedGroup(NamedTuple):
    """A group, and some weightings of it; none for a group too large to weigh."""

    group: IntervalGroup
    weightings: list[Weighting]


def _weighted(group: IntervalGroup, is_late: Callable[[], bool]) -> _WeightedGroup:
    if not is_within_reach(group) or len(group.rows) == 0:
        return _WeightedGroup(group, [])
    ways = (equalising_weights, *(partial(degree_weights, power=power) for power in _DEGREE_POWERS))
    return _WeightedGroup(group, [spectral_weighting(group, way(group)) for way in _in_time(ways, is_late)])


def _in_time(values: Iterable[_T], is_late: Callable[[], bool]) -> Iterator[_T]:
    """The values before it is late."""
    return takewhile(lambda _: not is_late(), values)


def _few_can_stay(weighted: _WeightedGroup, slots: int, is_late: Callable[[], bool]) -> int:
    """The best separator bound over the weightings; 0 without any, and where all intervals fit into the slots."""
    group, excess = weighted.group, 0
    for weighting in _in_time(weighted.weightings, is_late):
        transposed = Weighting(weighting.right, weighting.left, weighting.missing)
        excess = max(
            excess,
            separator_excess(group, slots, weighting),
            separator_excess(group.transposed(), slots, transposed),
        )
    return excess
