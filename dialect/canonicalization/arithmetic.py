"""Canonicalization patterns of arithmetic: what every pass may take for granted to be gone.

The sign of a zero may differ (`add %x, 0` would turn -0.0 into 0.0), and nothing else: NaN and infinities stay.
"""

import numpy as np
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from ..attributes.codes import codes_in
from ..ops.constants import ConstantOp
from ..ops.elementwise import ActivateOp, AddOp, ConvertOp, DivOp, MulOp, SubOp
from ..ops.layers import LinearOp
from ..provenance import keep_value_name
from ..tensors import broadcast_shape, shape_of

IDEMPOTENT = frozenset({"abs", "clip", "quantize", "relu"})


class DropZeroBias(RewritePattern):
    """`linear %x, %w bias 0` -> `linear %x, %w`."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: LinearOp, rewriter: PatternRewriter) -> None:
        if op.bias is None or not _is_filled_with(op.bias, 0.0):
            return
        plain = LinearOp(op.x, op.weight, None, op.activation, op.times, codes_in(op.result.type))
        plain.kernel, plain.io_bounds, plain.precision = op.kernel, op.io_bounds, op.precision
        plain.attributes.update(op.attributes)
        rewriter.replace(op, plain)


class DropNeutralOperand(RewritePattern):
    """`mul %x, 1`, `div %x, 1`, `sub %x, 0`, and `add %x, 0` -> `%x`, where the constant does not widen `%x`."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: AddOp | SubOp | MulOp | DivOp, rewriter: PatternRewriter) -> None:
        neutral = 1.0 if isinstance(op, MulOp | DivOp) else 0.0
        sides = [(op.left, op.right)]
        if isinstance(op, AddOp | MulOp):
            sides.append((op.right, op.left))
        for kept, dropped in sides:
            # a constant of three rows makes three of an unknown number of rows that may be one
            widened = broadcast_shape(shape_of(kept), shape_of(dropped)) != shape_of(kept)
            if not widened and kept.type == op.result.type and _is_filled_with(dropped, neutral):
                keep_value_name(op.result, kept)
                rewriter.replace(op, [], [kept])
                return


class DropRepeatedActivation(RewritePattern):
    """`activate <relu> (activate <relu> %x)` -> `activate <relu> %x`, for activations that change nothing twice.

    So are floats of the same codes.
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ActivateOp, rewriter: PatternRewriter) -> None:
        first = op.x.owner
        kind = op.activation.kind
        if kind not in IDEMPOTENT:
            return
        if isinstance(first, ConvertOp):
            same = op.activation == first.codes.rounding
        else:
            same = isinstance(first, ActivateOp | LinearOp) and first.activation == op.activation
        if same:
            keep_value_name(op.result, op.x)
            rewriter.replace(op, [], [op.x])


def _is_filled_with(value: SSAValue, number: float) -> bool:
    return isinstance(value.owner, ConstantOp) and bool(np.all(value.owner.array == number))
