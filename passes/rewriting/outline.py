"""Outlining: ops of a block that belong together become one op, which takes their place."""

from collections.abc import Callable, Sequence

from xdsl.ir import Block, Operation

from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ..analysis.clusters import Cluster

Replacement = Callable[[Sequence[Operation]], Sequence[Operation] | None]
"""Returns the ops that take the place of some, whose results they have taken over; None where these stay."""


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
