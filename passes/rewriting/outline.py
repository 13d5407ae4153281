"""Outlining: ops of a block that belong together become one op, which takes their place."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from xdsl.ir import Block, Operation, SSAValue

from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.passes.analysis.clusters import Cluster
from redpebble.passes.analysis.rowwise import dynamic_operands

Replacement = Callable[[Sequence[Operation]], Sequence[Operation] | None]
"""Returns the ops that take the place of some, whose results they have taken over; None where these stay."""


class Boundary(NamedTuple):
    """Values that cross the boundary of some ops, in the order in which they are read or computed."""

    inputs: tuple[SSAValue, ...]
    """What the ops read and do not compute, constant parameters left out."""
    outputs: tuple[SSAValue, ...]
    """What they compute for others."""


def boundary_of(ops: Sequence[Operation]) -> Boundary:
    """Return the boundary of ops that stand in block order."""
    members = set(ops)
    operands = dict.fromkeys(operand for op in ops for operand in dynamic_operands(op))
    results = (result for op in ops for result in op.results)
    return Boundary(
        tuple(operand for operand in operands if operand.owner not in members),
        tuple(result for result in results if any(use.operation not in members for use in result.uses)),
    )


def computing_ops(block: Block) -> list[Operation]:
    """Return the ops of a block that compute something: all but its constants and its end."""
    *ops, _ = block.ops
    return [op for op in ops if not isinstance(op, ConstantOp | SparseConstantOp)]


def outline(block: Block, clusters: Sequence[Cluster], replacement: Replacement) -> None:
    """Put replacements in the place of clusters, and all ops of the block in the order of these, constants first."""
    ordered: list[Operation] = []
    replaced: list[Operation] = []
    for cluster in clusters:
        ops = replacement(cluster.ops) if cluster.is_joined else None
        ordered += cluster.ops if ops is None else ops
        replaced += () if ops is None else cluster.ops
    if not replaced:
        return
    for op in reversed(replaced):
        block.erase_op(op)
    end = block.last_op
    assert end is not None
    constants = [op for op in (*block.ops, *ordered) if isinstance(op, ConstantOp | SparseConstantOp)]
    for op in (*constants, *(op for op in ordered if op not in constants)):
        if op.parent is not None:
            op.detach()
        block.insert_op_before(op, end)
