"""The parameters of linear layers, read and replaced in place; a new constant stands right before the layer."""

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import DenseArrayBase, i32
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.ops.images import Conv2dOp
from ...dialect.ops.layers import LinearOp
from ..analysis.per_feature_constants import Affine, entries_per_feature
from ..analysis.weights import (
    Weight,
    constant_for,
    entries_of,
    product_with,
    scaled_inputs,
    scaled_outputs,
    weight_of,
)
from .replacing import take_names

LARGEST_SHIFT = 16.0
"""A shift before a layer cancels against the input; beyond this (4 bits lost) it is not folded into the bias."""

SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


def has_constant_parameters(linear: LinearOp) -> bool:
    """Return whether weight and bias are constants that may be scaled."""
    if linear.times is not None:
        return False
    bias_known = linear.bias is None or isinstance(linear.bias.owner, ConstantOp)
    return bias_known and weight_of(linear.weight) is not None


def weight_of_linear(linear: LinearOp) -> Weight:
    """Return the weight of a layer.

    Raises:
        ValueError: it is no constant.
    """
    weight = weight_of(linear.weight)
    if weight is None:
        raise ValueError("the weight is no constant")
    return weight


def bias_of(linear: LinearOp) -> NDArray[np.float64]:
    """Return the bias of a layer [N], zeros where it has none."""
    entries = None if linear.bias is None else entries_per_feature(linear.bias)
    outputs = weight_of_linear(linear).shape[1]
    return np.zeros(outputs) if entries is None else entries.astype(np.float64)


def set_weight(linear: LinearOp, weight: Weight) -> None:
    """Let the layer use `weight`; its result keeps its type."""
    linear.operands[1] = place_constant(constant_for(weight), linear, linear.weight)


def set_bias(layer: LinearOp | Conv2dOp, bias: NDArray[np.float64]) -> None:
    """Let the layer add `bias` [outputs], rounded to single precision; zeros are no bias of a linear layer."""
    added: list[SSAValue] = []
    if isinstance(layer, Conv2dOp) or np.any(bias != 0.0):
        added.append(place_constant(ConstantOp(bias.astype(np.float32)), layer, layer.bias))
    others = [layer.residual, layer.times] if isinstance(layer, Conv2dOp) else [layer.times]
    sizes = [int(one is not None) for one in others]
    layer.operands = [layer.x, layer.weight, *added, *(one for one in others if one is not None)]
    layer.properties["operandSegmentSizes"] = DenseArrayBase.from_list(i32, [1, 1, len(added), *sizes])


def place_constant(constant: ConstantOp | SparseConstantOp, user: Operation, replaced: SSAValue | None) -> SSAValue:
    """Insert `constant` before `user`; it takes the name of what it replaces, unless somebody else uses that."""
    if replaced is not None and isinstance(replaced.owner, Operation) and replaced.has_one_use():
        take_names(constant, replaced.owner)
    if user.parent is not None:
        user.parent.insert_op_before(constant, user)
    return constant.result


def absorb_behind(linear: LinearOp, affine: Affine) -> bool:
    """Let a layer without activation compute `affine` of what it computed; return whether its parameters allow it."""
    if linear.is_rounded and np.any(affine.scale != 1.0):
        return False
    weight, bias = weight_of_linear(linear), bias_of(linear)
    with np.errstate(all="ignore"):
        scaled = scaled_outputs(weight, affine.scale)
        shifted = bias * affine.scale + affine.shift
    if not (_precise(weight, scaled, affine) and np.isfinite(shifted.astype(np.float32)).all()):
        return False
    if np.any(affine.scale != 1.0):
        set_weight(linear, scaled)
    set_bias(linear, shifted)
    return True


def absorb_before(affine: Affine, linear: LinearOp) -> bool:
    """Let a layer that reads the result of `affine` read its source; return whether its parameters allow it."""
    if linear.is_rounded:
        return False
    weight, bias = weight_of_linear(linear), bias_of(linear)
    with np.errstate(all="ignore"):
        scaled = scaled_inputs(weight, affine.scale)
        shifted = bias + product_with(affine.shift, weight)
    if not (_precise(weight, scaled, affine) and np.isfinite(shifted.astype(np.float32)).all()):
        return False
    if np.abs(affine.shift).max(initial=0.0) > LARGEST_SHIFT:
        return False
    if np.any(affine.scale != 1.0):
        set_weight(linear, scaled)
    set_bias(linear, shifted)
    linear.operands[0] = affine.source
    return True


def _precise(weight: Weight, scaled: Weight, affine: Affine) -> bool:
    """Return whether a scaled weight says what the weight and the scale say: nothing overflows, nothing underflows."""
    before, factors = np.abs(entries_of(weight)), np.abs(affine.scale)
    smallest = before.min(initial=np.inf, where=before >= SMALLEST_NORMAL) * factors.min(
        initial=np.inf, where=factors > 0.0
    )
    finite = (np.isfinite(part).all() for part in (affine.scale, affine.shift, before, entries_of(scaled)))
    return bool(all(finite) and smallest >= SMALLEST_NORMAL)
