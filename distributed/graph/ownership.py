"""Ownership of the neurons of a graph: the neurons that each part of a partition owns, needs and sends.

A value is cut when its features have owners: the inputs of the network, the outputs of linear layers, and codes of
either, or their values. A part computes its own columns of a layer and needs the features that these are connected
with; it rounds its own features to codes, which are what others get. Everything else is computed as a whole by every
part that needs it, and needs its operands as a whole.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.constants import is_constant
from ...dialect.ops.elementwise import ConvertOp
from ...dialect.ops.layers import LinearOp
from ...passes.analysis.weights import Weight, weight_of
from ...sparse.csr import CscMatrix
from ...theory.partition.partition import Owners, Partition, slices
from .row_graph import RowGraph, features_of

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Ownership:
    """Owners of cut values, and what each part needs; parts are the numbers from 0 to `part_count` - 1."""

    graph: RowGraph
    part_count: int
    owners: dict[SSAValue, Owners]
    """Owners of the features of every cut value, and of the columns of outputs that are no cut value."""
    required: dict[SSAValue, Mask] = field(default_factory=dict[SSAValue, Mask])
    """[parts, features] of every cut value."""
    executed: dict[Operation, Mask] = field(default_factory=dict[Operation, Mask])
    """[parts] of every op that computes a whole value."""

    @staticmethod
    def of(graph: RowGraph, partition: Partition) -> "Ownership":
        """Return the maps of a partition.

        Raises:
            ValueError: the partition is of another network.
        """
        owners = _owners(graph, partition)
        ownership = Ownership(graph, partition.part_count, owners)
        cut = [port.value for port in graph.inputs]
        for op in graph.ops:
            if isinstance(op, LinearOp) or (isinstance(op, ConvertOp) and graph.source(op.x) in cut):
                cut.append(op.result)
        for value in cut:
            ownership.required[value] = np.zeros((partition.part_count, features_of(value)), dtype=np.bool_)
        ownership.find_requirements()
        return ownership

    def is_cut(self, value: SSAValue) -> bool:
        """Return whether the features of a value have owners."""
        return value in self.required

    def own(self, value: SSAValue, part: int) -> NDArray[np.int64]:
        """Return the features [owned] of a value that a part owns, ascending."""
        return np.flatnonzero(self.owners[value] == part)

    def sent(self, value: SSAValue, part: int) -> dict[int, NDArray[np.int64]]:
        """Return the features [sent] of a cut value that a part sends, ascending, by the part that gets them."""
        own = self.owners[value] == part
        maps = {other: np.flatnonzero(self.required[value][other] & own) for other in range(self.part_count)}
        return {other: features for other, features in maps.items() if other != part and len(features)}

    def received(self, value: SSAValue, part: int) -> dict[int, NDArray[np.int64]]:
        """Return the features [received] of a cut value that a part receives, ascending, by the part that sends."""
        needed, owners = np.flatnonzero(self.required[value][part]), self.owners[value]
        maps = {int(other): needed[owners[needed] == other] for other in np.unique(owners[needed])}
        return {other: features for other, features in maps.items() if other != part}

    @property
    def volume(self) -> int:
        """Values sent for a batch of one: each feature goes to every part that needs it, except its owner."""
        return sum(
            int(mask.sum() - mask[self.owners[value], np.arange(mask.shape[1])].sum())
            for value, mask in self.required.items()
        )

    def find_requirements(self) -> None:
        """Find the parts that compute each op and the features they need, from the last op to the first."""
        needed: dict[SSAValue, Mask] = {}

        def need(value: SSAValue, parts: Mask) -> None:
            if self.is_cut(value):
                self.required[value][parts] = True
            else:
                needed[value] = needed.get(value, np.zeros(self.part_count, dtype=np.bool_)) | parts

        for port in self.graph.outputs:
            if not self.is_cut(port.value):
                need(port.value, np.isin(np.arange(self.part_count), self.owners[port.value]))
        for op in reversed(self.graph.ops):
            if isinstance(op, ConvertOp) and self.is_cut(op.result):
                continue
            if isinstance(op, LinearOp):
                source, users = self.graph.source(op.x), self.owners[op.result]
                if self.is_cut(source):
                    self.required[source] |= used_features(weight_for(op), users, self.part_count)
                else:
                    need(source, np.isin(np.arange(self.part_count), users))
                continue
            parts = np.zeros(self.part_count, dtype=np.bool_)
            for result in op.results:
                parts |= needed.get(result, parts)
            self.executed[op] = parts
            for operand in operands_of(self.graph, op):
                need(operand, parts)


def operands_of(graph: RowGraph, op: Operation) -> list[SSAValue]:
    """Return the values that an op reads and that are no constants, each once."""
    return list(dict.fromkeys(graph.source(operand) for operand in op.operands if not is_constant(operand)))


def weight_for(layer: LinearOp) -> Weight:
    """Return the weight of a layer.

    Raises:
        ValueError: it is no constant.
    """
    weight = weight_of(layer.weight)
    if weight is None:
        raise ValueError("the weight of a linear layer is no constant")
    return weight


def used_features(weight: Weight, owners: Owners, part_count: int) -> Mask:
    """Return which inputs the outputs of each part are connected with, [parts, inputs].

    The zeros of a weight that is stored dense are connections, too: 0 * NaN is NaN.
    """
    used = np.zeros((part_count, weight.shape[0]), dtype=np.bool_)
    if isinstance(weight, CscMatrix):
        used[owners[weight.columns], weight.rows] = True
    else:
        used[np.unique(owners)] = True
    return used


def _owners(graph: RowGraph, partition: Partition) -> dict[SSAValue, Owners]:
    widths = graph.level_widths
    found = tuple(len(level) for level in partition.owners)
    if found != widths:
        raise ValueError(f"a partition of levels of {list(found)} neurons for a network of {list(widths)}")
    owners: dict[SSAValue, Owners] = {}
    first = 0
    for port in graph.inputs:
        owners[port.value] = partition.owners[0][first : first + features_of(port.value)]
        first += features_of(port.value)
    levels = iter(partition.owners[1:])
    for op in graph.ops:
        if isinstance(op, LinearOp):
            owners[op.result] = next(levels)
        elif isinstance(op, ConvertOp) and graph.source(op.x) in owners:
            owners[op.result] = owners[graph.source(op.x)]
    for port in graph.outputs:
        if port.value not in owners:
            parts = np.unique(np.concatenate([owners[value] for value in _nearest_cut(graph, port.value, owners)]))
            owners[port.value] = parts[slices(features_of(port.value), len(parts))].astype(np.int32)
    return owners


def _nearest_cut(graph: RowGraph, value: SSAValue, owners: dict[SSAValue, Owners]) -> list[SSAValue]:
    """Return the cut values that a value is computed from without a linear layer in between."""
    found: dict[SSAValue, None] = {}
    waiting = [value]
    seen: set[SSAValue] = set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        if isinstance(current.owner, Operation) and not isinstance(current.owner, LinearOp):
            waiting += operands_of(graph, current.owner)
        elif current in owners:
            found[current] = None
    return list(found)
