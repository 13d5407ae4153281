"""Origins of constants: constants of the original that they still are, or were made from."""

from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.irdl import IRDLOperation

from ...dialect.ops.constants import ConstantOp, SparseConstantOp, constant_array
from ...dialect.ops.graphs import OverEdgesOp
from ...dialect.ops.grouped_layers import GroupedLayersOp
from ...dialect.provenance import node_name, value_name
from ..original import Array, Original

Constant = ConstantOp | SparseConstantOp


class Form(Enum):
    """Kind of tensor in which the original holds the numbers of a constant."""

    SAME = "same"
    TRANSPOSED = "transposed"
    ROW = "row"
    """A vector [N] as [1, N]."""
    CHANGED = "changed"
    """Absent; the constant was made from the original's, and has its name."""
    NEW = "new"
    """Absent, and under no name."""


class ConstantOrigin(NamedTuple):
    """The constant of the original that a constant of the IR is, or was made from."""

    name: str
    """The name of the original's constant; for a new one, what it might be called."""
    form: Form


def origin_of(op: Constant, original: Original) -> ConstantOrigin:
    """Find the original's constant by the name that `op` carries, or by its numbers when it carries none.

    Raises:
        ValueError: the op is no constant.
    """
    if isinstance(op, SparseConstantOp) and all(isinstance(use.operation, OverEdgesOp) for use in op.result.uses):
        # a graph is written edge by edge: it may have too many nodes for a dense matrix
        return ConstantOrigin(value_name(op.result) or _role(op), Form.NEW)
    array = constant_array(op.result)
    if array is None:
        raise ValueError(f"{op.name} is no constant")
    name = value_name(op.result)
    before = original.constant(name)
    if before is not None:
        return ConstantOrigin(name, form_of(before, array))
    for candidate, numbers in original.constants_of_size(array.size):
        form = form_of(numbers, array)
        if form is not Form.CHANGED:
            return ConstantOrigin(candidate, form)
    return ConstantOrigin(name or _role(op), Form.CHANGED if name else Form.NEW)


def form_of(before: Array, array: NDArray[np.float32]) -> Form:
    """Return in which form `before` holds the numbers of `array`."""
    if _same(before, array):
        return Form.SAME
    if _same(before, array.T):
        return Form.TRANSPOSED
    if before.shape == (1, *array.shape) and _same(before[0], array):
        return Form.ROW
    return Form.CHANGED


def _same(left: Array, right: NDArray[np.float32]) -> bool:
    """Return whether two arrays hold the same numbers, the sign of a zero and the kind of a NaN aside."""
    if left.shape != right.shape:
        return False
    differ = left != right
    return not differ.any() or bool(np.all(np.isnan(left[differ]) & np.isnan(right[differ])))


def _role(op: Constant) -> str:
    """Return the role of a constant in the first op that uses it, such as `fc1_bias`."""
    use = next(iter(op.result.uses), None)
    if use is None:
        return "constant"
    if isinstance(use.operation, GroupedLayersOp):
        number, is_bias = divmod(use.index - 1, 2)
        owner, word = use.operation.layers[number].name, "bias" if is_bias else "weight"
        return f"{owner}_{word}" if owner else word
    operands = use.operation.get_irdl_definition().operands if isinstance(use.operation, IRDLOperation) else ()
    word = operands[use.index][0] if use.index < len(operands) else "constant"
    owner = node_name(use.operation)
    return f"{owner}_{word}" if owner else word
