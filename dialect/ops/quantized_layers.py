"""Sums of codes of eight bits: the parameters of a linear layer, or of a convolution for each of its pixels."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from ..attributes.activations import ActivationAttr, activate
from ..attributes.codes import CodesAttr
from ..tensors import DYNAMIC, shape_of, shape_text
from .constants import ConstantOp, SparseConstantOp, constant_array

GREATEST_WEIGHT: Final = 255
"""A code of eight bits less its zero."""

GREATEST_BIAS: Final = 1 << 24
"""Up to here every integer is a float32."""


class QuantizedLayer(NamedTuple):
    """A layer on codes: see `LinearOp`."""

    name: str
    weight: SSAValue
    bias: SSAValue | None
    multiplier: SSAValue
    codes: CodesAttr
    """The codes of its inputs."""
    activation: ActivationAttr | None

    @property
    def inputs(self) -> int:
        """The number of its inputs."""
        return shape_of(self.weight)[0]

    @property
    def outputs(self) -> int:
        """The number of its outputs."""
        return shape_of(self.weight)[1]

    @property
    def added(self) -> NDArray[np.float32]:
        """The bias [outputs], zeros where there is none."""
        array = None if self.bias is None else constant_array(self.bias)
        return np.zeros(self.outputs, np.float32) if array is None else array

    @property
    def rounds_sums(self) -> bool:
        """Whether sums are rounded to codes by one multiplication."""
        return self.activation is None or self.activation.kind == "relu"

    def results(
        self, totals: NDArray[np.float32], multiplier: NDArray[np.float32], codes: CodesAttr | None
    ) -> NDArray[np.float32]:
        """Return the values of sums with their biases, or code - zero where `codes` say to what to round."""
        if codes is not None and self.rounds_sums:
            steps = codes.steps(np.multiply(totals, multiplier / np.float32(codes.scale), dtype=np.float32))
            return steps if self.activation is None else np.maximum(steps, 0)
        values = totals * multiplier
        values = values if self.activation is None else activate(self.activation, values)
        return values if codes is None else codes.steps(values / np.float32(codes.scale))


def verify_parameters(layer: QuantizedLayer, values: int) -> int:
    """Check that the parameters of a layer fit `values` inputs, and return the number of outputs.

    Raises:
        VerifyException: one has another shape, or is not made of integers that are constants.
    """
    weight = shape_of(layer.weight)
    if len(weight) != 2 or DYNAMIC in weight or weight[0] != values:
        raise VerifyException(f"weight {shape_text(weight)} does not fit {values} inputs")
    for word, value in (("bias", layer.bias), ("multiplier", layer.multiplier)):
        if value is not None and shape_of(value) != weight[1:]:
            raise VerifyException(f"expected {word} {weight[1]}, got {shape_text(shape_of(value))}")
    _verify_integers("weights", layer.weight, GREATEST_WEIGHT)
    if layer.bias is not None and not layer.codes.is_dynamic:
        _verify_integers("biases", layer.bias, GREATEST_BIAS)
    return weight[1]


def _verify_integers(word: str, value: SSAValue, greatest: int) -> None:
    """Check that a constant holds integers, no greater than `greatest` whatever their sign."""
    match value.owner:
        case ConstantOp() as op:
            array = op.array
        case SparseConstantOp() as op:
            array = op.weight.values
        case _:
            raise VerifyException(f"{word} are no constant")
    if array.size and not (np.all(np.rint(array) == array) and np.abs(array).max() <= greatest):
        raise VerifyException(f"{word} are no integers from {-greatest} to {greatest}")
