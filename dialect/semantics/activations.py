"""What every activation computes, on numpy arrays of any float dtype: the reference that kernels are compared with.

NaN and infinities come out as onnxruntime's: NaN stays NaN in every activation, clip and relu included.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import pi, sqrt
from types import MappingProxyType, ModuleType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from redpebble.dialect.attributes.activations import ActivationAttr

Floats = NDArray[np.floating]
"""An array of float32 or float64; what is computed from it has the same dtype."""


def activate(activation: ActivationAttr, x: Floats) -> Floats:
    """Return `activation` of every value of `x`, in the dtype of `x`."""
    with np.errstate(all="ignore"):
        return np.asarray(REFERENCE_ACTIVATIONS[activation.kind.data](x, *activation.values), dtype=x.dtype)


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
