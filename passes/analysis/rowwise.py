"""Ops that compute each row from the same row of their operands, and values that have the same rows.

A value's rows are all its leading axes together; its last axis holds the features. How many rows there are is a product
of symbolic sizes, so [batch, sequence, 64] and its reshape to [batch * sequence, 64] have the same rows, in one order.
"""

from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.axis_maps import AxisMap, RowWise, axis_map_of
from ...dialect.ops.constants import is_constant
from ...dialect.ops.movement import ReshapeOp
from ...dialect.shape_inference import symbolic_shapes
from ...dialect.symbolic_sizes import Size, SymbolicShape, product
from ...dialect.tensors import DYNAMIC, shape_of
from .per_feature_constants import entries_per_feature


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
        axis_map = axis_map_of(op)
        if isinstance(op, ReshapeOp):
            return self._keeps_rows(op)
        if axis_map is None or op.get_trait(RowWise) is None:
            return False
        if axis_map.whole.intersection(axis_map.results[0][:-1]):
            return False  # all rows have to be known for each
        if any(shape_of(value)[-1:] == (DYNAMIC,) for value in (*dynamic_operands(op), *op.results)):
            return False
        # a constant of higher rank would give the result axes that no operand has
        known = any(self.leading(operand) == self.leading(op.results[0]) for operand in dynamic_operands(op))
        return known and all(self._fits(op, index, axis_map) for index in range(len(op.operands)))

    def _fits(self, op: Operation, index: int, axis_map: AxisMap) -> bool:
        """Return whether an operand has the rows of the result, or is a constant that has one entry a feature."""
        operand, result = op.operands[index], op.results[0]
        if index in axis_map.parameters:
            return is_constant(operand)
        if is_constant(operand):
            return axis_map.join is None and entries_per_feature(operand) is not None
        axes, rows = axis_map.operands[index][:-1], axis_map.results[0][:-1]
        leading, expected = self.leading(operand), self.leading(result)
        padded = (Size.known(1),) * (len(expected) - len(leading)) + leading
        return axes == rows[len(rows) - len(axes) :] and padded == expected

    def _keeps_rows(self, op: ReshapeOp) -> bool:
        """Return whether a reshape only merges or splits leading axes, at most one of them unknown on either side."""
        before, after = shape_of(op.x), shape_of(op.result)
        if not before or not after or before[-1] != after[-1] or before[-1] in (DYNAMIC, 0):
            return False
        # with one unknown axis the way back is a reshape, too, so that a tile's result can get any such shape
        return before.count(DYNAMIC) <= 1 and after.count(DYNAMIC) <= 1 and self.count(op.x) == self.count(op.result)
