"""Canonicalization patterns of movement: what moves values back and forth, or not at all, is gone."""

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from ..ops.elementwise import ActivateOp
from ..ops.movement import INFERRED, ConcatOp, ReshapeOp, SplitOp, TargetShapeAttr, TransposeOp, copied
from ..provenance import copy_provenance, keep_value_name
from ..tensors import DYNAMIC, Shape, shape_of


class RoundBeforeMoving(RewritePattern):
    """`activate <quantize> (transpose %x)` -> `transpose (activate <quantize> %x)`, and so for a reshape.

    What moves values to and fro then has nothing between, and what is rounded has rows of the layer before it.
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ActivateOp, rewriter: PatternRewriter) -> None:
        move = op.x.owner
        if op.activation.kind != "quantize" or not isinstance(move, ReshapeOp | TransposeOp):
            return
        if not op.x.has_one_use():
            return
        rounded = ActivateOp(move.x, op.activation)
        moved = move.clone({move.x: rounded.result})
        copy_provenance(op, rounded)
        copy_provenance(op, moved)
        rewriter.replace(op, [rounded, moved])


class DropIdentityMovement(RewritePattern):
    """A reshape to the same shape, a transpose that keeps the order, a concat or split of one part -> its operand."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp | TransposeOp | ConcatOp | SplitOp, rewriter: PatternRewriter) -> None:
        match op:
            case ReshapeOp():
                same = _keeps_shape(op.target, shape_of(op.x))
            case TransposeOp():
                same = op.order == tuple(range(len(op.order)))
            case ConcatOp():
                same = len(op.parts) == 1
            case SplitOp():
                same = len(op.parts) == 1
        if same and op.results[0].type == op.operands[0].type:
            keep_value_name(op.results[0], op.operands[0])
            rewriter.replace(op, [], [op.operands[0]])


def _keeps_shape(target: TargetShapeAttr, shape: Shape) -> bool:
    """Return whether a reshape is the identity whatever the unknown sizes are, given that it keeps the type.

    A single axis that neither the type nor a copy decides keeps its size as well, since the number of values does not
    change; with a size of 0 beside it, it could be anything.
    """
    if len(target.entries) != len(shape):
        return False
    entries = zip(target.entries, shape, strict=True)
    undecided = sum(size == DYNAMIC and entry != copied(axis) for axis, (entry, size) in enumerate(entries))
    return undecided == 0 or (undecided == 1 and 0 not in shape)


class MergeTransposes(RewritePattern):
    """`transpose axes b (transpose axes a %x)` -> one transpose."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: TransposeOp, rewriter: PatternRewriter) -> None:
        first = op.x.owner
        if not isinstance(first, TransposeOp):
            return
        merged = TransposeOp(first.x, [first.order[axis] for axis in op.order])
        copy_provenance(op, merged)
        rewriter.replace(op, merged)


class MergeReshapes(RewritePattern):
    """`reshape to <[d0, 4]> (reshape to <[d0, 2, 2]> %x)` -> one reshape, where its target can be written."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter) -> None:
        first = op.x.owner
        if not isinstance(first, ReshapeOp):
            return
        entries = [entry if entry >= INFERRED else first.target.entries[-2 - entry] for entry in op.target.entries]
        # with a size of 0, what is left over could be anything
        if entries.count(INFERRED) > 1 or 0 in entries or 0 in first.target.entries:
            return
        target = TargetShapeAttr(entries)
        if target.result_shape(shape_of(first.x)) != shape_of(op.result):
            return
        merged = ReshapeOp(first.x, target)
        copy_provenance(op, merged)
        rewriter.replace(op, merged)


class TransposeUnmerged(RewritePattern):
    """A transpose of the last axes between a merge of the first ones and its undoing -> a transpose alone.

    `reshape to <[_, 4, 32, d2]> (transpose axes [0, 2, 1] (reshape to <[_, d2, 32]> %x))`, with %x of [?, 4, ?, 32],
    is `transpose axes [0, 1, 3, 2] %x`.
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter) -> None:
        transpose = op.x.owner
        merge = transpose.x.owner if isinstance(transpose, TransposeOp) else None
        if not isinstance(transpose, TransposeOp) or not isinstance(merge, ReshapeOp) or transpose.order[0] != 0:
            return
        source, merged, between = shape_of(merge.x), shape_of(merge.result), shape_of(op.x)
        count = len(source) - len(merged) + 1
        if count < 2 or len(op.target.entries) != len(source):
            return
        undone = all(
            entry in (INFERRED, size) for entry, size in zip(op.target.entries[:count], source[:count], strict=True)
        )
        kept = _keeps(merge.target.entries[1:], source, count) and _keeps(op.target.entries[count:], between, 1)
        if not undone or not kept:
            return
        order = [*range(count), *(count - 1 + axis for axis in transpose.order[1:])]
        replacement = TransposeOp(merge.x, order)
        if replacement.result.type == op.result.type:
            copy_provenance(op, replacement)
            rewriter.replace(op, replacement)


def _keeps(entries: Sequence[int], shape: Shape, first: int) -> bool:
    """Return whether entries of a reshape's target are the axes of its operand from `first` on."""
    axes = enumerate(shape[first:], start=first)
    return all(
        entry == copied(axis) or entry == size != DYNAMIC for entry, (axis, size) in zip(entries, axes, strict=True)
    )


class JoinSplitParts(RewritePattern):
    """`concat axis a (split axis a %x)` -> `%x`, where all parts stand in their order."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ConcatOp, rewriter: PatternRewriter) -> None:
        split = _owner(op.parts[0])
        if not isinstance(split, SplitOp) or split.axis != op.axis:
            return
        if tuple(op.parts) == tuple(split.parts) and split.x.type == op.result.type:
            rewriter.replace(op, [], [split.x])


class SplitConcatParts(RewritePattern):
    """`split axis a (concat axis a %x, %y)` -> `%x`, `%y`, where it cuts at the seams."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: SplitOp, rewriter: PatternRewriter) -> None:
        concat = _owner(op.x)
        if not isinstance(concat, ConcatOp) or concat.axis != op.axis:
            return
        if [part.type for part in concat.parts] == [part.type for part in op.parts]:
            rewriter.replace(op, [], concat.parts)


def _owner(value: SSAValue) -> Operation | None:
    return value.owner if isinstance(value.owner, Operation) else None
