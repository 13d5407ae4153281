"""The elementwise functions of one variable: their names and their parameters, once for every layer of the compiler.

What each computes is here, too, on numpy arrays: the reference that kernels are compared with. NaN and infinities come
out as onnxruntime's: NaN stays NaN in every activation, clip and relu included.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import pi, sqrt
from types import MappingProxyType, ModuleType
from typing import Annotated, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.parser import AttrParser
from xdsl.utils.exceptions import VerifyException

from ...foundation.bfloat import rounded_to_bfloat
from ..record import FLOAT, Record, sequence

Floats = NDArray[np.floating]
"""An array of float32 or float64; what is computed from it has the same dtype."""

BFLOAT_SINCE: Final = 13
"""The opset from which ONNX can say bfloat16: Cast there and back."""

GELU_SINCE: Final = 20
"""The opset from which ONNX has Gelu, in both forms."""

CODES: Final = 256
"""Number of the codes of eight bits."""


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


def _scaled_hard_swish(x: Floats, scale: float, shift: float) -> Floats:
    return scale * _hard_swish(x) + shift


def _scaled_relu(x: Floats, scale: float, shift: float) -> Floats:
    return scale * np.maximum(x, 0) + shift


def _selu(x: Floats, alpha: float, gamma: float) -> Floats:
    return gamma * (np.maximum(x, 0) + np.minimum(alpha * np.expm1(x), 0))


def _sigmoid(x: Floats) -> Floats:
    return _special().expit(x)


def _silu(x: Floats, alpha: float) -> Floats:
    return x * _sigmoid(alpha * x)


def _softplus(x: Floats) -> Floats:
    return np.logaddexp(np.zeros_like(x), x)


class OnnxOperator(NamedTuple):
    """An ONNX operator that is a whole activation, from the opset `since`, with the defaults of its parameters."""

    name: str
    since: int = 1
    defaults: tuple[float, ...] = ()


class Activation(NamedTuple):
    """Facts of an activation that every layer of the compiler reads, beside its code."""

    reference: Callable[..., Floats]
    """The function of an array and of the parameters."""
    parameters: tuple[str, ...] = ()
    """Their names in ONNX, in the order in which they are printed."""
    onnx: OnnxOperator | None = None
    """None where several operators make it, or one that changed."""
    is_short: bool = False
    """Whether kernels apply it to sums in registers; others have a pass of their own."""


ACTIVATIONS: Final[Mapping[str, Activation]] = MappingProxyType(
    {
        "abs": Activation(np.abs, onnx=OnnxOperator("Abs"), is_short=True),
        "bfloat16": Activation(_bfloat16),
        "celu": Activation(_celu, ("alpha",), OnnxOperator("Celu", 12, (1.0,))),
        "clip": Activation(_clip, ("min", "max"), is_short=True),
        "elu": Activation(_elu, ("alpha",), OnnxOperator("Elu", 1, (1.0,))),
        "erf": Activation(_erf, onnx=OnnxOperator("Erf", 9)),
        "exp": Activation(np.exp, onnx=OnnxOperator("Exp")),
        "gelu": Activation(_gelu, onnx=OnnxOperator("Gelu", GELU_SINCE)),
        "gelu_tanh": Activation(_gelu_tanh),
        "hard_sigmoid": Activation(
            _hard_sigmoid, ("alpha", "beta"), OnnxOperator("HardSigmoid", 1, (0.2, 0.5)), is_short=True
        ),
        "hard_swish": Activation(_hard_swish, onnx=OnnxOperator("HardSwish", 14), is_short=True),
        "leaky_relu": Activation(_leaky_relu, ("alpha",), OnnxOperator("LeakyRelu", 1, (0.01,)), is_short=True),
        "log": Activation(np.log, onnx=OnnxOperator("Log")),
        "mish": Activation(_mish, onnx=OnnxOperator("Mish", 18)),
        "neg": Activation(np.negative, onnx=OnnxOperator("Neg"), is_short=True),
        "quantize": Activation(_quantize, ("scale", "zero")),
        "reciprocal": Activation(partial(np.divide, 1), onnx=OnnxOperator("Reciprocal")),
        "relu": Activation(partial(np.maximum, 0), onnx=OnnxOperator("Relu"), is_short=True),
        "scaled_hard_swish": Activation(_scaled_hard_swish, ("scale", "shift"), is_short=True),
        "scaled_relu": Activation(_scaled_relu, ("scale", "shift"), is_short=True),
        "selu": Activation(
            _selu, ("alpha", "gamma"), OnnxOperator("Selu", 1, (1.67326319217681884765625, 1.05070102214813232421875))
        ),
        "sigmoid": Activation(_sigmoid, onnx=OnnxOperator("Sigmoid")),
        "silu": Activation(_silu, ("alpha",)),
        "softplus": Activation(_softplus, onnx=OnnxOperator("Softplus")),
        "sqrt": Activation(np.sqrt, onnx=OnnxOperator("Sqrt")),
        "square": Activation(np.square, is_short=True),
        "tanh": Activation(np.tanh, onnx=OnnxOperator("Tanh")),
    }
)
"""The activation of each kind.

`silu` is x * sigmoid(alpha * x); `gelu` is the exact form with erf, `gelu_tanh` the approximation with tanh.
`scaled_hard_swish` and `scaled_relu` are scale * y + shift of what these yield, as a learnable affine block behind them
is.
`bfloat16` is the nearest number of eight bits of mantissa, ties to even.
`quantize` is the nearest of the 256 multiples of the scale from -zero on, those of codes of eight bits, ties to even.
`clip` holds -inf and inf where a bound is missing; min wins nowhere: min > max gives max, as in ONNX."""

OF_FEW_INSTRUCTIONS: Final = frozenset(kind for kind, one in ACTIVATIONS.items() if one.is_short)
"""Kinds that kernels apply to sums in registers."""


SCALED: Final[Mapping[str, str]] = MappingProxyType({"hard_swish": "scaled_hard_swish", "relu": "scaled_relu"})
"""Kind -> the kind of the same with a product and a sum behind it."""


class ActivationAttr(Record, text="{kind}{values}"):
    """An elementwise function and its parameters: `#pebble.activation<leaky_relu(0.01)>`."""

    name = "pebble.activation"

    kind: str
    values: Annotated[tuple[float, ...], sequence(FLOAT, AttrParser.Delimiter.PAREN)] = ()
    """The parameters in the order of their names in `ACTIVATIONS`."""

    def verify(self) -> None:
        if self.kind not in ACTIVATIONS:
            known = ", ".join(sorted(ACTIVATIONS))
            raise VerifyException(f"expected an activation of {known}, got {self.kind!r}")
        expected = ACTIVATIONS[self.kind].parameters
        if len(self.values) != len(expected):
            raise VerifyException(
                f"expected {len(expected)} parameters of activation {self.kind}, got {len(self.values)}"
            )


def scaled_activation(activation: ActivationAttr, scale: float, shift: float) -> ActivationAttr | None:
    """Return the activation that is scale * y + shift of what one yields, None where there is none."""
    if activation.kind in SCALED:
        return ActivationAttr(SCALED[activation.kind], (scale, shift))
    if activation.kind in SCALED.values():
        first, second = activation.values
        return ActivationAttr(activation.kind, (scale * first, scale * second + shift))
    return None


def activate(activation: ActivationAttr, x: Floats) -> Floats:
    """Return `activation` of every value of `x`, in the dtype of `x`."""
    with np.errstate(all="ignore"):
        return np.asarray(ACTIVATIONS[activation.kind].reference(x, *activation.values), dtype=x.dtype)
