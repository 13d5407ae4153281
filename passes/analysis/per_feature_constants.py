"""Constants with one entry for each feature, or for each channel of images, and the affine maps that they make."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ...dialect.ops.constants import ConstantOp, constant_array, is_constant
from ...dialect.ops.elementwise import AddOp, BinaryOp, DivOp, MulOp, SubOp
from ...dialect.ops.images import spreads_of
from ...dialect.ops.layers import BatchNormOp
from ...dialect.tensors import DYNAMIC, shape_of


def entries_per_feature(value: SSAValue) -> NDArray[np.float32] | None:
    """Return the entries [K] (or [1]) of a constant that varies along its last axis only, else None."""
    if not isinstance(value.owner, ConstantOp):
        return None
    array = value.owner.array
    if any(size != 1 for size in array.shape[:-1]):
        return None
    return array.reshape(-1) if array.ndim else array.reshape(1)


def single_entry(value: SSAValue) -> float | None:
    """Return the entry of a constant that has only one, else None."""
    entries = entries_per_feature(value)
    return float(entries[0]) if entries is not None and len(entries) == 1 else None


class Featurewise(NamedTuple):
    """A value and the constant an op combines it with, feature by feature; the result has the value's type."""

    value: SSAValue
    constant: SSAValue
    entries: NDArray[np.float32]
    """[K] or [1]."""


def featurewise_operands(op: BinaryOp) -> Featurewise | None:
    """Return the operands of an op that combines a value with a constant per feature, else None."""
    for value, constant in ((op.left, op.right), (op.right, op.left)):
        entries = entries_per_feature(constant)
        known = bool(shape_of(value)) and shape_of(value)[-1] != DYNAMIC
        if entries is not None and known and value.type == op.result.type and entries_per_feature(value) is None:
            return Featurewise(value, constant, entries)
    return None


class Affine(NamedTuple):
    """source * scale + shift over an axis of K features or channels, in double precision."""

    source: SSAValue
    scale: NDArray[np.float64]
    """[K]."""
    shift: NDArray[np.float64]
    """[K]."""


def affine_of(op: BinaryOp) -> Affine | None:
    """Return the map that a sum, difference, product or quotient with a constant per feature is, else None."""
    operands = featurewise_operands(op)
    if operands is None:
        return None
    size = shape_of(operands.value)[-1]
    return _affine(op, operands.value, np.broadcast_to(operands.entries.astype(np.float64), (size,)))


def affine_of_channels(op: BinaryOp) -> Affine | None:
    """Return the map that a sum, product or the like of images with a constant per channel is, else None."""
    spreads = spreads_of(op)
    if spreads is None or "tile" not in spreads:
        return None
    value, other = (op.left, op.right) if spreads[0] == "tile" else (op.right, op.left)
    constant, channels = constant_array(other), shape_of(value)[1]
    if constant is None or channels == DYNAMIC or is_constant(value):
        return None
    return _affine(op, value, np.broadcast_to(constant.astype(np.float64).reshape(-1), (channels,)))


def _affine(op: BinaryOp, value: SSAValue, constant: NDArray[np.float64]) -> Affine | None:
    ones, zeros = np.ones(len(constant)), np.zeros(len(constant))
    match op:
        case AddOp():
            return Affine(value, ones, constant)
        case SubOp():
            return Affine(value, *((ones, -constant) if value is op.left else (-ones, constant)))
        case MulOp():
            return Affine(value, constant, zeros)
        case DivOp() if value is op.left:
            with np.errstate(all="ignore"):
                return Affine(value, 1.0 / constant, zeros)
        case _:
            return None


def affine_of_batch_norm(op: BatchNormOp) -> Affine | None:
    """Return the map that a batch norm with constant parameters is along axis 1, else None."""
    parameters = [entries_per_feature(operand) for operand in op.operands[1:]]
    scale, bias, mean, variance = (None if entries is None else entries.astype(np.float64) for entries in parameters)
    if scale is None or bias is None or mean is None or variance is None:
        return None
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + op.epsilon.value.data)
        return Affine(op.x, factor, bias - mean * factor)
