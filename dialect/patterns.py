"""Canonicalization patterns: what every pass may take for granted to be gone."""

import numpy as np
from redpebble.dialect.constants import ConstantOp
from redpebble.dialect.elementwise import ActivateOp, AddOp, DivOp, MulOp, SubOp
from redpebble.dialect.layers import LinearOp
from redpebble.dialect.movement import ConcatOp, ReshapeOp, TransposeOp
from redpebble.dialect.provenance import copy_provenance
from redpebble.dialect.tensors import DYNAMIC, shape_of
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

IDEMPOTENT = frozenset({"abs", "relu", "clip"})


class DropZeroBias(RewritePattern):
    """`linear %x, %w bias 0` -> `linear %x, %w`."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: LinearOp, rewriter: PatternRewriter) -> None:
        if op.bias is None or not isinstance(op.bias.owner, ConstantOp) or np.any(op.bias.owner.array != 0.0):
            return
        plain = LinearOp(op.x, op.weight, None, op.activation)
        plain.kernel, plain.io_bounds = op.kernel, op.io_bounds
        copy_provenance(op, plain)
        rewriter.replace(op, plain)


class DropNeutralOperand(RewritePattern):
    """`mul %x, 1`, `div %x, 1`, `sub %x, 0` -> `%x`, and `add %x, 0`, which turns -0.0 into 0.0, too."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, AddOp | SubOp | MulOp | DivOp):
            return
        neutral = 1.0 if isinstance(op, MulOp | DivOp) else 0.0
        sides = [(op.left, op.right)]
        if isinstance(op, AddOp | MulOp):
            sides.append((op.right, op.left))
        for kept, dropped in sides:
            constant = dropped.owner
            if isinstance(constant, ConstantOp) and kept.type == op.result.type and np.all(constant.array == neutral):
                rewriter.replace(op, [], [kept])
                return


class DropRepeatedActivation(RewritePattern):
    """`activate <relu> (activate <relu> %x)` -> `activate <relu> %x`, for activations that change nothing twice."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, ActivateOp) or op.activation.kind.data not in IDEMPOTENT:
            return
        first = op.x.owner
        if isinstance(first, ActivateOp | LinearOp) and first.activation == op.activation:
            rewriter.replace(op, [], [op.x])


class DropIdentityMovement(RewritePattern):
    """A reshape to the same known shape, a transpose that keeps the order, or a concat of one part -> its operand."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        match op:
            case ReshapeOp():
                source = op.x
                target = op.target.values
                kept = all(entry == -2 - axis or entry >= 0 for axis, entry in enumerate(target))
                same = source.type == op.result.type and (DYNAMIC not in shape_of(source) or kept)
            case TransposeOp():
                source = op.x
                same = op.order == tuple(range(len(op.order)))
            case ConcatOp():
                source = op.parts[0]
                same = len(op.parts) == 1
            case _:
                return
        if same:
            rewriter.replace(op, [], [source])


class MergeTransposes(RewritePattern):
    """`transpose axes b (transpose axes a %x)` -> one transpose."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, TransposeOp) or not isinstance(op.x.owner, TransposeOp):
            return
        first = op.x.owner
        merged = TransposeOp(first.x, [first.order[axis] for axis in op.order])
        copy_provenance(op, merged)
        rewriter.replace(op, merged)
