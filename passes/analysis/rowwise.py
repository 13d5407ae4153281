"""Which ops compute each row from the same row of their operands, and which values have the same rows.

A value's rows are all its leading axes together; its last axis holds the features. How many rows there are is a product
of symbolic sizes, so [batch, sequence, 64] and its reshape to [batch * sequence, 64] have the same rows, in one order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, BinaryOp
from redpebble.dialect.ops.layers import (
    LayerNormOp,
    LinearOp,
    LogSoftmaxOp,
    ReduceMeanOp,
    RmsNormOp,
    SoftmaxOp,
)
from redpebble.dialect.ops.movement import ConcatOp, ReshapeOp, SplitOp, TransposeOp
from redpebble.dialect.ops.network import NetworkOp
from redpebble.dialect.symbolic_sizes import Size, SymbolicShape, product, symbolic_shapes
from redpebble.dialect.tensors import DYNAMIC, shape_of
from redpebble.passes.analysis.per_feature_constants import entries_per_feature
from redpebble.passes.analysis.weights import weight_of

ROW_MAJOR = ActivateOp | BinaryOp | ReshapeOp | TransposeOp | ConcatOp | SplitOp
"""Ops that may stay outside of tiles; all others are row-wise or refused."""


def is_constant(value: SSAValue) -> bool:
    """Return whether a value is a constant of the dialect."""
    return isinstance(value.owner, ConstantOp | SparseConstantOp)


def dynamic_operands(op: Operation) -> list[SSAValue]:
    """Return the operands that are no constants, each once."""
    return [operand for operand in dict.fromkeys(op.operands) if not is_constant(operand)]


@dataclass(frozen=True)
class Rows:
    """The rows of the values of a function."""

    shapes: dict[SSAValue, SymbolicShape]

    @staticmethod
    def of(func: FuncOp) -> "Rows":
        """Return the rows of the values in the body of `func`.

        Raises:
            VerifyException: a size is no product of the arguments' sizes.
        """
        return Rows(symbolic_shapes(func))

    def leading(self, value: SSAValue) -> SymbolicShape:
        """Return the sizes of the leading axes."""
        return self.shapes[value][:-1]

    def count(self, value: SSAValue) -> Size:
        """Return the number of rows: 1 for a vector or a scalar."""
        return product(self.leading(value))

    def rowwise_count(self, op: Operation) -> Size | None:
        """Return the number of rows of a row-wise op, or None when the op is not row-wise."""
        operands = dynamic_operands(op)
        if not operands or not self._is_rowwise(op):
            return None
        return self.count(operands[0])

    def _is_rowwise(self, op: Operation) -> bool:
        match op:
            case LinearOp():
                return weight_of(op.weight) is not None and _all_constant(op.operands[1:])
            case ActivateOp():
                return shape_of(op.x)[-1:] != (DYNAMIC,)
            case SoftmaxOp() | LogSoftmaxOp() | ReduceMeanOp() | NetworkOp():
                return True
            case LayerNormOp() | RmsNormOp():
                return _all_constant(op.operands[1:])
            case BinaryOp():
                return self._is_rowwise_binary(op)
            case ConcatOp():
                return op.axis.value.data == len(self.shapes[op.result]) - 1 and self._share_rows(op.parts, op.result)
            case SplitOp():
                return op.axis.value.data == len(self.shapes[op.x]) - 1
            case ReshapeOp():
                return self._keeps_rows(op)
            case _:
                return False

    def _is_rowwise_binary(self, op: BinaryOp) -> bool:
        """Return whether operands have the result's rows, or are constants that have one entry a feature."""
        if shape_of(op.result)[-1:] == (DYNAMIC,) or any(DYNAMIC in shape_of(side)[-1:] for side in op.operands):
            return False
        constants = [side for side in op.operands if is_constant(side)]
        if any(entries_per_feature(constant) is None for constant in constants):
            return False
        operands = dynamic_operands(op)
        # a constant of higher rank would give the result axes that no operand has
        known = any(self.leading(operand) == self.leading(op.result) for operand in operands)
        return known and self._share_rows(operands, op.result)

    def _share_rows(self, operands: Sequence[SSAValue], result: SSAValue) -> bool:
        """Return whether all operands have the leading axes of the result, short ones with axes of size 1 in front."""
        expected = self.leading(result)
        for operand in operands:
            leading = self.leading(operand)
            padded = (Size.known(1),) * (len(expected) - len(leading)) + leading
            if is_constant(operand) or shape_of(operand)[-1:] == (DYNAMIC,) or padded != expected:
                return False
        return True

    def _keeps_rows(self, op: ReshapeOp) -> bool:
        """Return whether a reshape only merges or splits leading axes, at most one of them unknown on either side."""
        before, after = shape_of(op.x), shape_of(op.result)
        if not before or not after or before[-1] != after[-1] or before[-1] in (DYNAMIC, 0):
            return False
        # with one unknown axis the way back is a reshape, too, so that a tile's result can get any such shape
        return before.count(DYNAMIC) <= 1 and after.count(DYNAMIC) <= 1 and self.count(op.x) == self.count(op.result)


def _all_constant(values: Sequence[SSAValue]) -> bool:
    return all(is_constant(value) for value in values)
