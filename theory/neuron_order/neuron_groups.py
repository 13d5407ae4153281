"""Groups of neurons that are permuted together, the weights between them, and what an order does to these.

All neurons of a network have numbers, those of a group one after the other. An order is given by positions [neurons]:
the position of each neuron in its group. A pinned group keeps its neurons where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sparse.csr import CsrPattern, Indices


class Axis(NamedTuple):
    """Along an axis of a weight: the neuron at each index, and the index at which that neuron's group starts there."""

    neurons: Indices
    starts: Indices

    def indices(self, positions: Indices) -> Indices:
        """Return where each index of the axis goes when the neurons have `positions`, [size]."""
        return self.starts + positions[self.neurons]


@dataclass(frozen=True, eq=False)
class GroupedWeight:
    """The connections of a weight: row n of `rows` is what output n reads."""

    rows: CsrPattern
    inputs: Axis
    outputs: Axis

    @property
    def connections(self) -> tuple[Indices, Indices]:
        """The neurons that each connection joins, from and to."""
        return self.inputs.neurons[self.rows.indices], self.outputs.neurons[self.rows.rows]

    def ordered(self, positions: Indices) -> CsrPattern:
        """Return the rows as they are when the neurons have `positions`."""
        lengths = self.rows.lengths
        where, target = self.inputs.indices(positions), self.outputs.indices(positions)
        pointers = np.zeros(len(lengths) + 1, dtype=np.int64)
        pointers[1 + target] = lengths
        np.cumsum(pointers, out=pointers)
        shift = pointers[target] - self.rows.pointers[:-1]
        inputs = np.empty(len(self.rows.indices), dtype=np.int64)
        inputs[np.arange(len(inputs)) + np.repeat(shift, lengths)] = where[self.rows.indices]
        # one sort of all rows: a row's number decides before the input
        keys = np.repeat(np.arange(len(lengths)), np.diff(pointers)) * self.rows.column_count + inputs
        keys.sort()
        return CsrPattern(pointers, keys % max(1, self.rows.column_count), self.rows.column_count)


@dataclass(frozen=True, eq=False)
class NeuronGroups:
    """Group g has the neurons from `starts[g]` to `starts[g + 1]`, which may change places if it is `free`."""

    starts: Indices
    free: NDArray[np.bool_]
    weights: tuple[GroupedWeight, ...]

    def __post_init__(self) -> None:
        if self.starts[0] != 0 or np.any(np.diff(self.starts) < 0) or len(self.starts) != len(self.free) + 1:
            raise ValueError(
                f"expected starts of {len(self.free)} groups that ascend from 0, got {self.starts.tolist()}"
            )

    @property
    def neuron_count(self) -> int:
        return int(self.starts[-1])

    @property
    def group_count(self) -> int:
        return len(self.free)

    @cached_property
    def group_of(self) -> Indices:
        """The group of each neuron, [neurons]."""
        return np.repeat(np.arange(self.group_count), np.diff(self.starts))

    @cached_property
    def connections(self) -> tuple[Indices, Indices]:
        """The neurons that each connection of every weight joins, from and to."""
        if not self.weights:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        sources, targets = zip(*(weight.connections for weight in self.weights), strict=True)
        return np.concatenate(sources), np.concatenate(targets)

    def identity(self) -> Indices:
        """Return the positions that neurons have now."""
        return np.arange(self.neuron_count) - self.starts[self.group_of]

    def takes(self, positions: Indices) -> bool:
        """Whether positions [neurons] permute each free group, and leave all others as they are."""
        if positions.shape != (self.neuron_count,) or not np.issubdtype(positions.dtype, np.integer):
            return False
        fixed = ~self.free[self.group_of]
        order = np.lexsort((positions, self.group_of))
        identity = self.identity()
        return np.array_equal(positions[order], identity) and np.array_equal(positions[fixed], identity[fixed])

    def positions_by(self, numbers: NDArray[np.int64] | NDArray[np.float64]) -> Indices:
        """Return the positions of neurons sorted by `numbers` [neurons] in each free group, ties as they are now."""
        order = np.lexsort((numbers, self.group_of))
        positions = np.empty(self.neuron_count, dtype=np.int64)
        positions[order] = self.identity()
        return np.where(self.free[self.group_of], positions, self.identity())

    def order_of(self, group: int, positions: Indices) -> Indices:
        """Return which neuron of a group comes first, second and so on, as indices in the group."""
        return np.argsort(positions[self.starts[group] : self.starts[group + 1]], kind="stable")
