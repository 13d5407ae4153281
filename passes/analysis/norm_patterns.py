"""Normalisations that a model spells out: layer norm and rms norm over the last axis, with scale and bias."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.constants import ConstantOp
from ...dialect.ops.elementwise import ActivateOp, AddOp, DivOp, MulOp, SubOp
from ...dialect.ops.layers import LayerNormOp, ReduceMeanOp, RmsNormOp
from ...dialect.tensors import DYNAMIC, shape_of
from .per_feature_constants import entries_per_feature, featurewise_operands, single_entry

NormOp = LayerNormOp | RmsNormOp
Floats = NDArray[np.float32]


def recognized_norm(op: Operation) -> list[Operation]:
    """Return the ops that replace the division that ends a spelled-out normalisation, the norm last; else nothing."""
    if not isinstance(op, DivOp | MulOp) or DYNAMIC in shape_of(op.result)[-1:]:
        return []
    for value, deviation in _quotients(op):
        epsilon, squared = _inside_root(deviation)
        if squared is None or value.type != op.result.type or not shape_of(value):
            continue
        scale = ConstantOp(np.ones(shape_of(value)[-1], dtype=np.float32))
        norm = _layer_norm(value, squared, scale, epsilon) or _rms_norm(value, squared, scale, epsilon)
        if norm is not None:
            return [scale, norm]
    return []


def _quotients(op: DivOp | MulOp) -> Iterator[tuple[SSAValue, SSAValue]]:
    """Yield what is divided and the root it is divided by; all but the divided value has one reader."""
    if isinstance(op, DivOp):
        yield op.left, op.right
        return
    for value, inverse in ((op.left, op.right), (op.right, op.left)):
        owner = inverse.owner
        if not inverse.has_one_use():
            continue
        if isinstance(owner, ActivateOp) and owner.activation.kind == "reciprocal":
            yield value, owner.x
        elif isinstance(owner, DivOp) and single_entry(owner.left) == 1.0:
            yield value, owner.right


def _inside_root(deviation: SSAValue) -> tuple[float, SSAValue | None]:
    """Return epsilon and v where `deviation` is `sqrt(mean(v^2) + epsilon)`, else None for v."""
    root = deviation.owner
    if not deviation.has_one_use() or not isinstance(root, ActivateOp) or root.activation.kind != "sqrt":
        return 0.0, None
    epsilon, mean = 0.0, root.x
    if isinstance(mean.owner, AddOp) and mean.has_one_use():
        total = mean.owner
        for side, other in ((total.left, total.right), (total.right, total.left)):
            constant = single_entry(side)
            if constant is not None:
                epsilon, mean = constant, other
    squares = mean.owner
    if not isinstance(squares, ReduceMeanOp) or not mean.has_one_use() or not squares.x.has_one_use():
        return 0.0, None
    return epsilon, _base_of_square(squares.x)


def _base_of_square(square: SSAValue) -> SSAValue | None:
    owner = square.owner
    if isinstance(owner, ActivateOp) and owner.activation.kind == "square":
        return owner.x
    if isinstance(owner, MulOp) and owner.left is owner.right:
        return owner.left
    return None


def _layer_norm(value: SSAValue, squared: SSAValue, scale: ConstantOp, epsilon: float) -> LayerNormOp | None:
    """Return the layer norm of x where `value` and `squared` are x - mean(x), both read by nothing else."""
    x, squared_x = _centred(value), _centred(squared)
    if x is None or squared_x is not x or not _only_inside(value, squared):
        return None
    return LayerNormOp(x, scale.result, None, epsilon)


def _rms_norm(value: SSAValue, squared: SSAValue, scale: ConstantOp, epsilon: float) -> RmsNormOp | None:
    return RmsNormOp(value, scale.result, epsilon) if value is squared else None


def _centred(value: SSAValue) -> SSAValue | None:
    """Return x where `value` is x - mean(x)."""
    owner = value.owner
    if not isinstance(owner, SubOp) or not isinstance(owner.right.owner, ReduceMeanOp):
        return None
    return owner.left if owner.right.owner.x is owner.left else None


def _only_inside(value: SSAValue, squared: SSAValue) -> bool:
    """Return whether only the square and the division read the centred value, or each its own copy of it."""
    readers = len({use.operation for use in value.uses})
    if value is squared:
        return readers == 2
    return readers == 1 and len({use.operation for use in squared.uses}) == 1


def norm_with_parameters(op: Operation) -> list[Operation]:
    """Return the norm, its new constant first, that takes the product or sum `op` behind it; else nothing."""
    if not isinstance(op, MulOp | AddOp):
        return []
    operands = featurewise_operands(op)
    if operands is None or not operands.value.has_one_use():
        return []
    norm = operands.value.owner
    old_scale = entries_per_feature(norm.scale) if isinstance(norm, LayerNormOp | RmsNormOp) else None
    if old_scale is None or not isinstance(norm, LayerNormOp | RmsNormOp):
        return []
    if isinstance(op, AddOp):
        return _with_sum(norm, operands.entries)
    return _with_product(norm, old_scale, operands.entries)


def _with_product(norm: NormOp, old_scale: Floats, factor: Floats) -> list[Operation]:
    if isinstance(norm, LayerNormOp) and norm.bias is not None:
        return []
    with np.errstate(all="ignore"):
        scale = ConstantOp(np.broadcast_to(old_scale * factor, shape_of(norm.x)[-1:]).astype(np.float32))
    if not np.isfinite(scale.array).all():
        return []
    epsilon = norm.epsilon.value.data
    if isinstance(norm, LayerNormOp):
        scaled = LayerNormOp(norm.x, scale.result, None, epsilon)
    else:
        scaled = RmsNormOp(norm.x, scale.result, epsilon)
    return [scale, scaled]


def _with_sum(norm: NormOp, summand: Floats) -> list[Operation]:
    if isinstance(norm, RmsNormOp) or norm.bias is not None:
        return []
    bias = ConstantOp(np.broadcast_to(summand, shape_of(norm.x)[-1:]).astype(np.float32))
    shifted = LayerNormOp(norm.x, norm.scale, bias.result, norm.epsilon.value.data)
    return [bias, shifted]
