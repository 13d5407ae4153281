"""Groups of row-wise ops that can become one op each: as large as possible, never waiting for each other in a circle.

Every op gets a level: the largest among those of the ops that compute its operands, plus 1 when the op itself is
row-wise (1 at least) and such an operand does not come from a row-wise op on the same rows. A cluster is a connected
part of the row-wise ops with one level and one number of rows; ops that share an operand count as connected.

No circle arises. Levels never fall along an edge, so all ops of a circle of clusters and single ops have one level. An
edge into a row-wise op keeps the level only when it comes from a row-wise op with the same number of rows, hence from
the same cluster. So no edge of the circle enters a cluster, and what is left is a circle of single ops, which SSA
excludes. Reshapes at the edge of a cluster become single ops: before it they read what has a lower level, behind it
nothing in the cluster reads them, so the argument stays.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from typing import NamedTuple

from xdsl.ir import Block, Operation, SSAValue

from ...dialect.ops.movement import ReshapeOp
from ...dialect.symbolic_sizes import Size
from .rowwise import dynamic_operands


@dataclass(frozen=True)
class Cluster:
    """Ops in block order that can become one op together, or one op that stays as it is."""

    ops: tuple[Operation, ...]
    is_joined: bool


class Boundary(NamedTuple):
    """Values that cross the boundary of some ops, in the order in which they are read or computed."""

    inputs: tuple[SSAValue, ...]
    """Inputs: values that the ops read and do not compute, constant parameters left out."""
    outputs: tuple[SSAValue, ...]
    """Outputs: values that they compute for others."""


def boundary_of(ops: Sequence[Operation]) -> Boundary:
    """Return the boundary of ops that stand in block order."""
    members = set(ops)
    operands = dict.fromkeys(operand for op in ops for operand in dynamic_operands(op))
    results = (result for op in ops for result in op.results)
    return Boundary(
        tuple(operand for operand in operands if operand.owner not in members),
        tuple(result for result in results if any(use.operation not in members for use in result.uses)),
    )


def clusters_of(ops: Sequence[Operation], rows: Mapping[Operation, Size]) -> list[Cluster]:
    """Return the clusters of `ops` in an order of execution; `ops` stand in block order.

    `rows` holds the number of rows of the row-wise ops.
    """
    levels = _levels(ops, rows)
    groups = _connected([op for op in ops if op in rows], {op: (levels[op], rows[op]) for op in rows})
    clusters = [Cluster((op,), is_joined=False) for op in ops if op not in rows]
    for group in groups:
        inside, reshapes = _without_outer_reshapes(group)
        clusters += [Cluster((op,), is_joined=False) for op in reshapes]
        if inside:
            clusters.append(Cluster(tuple(inside), is_joined=True))
    return _in_order(clusters, {op: index for index, op in enumerate(ops)})


def _levels(ops: Sequence[Operation], rows: Mapping[Operation, Size]) -> dict[Operation, int]:
    levels: dict[Operation, int] = {}
    for op in ops:
        # values that no op computes are no reason to stay apart from what reads others
        level = 1 if op in rows else 0
        for producer in _producers(op):
            if producer in levels:
                joined = op not in rows or (producer in rows and rows[producer] == rows[op])
                level = max(level, levels[producer] + (0 if joined else 1))
        levels[op] = level
    return levels


def _producers(op: Operation) -> list[Operation]:
    return [operand.owner for operand in dynamic_operands(op) if isinstance(operand.owner, Operation)]


def _connected(ops: Sequence[Operation], keys: Mapping[Operation, object]) -> list[list[Operation]]:
    """Return the connected parts of ops with equal keys, each in block order."""
    group_of: dict[Operation, list[Operation]] = {}
    readers: dict[tuple[SSAValue, object], Operation] = {}
    for op in ops:
        group = group_of[op] = [op]
        neighbours = [producer for producer in _producers(op) if keys.get(producer) == keys[op]]
        neighbours += [readers.setdefault((operand, keys[op]), op) for operand in dynamic_operands(op)]
        for neighbour in neighbours:
            other = group_of[neighbour]
            if other is not group:
                # a group that grows by one op after the other is not walked each time
                group, smaller = (other, group) if len(other) > len(group) else (group, other)
                group += smaller
                group_of.update(dict.fromkeys(smaller, group))
    position = {op: index for index, op in enumerate(ops)}
    unique = {id(group): group for group in group_of.values()}
    return [sorted(group, key=position.__getitem__) for group in unique.values()]


def _without_outer_reshapes(group: Sequence[Operation]) -> tuple[list[Operation], list[Operation]]:
    """Return a group without the reshapes at its edge, and those: outside of a tile they cost nothing, in it a copy."""
    inside, outside = dict[Operation | Block, None].fromkeys(group), list[Operation]()
    while True:
        outer = [op for op in inside if isinstance(op, ReshapeOp) and _is_outer(op, inside)]
        if not outer:
            return list(inside), outside
        for op in outer:
            del inside[op]
        outside += outer


def _is_outer(op: ReshapeOp, inside: Container[Operation | Block]) -> bool:
    """Return whether nothing inside reads a reshape, or nothing inside has to do with its operand but the reshape."""
    read_inside = any(use.operation in inside for use in op.result.uses)
    shares_operand = op.x.owner in inside or any(
        use.operation in inside for use in op.x.uses if use.operation is not op
    )
    return not (read_inside and shares_operand)


def _in_order(clusters: Sequence[Cluster], position: Mapping[Operation, int]) -> list[Cluster]:
    """Return the clusters so that each stands behind those it reads, otherwise in block order.

    Raises:
        graphlib.CycleError: never; the module's docstring says why.
    """
    index_of = {op: index for index, cluster in enumerate(clusters) for op in cluster.ops}
    sorter = TopologicalSorter[int]()
    for index, cluster in enumerate(clusters):
        sources = {index_of[producer] for op in cluster.ops for producer in _producers(op) if producer in index_of}
        sorter.add(index, *(sources - {index}))
    sorter.prepare()
    ready: list[tuple[int, int]] = []
    ordered: list[Cluster] = []
    while sorter.is_active():
        for index in sorter.get_ready():
            heappush(ready, (position[clusters[index].ops[0]], index))
        _, index = heappop(ready)
        ordered.append(clusters[index])
        sorter.done(index)
    return ordered
