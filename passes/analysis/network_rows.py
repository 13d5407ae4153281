"""Ops that only sum, activate and renumber features, so that their results are neurons of one graph.

All values of such a graph have the same rows: the product of their first axes. What is behind these axes are features,
in row-major order, so that a reshape or a transpose of them is a renumbering, as are concat and split.
"""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialect.ops.axis_maps import axis_map_of
from ...dialect.ops.constants import ConstantOp, is_constant
from ...dialect.ops.elementwise import ActivateOp, AddOp, BinaryOp, DivOp, MulOp, PreluOp, SubOp
from ...dialect.ops.foreign import ForeignOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.movement import ConcatOp, ReshapeOp, SplitOp, TransposeOp
from ...dialect.shape_inference import argument_shapes, result_shapes
from ...dialect.symbolic_sizes import Size, SymbolicShape, product
from ...dialect.tensors import DYNAMIC, is_f32_tensor, shape_of
from .rowwise import dynamic_operands


@dataclass(frozen=True)
class NetworkRows:
    """The symbolic shapes of a function's values, and the rows of the ops that can be part of a graph."""

    shapes: dict[SSAValue, SymbolicShape]

    @staticmethod
    def of(func: FuncOp) -> "NetworkRows":
        """Return the rows of the values in the body of `func`; sizes of which nothing is known get their own names."""
        rows = NetworkRows(argument_shapes(func))
        for op in func.body.block.ops:
            rows.shapes.update(rows.shapes_of_results(op))
        return rows

    def shapes_of_results(self, op: Operation) -> dict[SSAValue, SymbolicShape]:
        """Return the shapes of an op's results that are tensors."""
        tensors = [result for result in op.results if isinstance(result.type, TensorType)]
        if not isinstance(op, ForeignOp):
            # a sum of sizes has no name, as in a concat along the batch
            with suppress(VerifyException):
                return dict(zip(tensors, result_shapes(op, self.shapes), strict=True))
        return {result: _own_sizes(result, f"%{len(self.shapes)}.{index}") for index, result in enumerate(tensors)}

    def leading_axes(self, value: SSAValue, rows: Size) -> int | None:
        """Return how many first axes of a value make `rows`, the others having known sizes; None where none do."""
        shape = self.shapes[value]
        for axes in range(len(shape)):
            if product(shape[:axes]) == rows and DYNAMIC not in shape_of(value)[axes:]:
                return axes
        return None

    def of_ops(self, ops: list[Operation]) -> dict[Operation, Size]:
        """Return the rows of each op that can be part of a graph; `ops` stand in block order."""
        known: dict[Operation, Size] = {}
        for op in ops:
            operands = dynamic_operands(op)
            # inputs that are ids have a shape but no features, and what a foreign op yields may have neither
            values = (*operands, *op.results)
            if not operands or any(value not in self.shapes or not is_f32_tensor(value.type) for value in values):
                continue
            # movement continues the graph that its operand is in, whatever the last axis of its result is
            producers = [
                known[operand.owner]
                for operand in operands
                if isinstance(operand.owner, Operation) and operand.owner in known
            ]
            own = [product(self.shapes[operands[0]][:-1])]
            candidates = own if isinstance(op, LinearOp) else [*producers, *own]
            fitting = [rows for rows in candidates if self._fits(op, rows)]
            if fitting:
                known[op] = fitting[0]
        return known

    def _fits(self, op: Operation, rows: Size) -> bool:
        """Return whether an op only sums, activates and renumbers the features of `rows` rows."""
        axes = [self.leading_axes(value, rows) for value in (*dynamic_operands(op), *op.results)]
        known = [count for count in axes if count is not None]
        if len(known) < len(axes):
            return False
        same = self._same_axes(op, known)
        if isinstance(op, ReshapeOp):
            unknown = [
                shape_of(value)[:count].count(DYNAMIC) for value, count in zip((op.x, op.result), known, strict=True)
            ]
            # the way back from other leading axes is a reshape, too, which can infer only one of them
            return same or max(unknown) <= 1
        return same and _keeps_rows(op, known[0]) and _is_affine(op, known[0])

    def _same_axes(self, op: Operation, axes: list[int]) -> bool:
        """Return whether all operands and results, constants left out, have the same leading axes."""
        values = (*dynamic_operands(op), *op.results)
        leading = [
            (self.shapes[value][:count], shape_of(value)[:count]) for value, count in zip(values, axes, strict=True)
        ]
        return all(shape == leading[0] for shape in leading)


def _own_sizes(value: SSAValue, name: str) -> SymbolicShape:
    """Return the shape of a value, its unknown sizes called after `name`."""
    return tuple(
        Size.symbol(f"{name}.{axis}") if size == DYNAMIC else Size.known(size)
        for axis, size in enumerate(shape_of(value))
    )


def _keeps_rows(op: Operation, leading_axes: int) -> bool:
    """Return whether the first axes of the operands are those of the results, and what has no such axes is constant."""
    axis_map = axis_map_of(op)
    if axis_map is None:
        return False
    rows = axis_map.results[0][:leading_axes]
    for index, (value, axes) in enumerate(zip(op.operands, axis_map.operands, strict=True)):
        if is_constant(value):
            if axis_map.join is not None:
                return False
        elif index in axis_map.parameters or axes[:leading_axes] != rows:
            return False
    return all(axes[:leading_axes] == rows for axes in axis_map.results)


def _is_affine(op: Operation, leading_axes: int) -> bool:
    """Return whether an op sums its operands' features, each times a number, moves them or applies an activation."""
    match op:
        case BinaryOp():
            return _is_affine_binary(op, leading_axes)
        case LinearOp() | ActivateOp() | ConcatOp() | SplitOp() | TransposeOp():
            return True
        case _:
            return False


def _is_affine_binary(op: BinaryOp, leading_axes: int) -> bool:
    """Return whether the result is a sum of the operands' features, each times a number that is finite."""
    constants = [value.owner.array for value in op.operands if isinstance(value.owner, ConstantOp)]
    rank = len(shape_of(op.result))
    for array in constants:
        padded = (1,) * (rank - array.ndim) + array.shape
        if array.ndim > rank or any(size != 1 for size in padded[:leading_axes]) or not np.all(np.isfinite(array)):
            return False
    match op:
        case AddOp() | SubOp():
            return True
        case MulOp():
            return len(constants) == 1
        case DivOp():
            return is_constant(op.right) and not is_constant(op.left) and _divides(constants[0])
        case PreluOp():
            return is_constant(op.right) and not is_constant(op.left) and constants[0].size == 1
        case _:
            return False


def _divides(array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bool:
    """Return whether the reciprocals of a constant are finite in single precision."""
    with np.errstate(all="ignore"):
        return bool(np.all(np.isfinite(np.float32(1.0) / array)))
