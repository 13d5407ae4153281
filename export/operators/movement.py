"""Ops that move values: transpose, concat and split; reshape has a file of its own."""

import onnx_ir as ir

from redpebble.dialect.ops.movement import ConcatOp, SplitOp, TransposeOp
from redpebble.dialect.tensors import shape_of
from redpebble.export.writing.node_builder import Draft

SPLIT_SIZES_AS_INPUT = 13
SPLIT_COUNT = 18
"""The opset from which equal parts are asked for by their number."""


def emit_transpose(op: TransposeOp, draft: Draft) -> tuple[ir.Value]:
    """Transpose with its permutation."""
    return (draft.node("Transpose", draft.operand(op.x), perm=op.order),)


def emit_concat(op: ConcatOp, draft: Draft) -> tuple[ir.Value]:
    """Concat along the axis."""
    return (draft.node("Concat", *(draft.operand(part) for part in op.parts), axis=op.axis.value.data),)


def emit_split(op: SplitOp, draft: Draft) -> tuple[ir.Value, ...]:
    """Split; equal parts need no sizes."""
    axis, count = op.axis.value.data, len(op.parts)
    sizes = [shape_of(part)[axis] for part in op.parts]
    x = draft.operand(op.x)
    # onnxruntime does not cut nothing into a number of parts, but into given sizes
    if len(set(sizes)) == 1 and sizes[0] > 0:
        number = {"num_outputs": count} if draft.opset >= SPLIT_COUNT else {}
        return tuple(draft.parts("Split", [x], count, axis=axis, **number))
    if draft.opset >= SPLIT_SIZES_AS_INPUT:
        return tuple(draft.parts("Split", [x, draft.integers(sizes)], count, axis=axis))
    return tuple(draft.parts("Split", [x], count, axis=axis, split=sizes))
