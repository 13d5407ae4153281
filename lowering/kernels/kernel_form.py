"""Shared code of kernels of linear layers: constants, the form they are specialised on, the end of an output row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.constants import ConstantOp, SparseConstantOp, constant_array
from ...dialect.tensors import shape_of
from ...kernels.family import GroupedCodes, LayerWeights
from ..llvm.activations import emit_activation, emit_activation_of_codes
from ..llvm.vectors import Lanes

OUTPUT_PADDING = 8
"""Feature-major buffers have room for this many more rows, so that kernels may write whole groups of rows."""


def layer_weights(weight: SSAValue, bias: NDArray[np.float32], blocks: int | None = None) -> LayerWeights:
    """Return a constant weight [inputs, outputs] and its bias, for packing over so many blocks of inputs.

    Raises:
        ValueError: the weight is no constant.
    """
    if isinstance(weight.owner, SparseConstantOp):
        panels = weight.owner.panels
        members = [] if panels is None else [outputs for _, outputs in panels.panels]
        return LayerWeights(weight.owner.weight, bias, members, blocks, codes=_codes(weight.owner))
    array = constant_array(weight)
    if array is None:
        raise ValueError("weight is no constant")
    codes = _codes(weight.owner) if isinstance(weight.owner, ConstantOp) else None
    return LayerWeights(array, bias, blocks=blocks, codes=codes)


def _codes(constant: ConstantOp | SparseConstantOp) -> GroupedCodes | None:
    few_bits = constant.few_bits
    if few_bits is None or not few_bits.may_round_inputs:
        return None
    if isinstance(constant, SparseConstantOp):
        steps = few_bits.steps(constant.weight)
    else:
        steps = few_bits.dense_steps(constant.array)
    scales = few_bits.scales.reshape(shape_of(constant.result)[1], -1)
    return GroupedCodes(steps, scales, few_bits.size, few_bits.bits)


@dataclass(frozen=True)
class LinearForm:
    """The form that a kernel is specialised on: batch columns of the tile, and the activation at its end."""

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
    return f"{activation.kind}_{numbers}" if numbers else activation.kind


def activated(
    lanes: Lanes, activation: ActivationAttr | None, values: Sequence[ir.Value], *, of_codes: bool = False
) -> list[ir.Value]:
    """Return `values` after the activation, if there is one; those `of_codes` are going to be rounded to eight bits."""
    if activation is None:
        return list(values)
    emit = emit_activation_of_codes if of_codes else emit_activation
    return [emit(lanes, activation.kind, activation.values, value) for value in values]
