"""Finiteness: values that may hold NaN or infinities because a constant does.

A connection of weight 0 passes NaN on: 0 * NaN and 0 * inf are NaN. Where such values may arrive, a weight's zeros are
no missing connections, and neurons cannot be dropped, merged or left out of a sparse weight without changing results.
Finite constants can only overflow for inputs that no model is made for; these are not looked for.
"""

from math import isfinite
from typing import Final

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.ops.elementwise import ActivateOp, ConvertOp
from ...dialect.ops.layers import LinearOp
from ...dialect.tensors import floats_of

PARTIAL: Final = frozenset({"log", "reciprocal", "sqrt"})
"""Activations that make NaN or inf of finite values, which a connection of weight 0 passes on: 0 * NaN is NaN."""


def is_partial(activation: ActivationAttr | None) -> bool:
    """Return whether an activation may make NaN or inf of finite values."""
    return activation is not None and (activation.kind in PARTIAL or has_nonfinite_parameter(activation))


def has_nonfinite_parameter(activation: ActivationAttr | None) -> bool:
    """Return whether an activation can make NaN or inf by its parameters; clip holds inf where it has no bound."""
    return activation is not None and activation.kind != "clip" and not all(map(isfinite, activation.values))


def nonfinite_values(module: ModuleOp) -> set[SSAValue]:
    """Return the constants with NaN or inf among their entries, and all values that are computed from them."""
    found: set[SSAValue] = set()
    # walk order is block order, so that operands are known before their readers
    for op in module.walk():
        match op:
            case ConstantOp():
                reached = not np.isfinite(op.array).all()
            case SparseConstantOp():
                reached = not np.isfinite(floats_of(op.values)).all()
            case ConvertOp():
                reached = False  # a NaN becomes the least code
            case ActivateOp() | LinearOp() if has_nonfinite_parameter(op.activation):
                reached = True
            case _:
                reached = any(operand in found for operand in op.operands)
        if reached:
            found.update(op.results)
            found.update(argument for region in op.regions for block in region.blocks for argument in block.args)
    return found
