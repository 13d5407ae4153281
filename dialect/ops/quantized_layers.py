"""Sums of codes of eight bits: the parameters of a linear layer, or of a convolution for each of its pixels.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).
"""

from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ..attributes.activations import ActivationAttr, activate
from ..attributes.codes import CodesAttr, codes_in
from ..provenance import node_name
from ..tensors import shape_of, shape_text
from .constants import ConstantOp, SparseConstantOp, constant_array

GREATEST_WEIGHT: Final = 255
"""A code of eight bits less its zero."""

GREATEST_BIAS: Final = 1 << 24
"""Up to here every integer is a float32."""


FOUND_CODES: Final = "u8"
"""The precision of a layer whose inputs are rounded to unsigned codes, by the range of all of them at each call."""

BFLOAT: Final = "bf16"
"""The precision of a layer whose inputs and weights are rounded."""


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


class OnEither(Protocol):
    """A layer, linear or a convolution, of floats or on codes."""

    @property
    def x(self) -> SSAValue:
        """The activation."""
        ...

    @property
    def weight(self) -> SSAValue:
        """The weight [inputs, outputs]."""
        ...

    @property
    def bias(self) -> SSAValue | None:
        """The bias [outputs]."""
        ...

    @property
    def times(self) -> SSAValue | None:
        """The multiplier of sums of codes [outputs]."""
        ...

    @property
    def activation(self) -> ActivationAttr | None: ...

    @property
    def precision(self) -> StringAttr | None: ...

    @property
    def result(self) -> SSAValue: ...

    @property
    def codes(self) -> CodesAttr | None:
        """The codes of what it reads, None of floats."""
        ...

    @property
    def finds_codes(self) -> bool: ...

    @property
    def on_codes(self) -> QuantizedLayer: ...


class ReadsCodes:
    """Properties of a linear layer, or of a convolution, which may read codes, or round floats."""

    @property
    def is_rounded(self: OnEither) -> bool:
        """Whether inputs are rounded to a `precision`."""
        return self.precision is not None

    @property
    def finds_codes(self: OnEither) -> bool:
        """Whether inputs are rounded to codes that are found at each call."""
        return self.precision is not None and self.precision.data == FOUND_CODES

    @property
    def codes(self: OnEither) -> CodesAttr | None:
        """The codes of the inputs, None of floats."""
        return CodesAttr.dynamic() if self.finds_codes else codes_in(self.x.type)

    @property
    def on_codes(self: OnEither) -> QuantizedLayer:
        """The layer as sums of codes, that of each pixel where it is a convolution.

        Raises:
            VerifyException: it is one of floats.
        """
        if self.codes is None or self.times is None:
            raise VerifyException("expected a layer of codes and a multiplier")
        name = node_name(self) if isinstance(self, Operation) else ""
        return QuantizedLayer(name, self.weight, self.bias, self.times, self.codes, self.activation)


def verify_codes(op: OnEither) -> None:
    """Check that a layer has a multiplier where it reads codes, and parameters of integers, and nowhere else.

    Raises:
        VerifyException: it is not so.
    """
    if op.precision is not None and op.precision.data not in (BFLOAT, FOUND_CODES):
        raise VerifyException(f"expected precision {BFLOAT} or {FOUND_CODES}, got {op.precision.data!r}")
    read, written = codes_in(op.x.type), codes_in(op.result.type)
    if read is not None and op.precision is not None:
        raise VerifyException(f"expected floats to round to {op.precision.data}, got codes")
    if written is not None and read is None:
        raise VerifyException("expected a result of floats for an input of floats, got codes")
    if any(codes is not None and codes.is_dynamic for codes in (read, written)):
        raise VerifyException("expected codes of a scale and a zero, got dynamic ones")
    if (op.times is None) != (op.codes is None):
        raise VerifyException("expected a multiplier `times` of sums of codes alone")
    if op.times is not None:
        _verify_parameters(op.on_codes)


def _verify_parameters(layer: QuantizedLayer) -> None:
    for word, value in (("bias", layer.bias), ("multiplier", layer.multiplier)):
        if value is not None and shape_of(value) != (layer.outputs,):
            raise VerifyException(f"expected {word} {layer.outputs}, got {shape_text(shape_of(value))}")
    _verify_integers("weights", layer.weight, GREATEST_WEIGHT)
    if layer.bias is not None and not layer.codes.is_dynamic:
        _verify_integers("biases", layer.bias, GREATEST_BIAS)


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
