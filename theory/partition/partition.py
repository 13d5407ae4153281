"""Partition of the neurons of a chain of layers, and its cost: values sent, messages, balance.

The part that owns an output computes it, so it needs every input that the output is connected with. Each input is
sent once to every part that uses it and does not own it: over a layer, the sum over inputs of (parts that use or own
it - 1), the "connectivity - 1" of hypergraph partitioning. A message is all that one part sends to another in a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sparse.csr import CsrPattern

Owners = NDArray[np.int32]
"""The part of every neuron of a level."""


FREE = -1
"""Mark in place of an owner: the owner of the input is chosen afterwards, by `owners_of_inputs`."""

LayerPattern = CsrPattern[np.integer]
"""The connections of a layer, [outputs, inputs]."""


@dataclass(frozen=True, eq=False)
class Partition:
    """The owners of every neuron of a chain of L layers, for `part_count` parts.

    `owners[k][i]` is the part that owns neuron i of level k: level 0 are the inputs of the network, level k = 1 .. L
    the outputs of layer k.

    Raises:
        ValueError: no part, fewer than two levels, or an owner that is no part.
    """

    part_count: int
    owners: tuple[Owners, ...]

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.part_count < 1:
            raise ValueError(f"expected 1 part or more, got {self.part_count}")
        if len(self.owners) < 2:
            raise ValueError(f"expected owners of 2 levels or more, as a layer has, got {len(self.owners)}")
        for level, owners in enumerate(self.owners):
            if owners.dtype != np.int32 or owners.ndim != 1:
                raise ValueError(
                    f"owners of level {level}: expected int32 of rank 1, got {owners.dtype} of rank {owners.ndim}"
                )
            outside = owners[(owners < 0) | (owners >= self.part_count)]
            if len(outside):
                raise ValueError(f"level {level}: expected owners from 0 to {self.part_count - 1}, got {outside[0]}")

    @property
    def layer_count(self) -> int:
        """L."""
        return len(self.owners) - 1

    def neurons(self, level: int, part: int) -> NDArray[np.int64]:
        """The neurons [owned] of a level that a part owns, ascending."""
        return np.flatnonzero(self.owners[level] == part)


class LayerTraffic(NamedTuple):
    """Cost of one layer under a partition; volumes are values for a batch of one."""

    volume: int
    """Values sent: the sum over inputs of the parts, other than its owner, that use it."""
    messages: int
    """Pairs (from, to) of different parts with a value to send."""
    imbalance: float
    """Connections of the fullest part / mean of the parts - 1; 0 without any connection."""
    most_sent: int
    """Values that the busiest part sends to all others."""
    most_received: int
    """Values that the busiest part receives from all others."""
    most_messages: int
    """Messages that the busiest part sends or receives, whichever is more."""
    most_connections: int
    """Connections of the fullest part."""


class LayerShare(NamedTuple):
    """Work and traffic of each part in a layer."""

    sent: NDArray[np.int64]
    """Values sent between parts, [from, to]."""
    connections: NDArray[np.int64]
    """Connections of the outputs that each part owns, [parts]."""
    local: NDArray[np.int64]
    """Connections whose input the part owns, too: they need not wait, [parts]."""


def count_sent(
    pattern: LayerPattern, input_owners: Owners, output_owners: Owners, part_count: int
) -> NDArray[np.int64]:
    """Return how many values each part sends to each other part, [from, to]; the diagonal is 0.

    Raises:
        ValueError: there are not as many owners as inputs or outputs.
    """
    _check_lengths(pattern, input_owners, output_owners)
    used = used_by(pattern, output_owners, part_count)
    sent = np.zeros((part_count, part_count), dtype=np.int64)
    values, receivers = np.nonzero(used)
    np.add.at(sent, (input_owners[values], receivers), 1)
    np.fill_diagonal(sent, 0)
    return sent


def used_by(pattern: LayerPattern, output_owners: Owners, part_count: int) -> NDArray[np.bool_]:
    """Return whether an output of each part uses each input, [inputs, parts]."""
    used = np.zeros((pattern.column_count, part_count), dtype=np.bool_)
    used[pattern.indices, np.repeat(output_owners, pattern.lengths)] = True
    return used


def connections_of_parts(pattern: LayerPattern, output_owners: Owners, part_count: int) -> NDArray[np.int64]:
    """Return the connections of the outputs of each part, [parts]."""
    weights = pattern.lengths.astype(np.float64)
    return np.bincount(output_owners, weights=weights, minlength=part_count).astype(np.int64)


def local_connections(
    pattern: LayerPattern, input_owners: Owners, output_owners: Owners, part_count: int
) -> NDArray[np.int64]:
    """Return the connections of each part whose input it owns as well, [parts]."""
    of_outputs = np.repeat(output_owners, pattern.lengths)
    return np.bincount(of_outputs[input_owners[pattern.indices] == of_outputs], minlength=part_count).astype(np.int64)


def layer_traffic(pattern: LayerPattern, input_owners: Owners, output_owners: Owners, part_count: int) -> LayerTraffic:
    """Return the cost of a layer.

    Raises:
        ValueError: there are not as many owners as inputs or outputs.
    """
    sent = count_sent(pattern, input_owners, output_owners, part_count)
    return traffic_of(sent, connections_of_parts(pattern, output_owners, part_count))


def traffic_of(sent: NDArray[np.int64], connections: NDArray[np.int64]) -> LayerTraffic:
    """Return the cost of a layer, for the values sent [from, to] and the connections of each part."""
    pairs = sent > 0
    return LayerTraffic(
        volume=int(sent.sum()),
        messages=int(pairs.sum()),
        imbalance=imbalance_of(connections),
        most_sent=int(sent.sum(axis=1).max()),
        most_received=int(sent.sum(axis=0).max()),
        most_messages=int(max(pairs.sum(axis=1).max(), pairs.sum(axis=0).max())),
        most_connections=int(connections.max()),
    )


def dense_pattern(input_count: int, output_count: int) -> LayerPattern:
    """Return the connections of a layer that has all of them."""
    every: NDArray[np.int64] = np.arange(input_count * output_count, dtype=np.int64) % max(input_count, 1)
    return CsrPattern(np.arange(output_count + 1) * input_count, every, input_count)


def all_sent(width: int, part_count: int) -> NDArray[np.int64]:
    """Return how many values parts send to each other [parts, parts] where all need all of a level cut into slices."""
    own = np.bincount(slices(width, part_count), minlength=part_count)
    sent = np.repeat(own[:, None], part_count, axis=1)
    np.fill_diagonal(sent, 0)
    return sent


def imbalance_of(connections: NDArray[np.int64]) -> float:
    """Return by how much the fullest of the parts [parts] is above their mean: 0.03 is 3 %."""
    total = int(connections.sum())
    return float(connections.max()) * len(connections) / total - 1 if total else 0.0


def free_inputs(width: int) -> Owners:
    """Return the owners of inputs that are still to be chosen."""
    return np.full(width, FREE, dtype=np.int32)


def owners_of_inputs(pattern: LayerPattern, output_owners: Owners, part_count: int) -> Owners:
    """Return for each input of a layer a part that uses it; of several the one that owns fewest so far.

    An input that U parts use is sent to U - 1 of them when one of these owns it, whichever, and to U otherwise. Where
    every part uses every input the inputs are contiguous slices.
    """
    uses = used_by(pattern, output_owners, part_count)
    users = uses.sum(axis=1)
    if np.all(users == part_count):
        return slices(pattern.column_count, part_count)
    owners = np.argmax(uses, axis=1).astype(np.int32)
    loads = np.bincount(owners[users == 1], minlength=part_count)
    uses[users == 0] = True
    for number in np.flatnonzero(users != 1):
        parts = np.flatnonzero(uses[number])
        owners[number] = parts[np.argmin(loads[parts])]
        loads[owners[number]] += 1
    return owners


def traffic(patterns: Sequence[LayerPattern], partition: Partition) -> tuple[LayerTraffic, ...]:
    """Return the cost of each layer of a chain.

    Raises:
        ValueError: the partition is of another chain.
    """
    if len(patterns) != partition.layer_count:
        raise ValueError(f"a partition of {partition.layer_count} layers for a chain of {len(patterns)}")
    return tuple(
        layer_traffic(pattern, partition.owners[layer], partition.owners[layer + 1], partition.part_count)
        for layer, pattern in enumerate(patterns)
    )


def random_rows(patterns: Sequence[LayerPattern], part_count: int, rng: np.random.Generator) -> Partition:
    """Return a partition that deals the neurons of each level to the parts at random, as evenly as possible."""
    widths = [patterns[0].column_count, *(pattern.row_count for pattern in patterns)]
    owners = [rng.permutation(np.arange(width, dtype=np.int32) % np.int32(part_count)) for width in widths]
    return Partition(part_count, tuple(owners))


def slices(width: int, part_count: int) -> Owners:
    """Return the owners of a level that is cut into contiguous slices, whose sizes differ by one at most."""
    return (np.arange(width, dtype=np.int64) * part_count // max(width, 1)).astype(np.int32)


def _check_lengths(pattern: LayerPattern, input_owners: Owners, output_owners: Owners) -> None:
    for name, owners, count in (
        ("inputs", input_owners, pattern.column_count),
        ("outputs", output_owners, pattern.row_count),
    ):
        if len(owners) != count:
            raise ValueError(f"owners of {len(owners)} {name} for a layer of {count}")
