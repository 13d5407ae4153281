"""What kernels of linear layers share: the form they are specialised on, and the end of every output row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.dialect.attributes.kernels import ActivationAttr
from redpebble.dialect.attributes.row_panels import PanelsAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp, constant_array
from redpebble.lowering.llvm.activations import emit_activation
from redpebble.lowering.llvm.vectors import Lanes
from redpebble.sparse.csr import CscMatrix

PackedArrays = tuple[NDArray[np.generic], ...]

OUTPUT_PADDING = 8
"""Feature-major buffers have room for this many more rows, so that kernels may write whole groups of rows."""


def sparse_weight(weight: SSAValue) -> CscMatrix:
    """Return the entries of a constant weight [K, N] that are not zero."""
    return (
        weight.owner.weight
        if isinstance(weight.owner, SparseConstantOp)
        else CscMatrix.from_dense(dense_weight(weight))
    )


def dense_weight(weight: SSAValue) -> NDArray[np.float32]:
    """Return a constant weight [K, N] with its zeros.

    Raises:
        ValueError: the value is no constant.
    """
    array = constant_array(weight)
    if array is None:
        raise ValueError("weight is no constant")
    return array


def panels_of(weight: SSAValue) -> PanelsAttr | None:
    """Return the panels of a constant weight, if it has some."""
    return weight.owner.panels if isinstance(weight.owner, SparseConstantOp) else None


def outputs_of(weight: SSAValue, first: int, end: int) -> SSAValue:
    """Return a constant of the columns of a constant weight [K, N] from `first` to `end`, stored as it is."""
    if isinstance(weight.owner, SparseConstantOp):
        whole = weight.owner.weight
        start, stop = whole.pointers[first], whole.pointers[end]
        pointers = whole.pointers[first : end + 1] - start
        part = CscMatrix((whole.shape[0], end - first), pointers, whole.rows[start:stop], whole.values[start:stop])
        constant = SparseConstantOp(part)
        constant.panels = _panels_of(weight.owner.panels, first, end) if weight.owner.panels is not None else None
        return constant.result
    return ConstantOp(np.ascontiguousarray(dense_weight(weight)[:, first:end])).result


def _panels_of(panels: PanelsAttr, first: int, end: int) -> PanelsAttr:
    """Return the panels whose outputs all lie from `first` up to `end`."""
    inside = [
        members[(members >= first).all(axis=1) & (members < end).all(axis=1)] - first for _, members in panels.panels
    ]
    return PanelsAttr.of([row.tolist() for members in inside for row in members], panels.percent.data / 100)


@dataclass(frozen=True)
class LinearForm:
    """What a kernel is specialised on: batch columns of the tile, and the activation at its end."""

    width: int
    activation: ActivationAttr | None

    @property
    def key(self) -> str:
        """A name for functions of this form."""
        return f"w{self.width}_{activation_key(self.activation)}"


def activation_key(activation: ActivationAttr | None) -> str:
    """Return a name for an activation with its parameters, usable in a symbol."""
    if activation is None:
        return "linear"
    numbers = "_".join(np.float32(value).tobytes().hex() for value in activation.values)
    return f"{activation.kind.data}_{numbers}" if numbers else activation.kind.data


def activated(lanes: Lanes, activation: ActivationAttr | None, values: Sequence[ir.Value]) -> list[ir.Value]:
    """Return `values` after the activation, if there is one."""
    if activation is None:
        return list(values)
    return [emit_activation(lanes, activation.kind.data, activation.values, value) for value in values]
