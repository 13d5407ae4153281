"""The elementwise functions of one variable: their names and their parameters, once for every layer of the compiler.

What each computes is here, too, on numpy arrays: the reference that kernels are compared with. NaN and infinities come
out as onnxruntime's: NaN stays NaN in every activation, clip and relu included.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import pi, sqrt
from types import MappingProxyType, ModuleType
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from xdsl.parser import AttrParser
from xdsl.utils.exceptions import VerifyException

from ...foundation.bfloat import rounded_to_bfloat
from ..record import FLOAT, Record, sequence

Floats = NDArray[np.floating]
"""An array of float32 or float64; what is computed from it has the same dtype."""

ACTIVATION_PARAMETERS: Final = MappingProxyType(
    {
        "abs": (),
        "bfloat16": (),
        "celu": ("alpha",),
        "clip": ("min", "max"),
        "elu": ("alpha",),
        "erf": (),
        "exp": (),
        "gelu": (),
        "gelu_tanh": (),
        "hard_sigmoid": ("alpha", "beta"),
        "hard_swish": (),
        "leaky_relu": ("alpha",),
        "log": (),
        "mish": (),
        "neg": (),
        "quantize": ("scale", "zero"),
        "reciprocal": (),
        "relu": (),
        "selu": ("alpha", "gamma"),
        "sigmoid": (),
        "silu": ("alpha",),
        "softplus": (),
        "sqrt": (),
        "square": (),
        "tanh": (),
    }
)
"""Kind of activation -> the names of its parameters, in the order in which they are printed.

`silu` is x * sigmoid(alpha * x); `gelu` is the exact form with erf, `gelu_tanh` the approximation with tanh.
`bfloat16` is the nearest number of eight bits of mantissa, ties to even.
`quantize` is the nearest of the 256 multiples of the scale from -zero on, those of codes of eight bits, ties to even.
`clip` holds -inf and inf where a bound is missing; min wins nowhere: min > max gives max, as in ONNX."""

BFLOAT_SINCE: Final = 13
"""The opset from which ONNX can say bfloat16: Cast there and back."""

CODES: Final = 256
"""Number of the codes of eight bits."""


class ActivationAttr(Record, text="{kind}{values}"):
    """An elementwise function and its parameters: `#pebble.activation<leaky_relu(0.01)>`."""

    name = "pebble.activation"

    kind: str
    values: Annotated[tuple[float, ...], sequence(FLOAT, AttrParser.Delimiter.PAREN)] = ()
    """The parameters in the order of `ACTIVATION_PARAMETERS`."""

    def verify(self) -> None:
        expected = ACTIVATION_PARAMETERS.get(self.kind)
        if expected is None:
            known = ", ".join(sorted(ACTIVATION_PARAMETERS))
            raise VerifyException(f"unknown activation {self.kind!r}, accepted are {known}")
        if len(self.values) != len(expected):
            raise VerifyException(f"activation {self.kind} has {len(self.values)} parameters, expected {len(expected)}")


def activate(activation: ActivationAttr, x: Floats) -> Floats:
    """Return `activation` of every value of `x`, in the dtype of `x`."""
    with np.errstate(all="ignore"):
        return np.asarray(REFERENCE_ACTIVATIONS[activation.kind](x, *activation.values), dtype=x.dtype)


def _bfloat16(x: Floats) -> Floats:
    return rounded_to_bfloat(x.astype(np.float32))


def _celu(x: Floats, alpha: float) -> Floats:
    return np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0)


def _clip(x: Floats, low: float, high: float) -> Floats:
    # a bound that is NaN bounds nothing
    raised = np.where(x < low, low, x)
    return np.where(raised > high, high, raised)


def _elu(x: Floats, alpha: float) -> Floats:
    return np.where(x >= 0, x, alpha * np.expm1(x))


def _special() -> ModuleType:
    """Return scipy's special functions, imported late: with them xdsl-opt would need half as long again to start."""
    from scipy import special

    return special


def _erf(x: Floats) -> Floats:
    return _special().erf(x)


def _gelu(x: Floats) -> Floats:
    # the normal distribution's ndtr(x) is (1 + erf(x / sqrt(2))) / 2 without its cancellation for negative x
    return x * _special().ndtr(x)


def _gelu_tanh(x: Floats) -> Floats:
    return 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))


def _hard_sigmoid(x: Floats, alpha: float, beta: float) -> Floats:
    return _clip(alpha * x + beta, 0, 1)


def _hard_swish(x: Floats) -> Floats:
    return x * _hard_sigmoid(x, 1 / 6, 0.5)


def _leaky_relu(x: Floats, alpha: float) -> Floats:
    return np.where(x >= 0, x, alpha * x)


def _mish(x: Floats) -> Floats:
    return x * np.tanh(_softplus(x))


def _quantize(x: Floats, scale: float, zero: float) -> Floats:
    multiples = x / x.dtype.type(scale)
    # a NaN has the least code, as in onnxruntime
    bounded = np.minimum(np.where(multiples > -zero, multiples, -zero), CODES - 1 - zero)
    return np.rint(bounded) * x.dtype.type(scale)


def _selu(x: Floats, alpha: float, gamma: float) -> Floats:
    return gamma * (np.maximum(x, 0) + np.minimum(alpha * np.expm1(x), 0))


def _sigmoid(x: Floats) -> Floats:
    return _special().expit(x)


def _silu(x: Floats, alpha: float) -> Floats:
    return x * _sigmoid(alpha * x)


def _softplus(x: Floats) -> Floats:
    return np.logaddexp(np.zeros_like(x), x)


REFERENCE_ACTIVATIONS: Final[Mapping[str, Callable[..., Floats]]] = MappingProxyType(
    {
        "abs": np.abs,
        "bfloat16": _bfloat16,
        "celu": _celu,
        "clip": _clip,
        "elu": _elu,
        "erf": _erf,
        "exp": np.exp,
        "gelu": _gelu,
        "gelu_tanh": _gelu_tanh,
        "hard_sigmoid": _hard_sigmoid,
        "hard_swish": _hard_swish,
        "leaky_relu": _leaky_relu,
        "log": np.log,
        "mish": _mish,
        "neg": np.negative,
        "quantize": _quantize,
        "reciprocal": partial(np.divide, 1),
        "relu": partial(np.maximum, 0),
        "selu": _selu,
        "sigmoid": _sigmoid,
        "silu": _silu,
        "softplus": _softplus,
        "sqrt": np.sqrt,
        "square": np.square,
        "tanh": np.tanh,
    }
)
"""Kind of activation -> the function of the array and of the parameters that `ACTIVATION_PARAMETERS` names."""

OF_FEW_INSTRUCTIONS: Final = frozenset(
    {"abs", "clip", "hard_sigmoid", "hard_swish", "leaky_relu", "neg", "relu", "square"}
)
"""Kinds that kernels apply to sums in registers; others have a pass of their own."""
